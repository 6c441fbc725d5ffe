"""Runs work on executors: in one task each over RDDs, or over rows where there are none."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["context_of", "results_by_frame"]

_T = TypeVar("_T")
_R = TypeVar("_R")


def context_of(spark: SparkSession) -> SparkContext | None:
    """The SparkContext; None for Spark Connect and for platforms that hide it."""
    try:
        return spark.sparkContext
    except Exception:  # each platform raises its own error
        return None


def results_by_frame(spark: SparkSession, tasks: Sequence[_T], work: Callable[[_T], _R]
                     ) -> list[_R]:
    """One result a task, in order, without a SparkContext: a task is a row of a frame. PySpark
    requires pandas for it."""
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch({
                    "task": pa.array([number], pa.int64()),
                    "result": pa.array([pickle.dumps(work(tasks[number]))], pa.binary())})

    numbers = spark.range(0, len(tasks), 1, len(tasks))
    rows = numbers.mapInArrow(run, "task long, result binary").collect()
    found = {row.task: pickle.loads(row.result) for row in rows}
    return [found[number] for number in range(len(tasks))]
