"""Which nodes of a tree are below a given one? From their embeddings alone (Ganea, Bécigneul and Hofmann 2018)."""
