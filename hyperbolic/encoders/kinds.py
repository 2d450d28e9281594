"""What an encoder reads: its attribute `kind`."""

from typing import Any


def kind_of(make: Any) -> str:
    """What an encoder, or what makes it (its class, perhaps in a partial), reads: sequences where it does not say."""
    kind: str = getattr(getattr(make, "func", make), "kind", "sequences")
    return kind


def require_sequences(key: str, make: Any) -> None:
    """Raises ValueError, which names `encoder.<key>`, for an encoder that does not read sequences."""
    if (kind := kind_of(make)) != "sequences":
        raise ValueError(f"encoder.{key} needs an encoder of sequences, and this one is of {kind}")


__all__ = ["kind_of", "require_sequences"]
