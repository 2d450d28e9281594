"""Machine translation: an encoder and a decoder in one geometry, on pairs of sentences from aligned files."""
