"""What `scripts/download.py` is made of: files over HTTP, and archives taken apart with care."""


class DownloadError(Exception):
    """Something could not be fetched; the message says what and the remedy."""
