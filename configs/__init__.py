"""The settings of every run: YAML files by group, and the types they are checked against."""
