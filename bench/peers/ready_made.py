"""The upper limit of a Python data source: ready-made Arrow batches in Kafka's schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from seglog.spark.read_options import parse_options
from seglog.spark.source_schema import spark_schema

BATCH_ROWS, VALUE_BYTES = 65536, 100


class ReadyMade(DataSource):
    """A source of `rows` rows in `tasks` tasks that reads and decodes nothing."""

    @classmethod
    def name(cls) -> str:
        return "ready_made"

    def schema(self) -> StructType:
        return spark_schema(parse_options({"path": "/", **{
            name: value for name, value in self.options.items() if name == "columns"}}))

    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyMadeReader(int(self.options["rows"]), int(self.options["tasks"]),
                               schema.names)


class ReadyMadeReader(DataSourceReader):
    """Yields one batch repeatedly, at the end a slice of it."""

    def __init__(self, rows: int, tasks: int, columns: list[str]) -> None:
        self._rows, self._tasks, self._columns = rows, tasks, columns

    def partitions(self) -> Sequence[InputPartition]:
        bounds = [self._rows * n // self._tasks for n in range(self._tasks + 1)]
        return [InputPartition(end - start)
                for start, end in zip(bounds[:-1], bounds[1:], strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch, left = make_batch().select(self._columns), partition.value
        while left > 0:
            yield batch if left >= BATCH_ROWS else batch.slice(0, left)
            left -= BATCH_ROWS


def make_batch() -> pa.RecordBatch:
    """65,536 rows of 100 B values, as format("seglog") returns them."""
    rows = BATCH_ROWS
    values = pa.Array.from_buffers(pa.binary(), rows, [
        None, pa.py_buffer(np.arange(rows + 1, dtype=np.int32) * VALUE_BYTES),
        pa.py_buffer(bytes(b"v" * (rows * VALUE_BYTES)))])
    return pa.record_batch({
        "key": pa.nulls(rows, pa.binary()), "value": values,
        "topic": pa.array(["bench"] * rows), "partition": pa.array(np.zeros(rows, np.int32)),
        "offset": pa.array(np.arange(rows)),
        "timestamp": pa.array(np.arange(rows), pa.timestamp("us", "UTC")),
        "timestampType": pa.array(np.zeros(rows, np.int32))})
