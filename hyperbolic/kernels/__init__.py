"""The hot formulas in their fast form; each is tested against a plain version in value and gradient."""
