"""Poincaré GloVe: word vectors in hyperbolic space from co-occurrence counts (Tifrea, Bécigneul and Ganea 2019)."""
