"""What `scripts/bench.py` measures and how: rows of the table, peers, alternating measurements, report."""
