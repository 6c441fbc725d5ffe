"""Benchmarks: each measure beside its floor and its peers, in one run. `python -m bench`."""
