"""A table of every directory of every partition: which one a query reads, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from seglog.spark.option_values import query_options
from seglog.spark.plan import choose_directories
from seglog.spark.read_options import parse_options
from seglog.storage.replicas import choose_replica

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["REPLICA_COLUMNS", "replica_rows", "replicas"]

#: The schema of `replicas`, as Spark's DDL.
REPLICA_COLUMNS = (
    "topic string, partition int, path string, is_read boolean, reason string, leader_epoch int, "
    "log_start_offset long, log_end_offset long, size long, topic_id string, error string")


def replicas(spark: SparkSession, path: str | list[str], **options: object) -> DataFrame:
    """The directories of the partitions below `path`, one row each.

    `path` and `options` are those of `spark.read.format("seglog")`. Of several directories of one
    partition, a query reads the one with `is_read`, for the given `reason`. Runs on the driver.
    Raises as such a query does.
    """
    return spark.createDataFrame(list(replica_rows(path, options)), REPLICA_COLUMNS)


def replica_rows(path: str | list[str], options: dict[str, object]
                 ) -> Iterator[tuple[Any, ...]]:
    """The rows of `replicas`."""
    given = parse_options(query_options(path, options))
    for tp, found in sorted(choose_directories(given).items()):
        choice = choose_replica(tp, found, given.storage)
        for replica in choice.replicas:
            is_read = replica is choice.chosen
            error = None if replica.error is None else str(replica.error)
            yield (tp.topic, tp.partition, replica.path, is_read,
                   choice.reason if is_read else None,
                   None if replica.leader_epoch < 0 or error else replica.leader_epoch,
                   None if error else replica.log_start_offset,
                   None if error else replica.log_end_offset,
                   None if error else replica.size, replica.topic_id, error)
