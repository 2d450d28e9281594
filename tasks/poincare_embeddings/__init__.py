"""Points for the nodes of a hierarchy (Nickel and Kiela, NeurIPS 2017 and ICML 2018)."""
