"""Lets Spark find `format("seglog")` without `register`: at the first unknown format it imports
every module named `pyspark_*` and registers the class DefaultSource."""

from seglog.spark.source import SeglogDataSource as DefaultSource

__all__ = ["DefaultSource"]
