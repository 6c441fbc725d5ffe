"""Handover from disk to broker: the offsets at which Spark's Kafka source continues."""

from __future__ import annotations

import os
from collections.abc import Sequence

from seglog.spark.option_values import query_options
from seglog.spark.streaming.bounds import WatchedLogs
from seglog.spark.streaming.positions import as_json
from seglog.spark.streaming.stream_options import parse_stream_options

__all__ = ["end_offsets"]


def end_offsets(path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
                **options: object) -> str:
    """The current end offsets of the logs, as JSON for `endingOffsets` and `startingOffsets`.

    A batch query of `format("seglog")` with these `endingOffsets` reads up to them, and
    `format("kafka")` with the same `startingOffsets` continues there: each record is read once.
    `path` and `options` (`subscribe`, `assign`, `subscribePattern`, `endAt`,
    `kafka.isolation.level`, ...) are those of `spark.readStream.format("seglog")`.

        end = end_offsets("/var/lib/kafka/data", subscribe="orders")

    Raises ValueError for options that the source refuses, UnknownTopicOrPartitionError,
    KafkaStorageError, and CorruptDataError for a log with a damaged end.
    """
    logs = WatchedLogs(parse_stream_options(query_options(path, options))).look()
    return as_json({tp: bounds.end for tp, bounds in logs.items()})
