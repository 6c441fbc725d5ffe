"""Lets Spark find `format("seglog")` by itself: it imports every module named `pyspark_*` when it
first meets an unknown format and registers the class called DefaultSource."""

from seglog.spark.source import SeglogDataSource as DefaultSource

__all__ = ["DefaultSource"]
