"""One module for each figure, and what they stand on: the canvas, and charts of spaces on paper."""
