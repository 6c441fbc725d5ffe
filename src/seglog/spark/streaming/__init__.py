"""`spark.readStream.format("seglog")`: streams growing logs with the offsets of Spark's Kafka
source."""

from __future__ import annotations

from seglog.spark.streaming.micro_batch import SeglogStreamReader

__all__ = ["SeglogStreamReader"]
