"""The batch and stream writers: tasks write fragments, the driver commits or deletes them.

Spark completes `write()` before it decides which attempt of a task counts, and a task's abort is a
no-op. So the effects of `write()` must stay invisible: `commit` publishes the attempts that Spark
reports in one step, and deletes every other fragment of the job.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from seglog.fragments import Fragment, FragmentWriter, Job, StreamBatch, check_target, publish
from seglog.spark.executors import CheckedOnArrival
from seglog.spark.failures import in_one_sentence
from seglog.spark.locations import require_seen
from seglog.spark.sink_options import check_columns, parse_sink_options
from seglog.spark.sink_task import RowPartitioner

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter as _StreamWriter
else:
    # Stream writers get Arrow batches since PySpark 4.1, rows before.
    _StreamWriter = getattr(datasource, "DataSourceStreamArrowWriter",
                            datasource.DataSourceStreamWriter)

__all__ = ["SeglogStreamWriter", "SeglogWriter"]

_log = logging.getLogger("seglog.spark")
_ROWS: Final = 10000
_QUERY_ID = "sql.streaming.queryId"


@dataclass
class _TaskMessage(WriterCommitMessage):
    """The fragments that one task attempt wrote."""

    job: Job
    fragments: list[Fragment]
    counts: dict[str, int]
    query_id: str | None


class _Sink(CheckedOnArrival):
    """One write: made on the driver, copied to every task, and used again for the commit. Raises
    ValueError for bad options and columns, KafkaStorageError and LogDirLockedError for the target.
    """

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ValueError("format('seglog') only appends to logs: use .mode('append'), or for a "
                             "streaming query .outputMode('append') or 'update'")
        self.options, self.schema = parse_sink_options(options), schema
        check_columns(schema, self.options.topic)
        self.job = Job.begin(check_target(self.options.path), _driver_pid())

    @in_one_sentence
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on an executor. After any failure, no file of this attempt remains."""
        require_seen(self.job.path("job"), "or this job has ended")
        context = TaskContext.get()
        assert context is not None
        options = self.options
        with FragmentWriter(self.job, str(context.taskAttemptId()), codec=options.codec,
                            max_batch_bytes=options.batch_bytes,
                            segment_bytes=options.segment_bytes,
                            max_message_bytes=options.max_message_bytes) as writer:
            rows = RowPartitioner(writer, options, self.job.data_dir, context.partitionId())
            rows.write(iterator)
            return _TaskMessage(self.job, writer.finish(), rows.counts,
                                context.getLocalProperty(_QUERY_ID))

    @in_one_sentence
    def commit(self, messages: list[WriterCommitMessage | None],
               batchId: int | None = None) -> None:
        """Runs on the driver: publishes the fragments of the messages, in task order, or raises and
        publishes none. Publishes a micro-batch once."""
        told = [one for one in messages if isinstance(one, _TaskMessage)]
        try:
            if not told:
                return
            counts: dict[str, int] = {}
            for one in told:
                for topic, count in one.counts.items():
                    if counts.setdefault(topic, count) != count:
                        raise ValueError(
                            f"topic {topic} was made by another job while this one ran: run it "
                            "again")
            stream = None
            if batchId is not None:
                query = next((one.query_id for one in told if one.query_id), None)
                if query is None:
                    raise ValueError("Spark does not tell tasks the id of their streaming query")
                stream = StreamBatch(query, batchId)
            offsets = publish(
                told[0].job, [each for one in told for each in one.fragments], counts,
                new_partitions=self.options.num_partitions,
                segment_bytes=self.options.segment_bytes,
                index_interval_bytes=self.options.index_interval_bytes, stream=stream)
            for key, (first, end) in offsets.items():
                _log.info("%s: offsets %d to %d", key, first, end)
        finally:
            self.job.end()

    def abort(self, messages: list[WriterCommitMessage | None],
              batchId: int | None = None) -> None:
        """Runs on the driver: deletes everything written."""
        for job in {self.job, *(one.job for one in messages if isinstance(one, _TaskMessage))}:
            job.end()


class SeglogWriter(_Sink, DataSourceArrowWriter):
    """`df.write.format("seglog")` with KafkaWriter's columns and checks."""


class SeglogStreamWriter(_Sink, _StreamWriter):
    """`df.writeStream.format("seglog")`: commits each micro-batch once, even if Spark repeats it.
    """

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Runs one task of a micro-batch on an executor; takes rows before PySpark 4.1."""
        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            iterator = _to_arrow(iterator, self.schema)
        return super().write(iterator)


def _driver_pid() -> int:
    """The pid of the JVM that started this process, directly or through PySpark's daemon."""
    parent = os.getppid()
    with contextlib.suppress(OSError):
        with open(f"/proc/{parent}/cmdline", "rb") as stream:
            is_daemon = b"pyspark.daemon" in stream.read()
        if is_daemon:
            with open(f"/proc/{parent}/stat", "rb") as stream:
                return int(stream.read().rpartition(b")")[2].split()[1])
    return parent


def _to_arrow(rows: Iterator[Any], schema: StructType) -> Iterator[pa.RecordBatch]:
    arrow = to_arrow_schema(schema)
    while some := list(islice(rows, _ROWS)):
        yield pa.RecordBatch.from_arrays(
            [_column([row[number] for row in some], field.type)
             for number, field in enumerate(arrow)], schema=arrow)


def _column(cells: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # PySpark's rows hold local time without a zone, which pyarrow takes for UTC. Of an hour
        # that comes twice, they do not tell which one it is.
        cells = [None if cell is None else cell.astimezone(UTC) for cell in cells]
    return pa.array(cells, kind)
