"""Models of knowledge graphs: scores of triples (head, relation, tail)."""
