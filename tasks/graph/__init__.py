"""Link prediction and node classification on graphs."""
