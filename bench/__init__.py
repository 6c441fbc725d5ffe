"""Benchmarks: each measure next to its floor and its peers, in one run. `python -m bench`."""
