"""Kafka's partition logs as a Spark data source: `spark.read.format("seglog").load(path)`.

`register(spark)` makes the format known to a session. Spark 4 also finds it by itself, through the
`pyspark_seglog` module. Executors only read: this package never imports the loader or a manager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seglog.spark.source import SeglogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SeglogDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Makes `format("seglog")` known to `spark`, also where auto-discovery is switched off."""
    spark.dataSource.register(SeglogDataSource)
