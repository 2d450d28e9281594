"""What `scripts/export.py` writes: files of points with names."""
