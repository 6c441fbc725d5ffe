"""The Spark part of `seglog demo`: one query over a data directory."""

from __future__ import annotations

from seglog.spark.session import session

__all__ = ["show_topics"]


def show_topics(path: str) -> None:
    """Starts a local Spark, reads every record below `path` and prints a table by topic."""
    spark = session("local[2]", "seglog-demo", {"spark.ui.enabled": False,
                                                "spark.sql.shuffle.partitions": 2,
                                                "spark.sql.session.timeZone": "UTC"})
    try:
        spark.read.format("seglog").load(path).createOrReplaceTempView("records")
        spark.sql("""
            SELECT topic, count(DISTINCT partition) AS partitions, count(*) AS records,
                   sum(length(value)) AS value_bytes, min(timestamp) AS first,
                   max(timestamp) AS last
            FROM records GROUP BY topic ORDER BY topic""").show(50, truncate=False)
    finally:
        spark.stop()
