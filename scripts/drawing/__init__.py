"""The figures that scripts/figures.py draws: one module for each, from runs to files, and what they stand on."""
