"""The reader: plans on the driver, decodes on the executors, and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from seglog.errors import KafkaStorageError
from seglog.spark.executors import CheckedOnArrival
from seglog.spark.failures import in_one_sentence, without_traceback
from seglog.spark.filters import Pushed, is_pushing, push
from seglog.spark.read_options import ReadOptions
from seglog.spark.plan import SeglogPartition, gaps_of, has_vanished, plan_partitions
from seglog.storage.stream import DecodeOptions, decode_range

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["SeglogReader", "make_reader"]

_WIDE = {"key", "value", "headers"}


def make_reader(options: ReadOptions, names: Sequence[str]) -> SeglogReader:
    """The reader that Spark accepts in this process: see `is_pushing`."""
    return (FilteringReader if is_pushing() else SeglogReader)(options, names)


class SeglogReader(CheckedOnArrival, DataSourceReader):
    """Reads the columns `names` (of the declared schema, in its order)."""

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)
        self._pushed = Pushed()

    @in_one_sentence
    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the query, planned on the driver. Raises what `plan_partitions` raises."""
        return plan_partitions(self._options, self._pushed,
                               is_narrow=_WIDE.isdisjoint(self._names))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task. Raises CorruptDataError or KafkaStorageError on damage;
        failOnDataLoss=false skips it with a warning for each gap."""
        if not isinstance(partition, SeglogPartition):
            return  # Spark's placeholder when there is nothing to read
        decoding = DecodeOptions(columns=self._names, layout="spark",
                                 origin=partition.topic_partition,
                                 batch_rows=self._options.batch_rows,
                                 check_crcs=self._options.check_crcs,
                                 on_damage=self._options.on_damage,
                                 row_filter=self._pushed.row_filter)
        with without_traceback():
            partition.require_seen()
            try:
                for planned in partition.ranges:
                    for columns in decode_range(
                            planned, decoding, on_gap=gaps_of(self._options.on_damage),
                            where=partition.files(planned, self._options.storage)):
                        yield pa.record_batch(columns)
            except KafkaStorageError as error:
                raise _explained(error) from None


class FilteringReader(SeglogReader):
    """Uses a query's filters to read less; Spark evaluates all of them again."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        """Stores the usable filters and returns all filters to Spark."""
        self._pushed = push(filters)
        return filters


def _explained(error: KafkaStorageError) -> KafkaStorageError:
    """The error, with the probable cause if a file is gone."""
    if not has_vanished(error):
        return error
    return KafkaStorageError(
        error.errno, "this segment was removed after the query was planned: retention, "
        "compaction or the deletion of the topic took it. Some data may have been lost; run the "
        "query again, or set failOnDataLoss to false to read what is left", error.filename)
