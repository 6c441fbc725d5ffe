"""The judge: Apache Kafka's own loader and seglog on the same damaged directories.

`make differential SEED=N [CASES=N]`, or `python -m tests.differential --help`.
"""
