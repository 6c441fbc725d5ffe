"""Encodes rows to record batches: for `mapInArrow`, and as a table function."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import functions as spark_functions
from pyspark.sql.types import BinaryType, IntegerType, Row, StructField, StructType

from seglog.encoding import MAX_BATCH_BYTES_DEFAULT, encode_spans

__all__ = ["BATCH_SCHEMA", "Encoding", "record_columns", "table_function"]

BATCH_SCHEMA: Final = StructType([StructField("batch", BinaryType()),
                                  StructField("record_count", IntegerType())])
_ARROW: Final = pa.schema([("batch", pa.binary()), ("record_count", pa.int32())])
_RECORD: Final = ("key", "value", "timestamp", "headers")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Position of the record count in a batch (DefaultRecordBatch.RECORDS_COUNT_OFFSET).
_COUNT_AT = 57
#: Approximate bytes of record batches in one Arrow batch of results.
_RESULT_BYTES = 16 << 20
_ROWS_PER_FLUSH = 10_000


def record_columns(names: Sequence[str]) -> list[str]:
    """The `names` that are record columns. Raises ValueError without a key or value."""
    chosen = [name for name in _RECORD if name in names]
    if not {"key", "value"} & set(chosen):
        raise ValueError("encode_batches: no column 'key' or 'value'; there are "
                         + ", ".join(names))
    return chosen


@dataclass(frozen=True, slots=True)
class Encoding:
    """A picklable function for `mapInArrow` that turns records into rows of BATCH_SCHEMA."""

    codec: str = "none"
    level: int | None = None
    max_batch_bytes: int = MAX_BATCH_BYTES_DEFAULT

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The record batches of all rows, in order."""
        remaining = iter(batches)
        first = next(remaining, None)
        if first is None:
            return
        source = pa.RecordBatchReader.from_batches(
            first.schema, itertools.chain([first], remaining))
        held: list[bytes] = []
        size = 0
        for encoded in self.spans(source):
            held.append(encoded)
            size += len(encoded)
            if size >= _RESULT_BYTES:
                yield to_rows(held)
                held, size = [], 0
        if held:
            yield to_rows(held)

    def spans(self, data: Any) -> Iterator[bytes]:
        """Yields one record batch at a time. Raises IllegalArgumentError for what Kafka refuses."""
        return encode_spans(data, codec=self.codec, level=self.level,
                            max_batch_bytes=self.max_batch_bytes, span_bytes=1)


def to_rows(batches: Sequence[bytes]) -> pa.RecordBatch:
    """The batches as rows of BATCH_SCHEMA."""
    counts = [int.from_bytes(one[_COUNT_AT:_COUNT_AT + 4], "big") for one in batches]
    return pa.RecordBatch.from_arrays([pa.array(batches, pa.binary()),
                                       pa.array(counts, pa.int32())], schema=_ARROW)


# ---- the table function ------------------------------------------------------------------------

class _InArrow:
    """`encode_batches(TABLE(records) [, codec])` over Arrow batches (PySpark 4.1 on)."""

    def eval(self, records: pa.RecordBatch, codec: pa.Array | None = None) -> Iterator[pa.Table]:
        """The record batches of one Arrow batch."""
        named = "none" if codec is None or not len(codec) else codec[0].as_py()
        chosen = records.select(record_columns(records.schema.names))
        encoded = list(Encoding(named).spans(chosen))
        if encoded:
            yield pa.Table.from_batches([to_rows(encoded)])


class _ByRow:
    """The same row by row, for PySpark 4.0."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, Any]] = []
        self._codec = "none"

    def eval(self, record: Row, codec: str = "none") -> Iterator[tuple[bytes, int]]:
        """Buffers a record; yields batches when they are full."""
        self._codec = codec
        self._rows.append(record.asDict())
        if len(self._rows) >= _ROWS_PER_FLUSH:
            yield from self._flush()

    def terminate(self) -> Iterator[tuple[bytes, int]]:
        """The batches of the last records."""
        if self._rows:
            yield from self._flush()

    def _flush(self) -> Iterator[tuple[bytes, int]]:
        names = record_columns(list(self._rows[0]))
        table = pa.table({name: _column(name, [row[name] for row in self._rows])
                          for name in names})
        self._rows = []
        rows = to_rows(list(Encoding(self._codec).spans(table)))
        yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _column(name: str, cells: list[Any]) -> pa.Array:
    if name == "headers":
        return pa.array(cells, _HEADERS)  # a Row is a tuple, of which no type follows
    if name == "timestamp":
        # PySpark's rows hold local time without a zone, which pyarrow takes for UTC.
        cells = [cell.astimezone(UTC) if isinstance(cell, datetime) else cell for cell in cells]
    return pa.array(cells)


def table_function() -> Any:
    """The table function, in the fastest form that this PySpark supports."""
    if hasattr(spark_functions, "arrow_udtf"):
        return spark_functions.arrow_udtf(_InArrow, returnType=BATCH_SCHEMA)
    return spark_functions.udtf(_ByRow, returnType=BATCH_SCHEMA)
