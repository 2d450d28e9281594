"""Commands that work on what runs leave behind; each is run as `python -m scripts.<name>`."""
