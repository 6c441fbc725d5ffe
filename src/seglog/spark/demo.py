"""What `seglog demo` shows of Spark: one query over a data directory."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from seglog.spark import register

__all__ = ["show_topics"]


def show_topics(path: str) -> None:
    """Starts a local Spark, reads every record below `path`, prints a table, one row a topic."""
    # Spark starts workers with the python3 of the PATH, which may lack what this one has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (SparkSession.builder.master("local[2]").appName("seglog-demo")
             .config("spark.ui.enabled", "false")
             .config("spark.ui.showConsoleProgress", "false")
             .config("spark.driver.host", "127.0.0.1")
             .config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.log.level", "ERROR")
             .config("spark.sql.shuffle.partitions", "2")
             .config("spark.sql.session.timeZone", "UTC").getOrCreate())
    try:
        register(spark)
        spark.read.format("seglog").load(path).createOrReplaceTempView("records")
        spark.sql("""
            SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS records,
                   sum(length(value)) AS value_bytes, min(timestamp) AS first,
                   max(timestamp) AS last
            FROM records GROUP BY topic ORDER BY topic""").show(50, truncate=False)
    finally:
        spark.stop()
