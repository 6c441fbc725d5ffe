"""The task of a write: sends rows to fragments by topic and partition. Runs on executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from seglog._native.murmur2 import partitions
from seglog.errors import IllegalArgumentError
from seglog.encoding import SelectedRows
from seglog.fragments import FragmentWriter, partition_count
from seglog.model import TopicPartition
from seglog.spark.sink_options import SinkOptions

__all__ = ["RowPartitioner"]

#: A table, as its capsules, and the rows of it that belong to a partition.
_Piece = tuple[tuple[object, object], npt.NDArray[np.int32]]
_RECORD: Final = ("key", "value", "timestamp", "headers")
# Bytes of a partition to gather before encoding, so that all batches but the last are full.
_GATHER_BYTES: Final = 1 << 20
_GATHER_ALL_BYTES: Final = 64 << 20
#: Spark's timestamps are microseconds in 64 bits.
_SECONDS_MAX: Final = 2**63 // 10**6


class RowPartitioner:
    """Sends one task's rows to the fragments of their partitions.

    A row goes to its `partition`, else to the partition of its key as in Kafka's producers
    (murmur2). Rows with neither go round-robin, starting at the partition of the task's number.
    """

    def __init__(self, writer: FragmentWriter, options: SinkOptions, data_dir: str,
                 task: int) -> None:
        self._writer, self._options, self._data_dir = writer, options, data_dir
        self._turn = task
        self._gathered: dict[TopicPartition, list[_Piece]] = {}
        self._bytes: dict[TopicPartition, int] = {}
        #: The number of partitions by topic.
        self.counts: dict[str, int] = {}

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Writes all rows. Raises ValueError or IllegalArgumentError for an invalid record."""
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            for topic, rows in self._by_topic(batch):
                self._add(topic, rows)
            size += batch.nbytes
            if size > _GATHER_ALL_BYTES:  # A few rows can keep a whole batch in memory.
                self._flush_all()
                size = 0
        self._flush_all()

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ValueError("null topic present in the data. Use the topic option for setting a "
                             "default topic.")
        names = pc.unique(topics)
        for name in names:
            yield name.as_py(), (batch if len(names) == 1
                                 else batch.filter(pc.equal(topics, name)))

    def _add(self, topic: str, rows: pa.RecordBatch) -> None:
        count = self.counts.get(topic)
        if count is None:
            count = self.counts[topic] = partition_count(self._data_dir, topic,
                                                         self._options.num_partitions)
        chosen = self._choose(topic, rows, count)
        records = _records(rows)
        table, row_bytes = records.__arrow_c_array__(), records.nbytes / len(chosen)
        # numpy sorts small numbers by their digits.
        order = np.argsort(chosen.astype(np.uint16) if count <= 1 << 16 else chosen,
                           kind="stable").astype(np.int32)
        start = 0
        for number, size in enumerate(np.bincount(chosen, minlength=count).tolist()):
            if size:
                self._gather(TopicPartition(topic, number), (table, order[start:start + size]),
                             int(size * row_bytes))
                start += size

    def _choose(self, topic: str, rows: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        names = rows.schema.names
        chosen: npt.NDArray[np.int32] = np.full(rows.num_rows, -1, np.int32)
        if "key" in names:
            chosen = partitions(rows.column("key"), count)
        if "partition" in names:
            column = rows.column("partition")
            wanted = column.fill_null(-1).to_numpy(zero_copy_only=False)
            is_given = column.is_valid().to_numpy(zero_copy_only=False)
            wrong = wanted[is_given & ((wanted < 0) | (wanted >= count))]
            if len(wrong):
                raise IllegalArgumentError(
                    f"Invalid partition given with record: {wrong[0]} is not in the range "
                    f"[0...{count}) of topic {topic}.")
            chosen = np.where(is_given, wanted, chosen)
        free = np.flatnonzero(chosen < 0)
        chosen[free] = (self._turn + np.arange(len(free))) % count
        self._turn += len(free)
        return chosen

    def _gather(self, key: TopicPartition, piece: _Piece, size: int) -> None:
        self._gathered.setdefault(key, []).append(piece)
        self._bytes[key] = self._bytes.get(key, 0) + size
        if self._bytes[key] > _GATHER_BYTES:
            self._flush(key)

    def _flush_all(self) -> None:
        for key in list(self._gathered):
            self._flush(key)

    def _flush(self, key: TopicPartition) -> None:
        pieces = self._gathered.pop(key)
        del self._bytes[key]
        self._writer.append(key, SelectedRows(pieces))


def _records(rows: pa.RecordBatch) -> pa.RecordBatch:
    names = [name for name in _RECORD if name in rows.schema.names]
    columns: list[Any] = [rows.column(name) for name in names]
    if "timestamp" in names:
        at = names.index("timestamp")
        if pa.types.is_floating(columns[at].type):
            columns[at] = _timestamps(columns[at])
    return pa.RecordBatch.from_arrays(columns, names)


def _timestamps(seconds: pa.Array) -> pa.Array:
    """As Spark's cast to a timestamp. Raises IllegalArgumentError."""
    wrong = pc.index(pc.less(pc.abs(seconds), _SECONDS_MAX), False).as_py()
    if wrong >= 0:
        raise IllegalArgumentError(f"Invalid timestamp {seconds[wrong].as_py()}: expected seconds "
                                   f"since 1970, below {_SECONDS_MAX}")
    return pc.floor(pc.multiply(seconds, 1e6)).cast(pa.int64()).cast(pa.timestamp("us"))
