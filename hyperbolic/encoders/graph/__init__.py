"""Encoders of graphs: the nodes and their neighbours to a point for each node."""
