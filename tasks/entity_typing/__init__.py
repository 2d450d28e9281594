"""Entity typing: all types of a mention in its sentence, from coarse to ultra-fine."""
