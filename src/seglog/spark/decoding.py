"""Decodes record batches in a binary column to rows: for `mapInArrow`, and as a table function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import pyarrow as pa
from pyspark.sql import functions as spark_functions
from pyspark.sql.types import BinaryType, Row, StructField, StructType

from seglog.arrow.batch_bytes import BadBytes, decode_chunk
from seglog.spark.source_schema import record_schema
from seglog.storage.stream import DecodeOptions

__all__ = ["Decoding", "Mode", "check_columns", "check_mode", "lateral_function",
           "table_function"]

Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
"""How to treat bytes that are not a valid batch, under the names of Spark's own readers."""

COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
CORRUPT: Final = "_corrupt_record"


def check_mode(mode: str) -> Mode:
    """The mode of this name, in upper or lower case. Raises ValueError for an unknown name."""
    for known in get_args(Mode):
        if str(mode).upper() == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"mode is FAILFAST, DROPMALFORMED or PERMISSIVE, not {mode!r}")


def check_columns(schema: StructType, column: str, keep: Sequence[str]) -> None:
    """Raises ValueError unless `column` is binary, all `keep` columns exist, and no name clashes.
    """
    types = {field.name: field.dataType for field in schema.fields}
    for name in (column, *keep):
        if name not in types:
            raise ValueError(f"decode_batches: no column '{name}'; there are {', '.join(types)}")
    if types[column] != BinaryType():
        raise ValueError(f"decode_batches: column '{column}' must be binary, not "
                         f"{types[column].simpleString()}")
    for name in keep:
        if name in (*COLUMNS, CORRUPT) or list(keep).count(name) > 1:
            raise ValueError(f"decode_batches: two columns of the result would be named '{name}': "
                             "rename the kept column")


def _record_fields(mode: Mode) -> list[StructField]:
    """The columns of a record, and with PERMISSIVE the column of bad bytes."""
    fields = record_schema(COLUMNS).fields
    return [*fields, StructField(CORRUPT, BinaryType())] if mode == "PERMISSIVE" else fields


@dataclass(frozen=True, slots=True)
class Decoding:
    """A picklable function for `mapInArrow` that turns batches with `column` and `keep` into rows.
    """

    column: str
    mode: Mode
    keep: tuple[str, ...] = ()

    def schema(self, source: StructType) -> StructType:
        """The schema of the rows; `source` is the schema of the decoded frame."""
        return StructType([source[name] for name in self.keep] + _record_fields(self.mode))

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of all batches."""
        for batch in batches:
            kept = [batch.column(name) for name in self.keep]
            for row, data in enumerate(batch.column(self.column)):
                if data.is_valid:
                    for rows in self.rows_of(data.as_buffer()):
                        yield self._with_kept(rows, [one[row] for one in kept])

    def _with_kept(self, rows: pa.RecordBatch, values: list[Any]) -> pa.RecordBatch:
        if not values:
            return rows
        arrays = [pa.repeat(value, rows.num_rows) for value in values]
        return pa.RecordBatch.from_arrays(
            [*arrays, *rows.columns], names=[*self.keep, *rows.schema.names])

    def rows_of(self, data: Any) -> Iterator[pa.RecordBatch]:
        """The rows of the batches in a bytes-like object. FAILFAST raises CorruptDataError."""
        bad: list[BadBytes] = []
        options = DecodeOptions(columns=COLUMNS, layout="spark", batch_rows=65536)
        for columns in decode_chunk(data, options, name="decode_batches",
                                    on_bad=None if self.mode == "FAILFAST" else bad.append):
            rows = pa.record_batch(columns)
            yield from self._corrupt(data, bad, rows.schema)
            yield self._sound(rows)
        if bad and self.mode == "PERMISSIVE":
            yield from self._corrupt(data, bad, None)

    def _sound(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self.mode != "PERMISSIVE":
            return rows
        return rows.append_column(CORRUPT, pa.nulls(rows.num_rows, pa.binary()))

    def _corrupt(self, data: Any, bad: list[BadBytes], schema: pa.Schema | None
                 ) -> Iterator[pa.RecordBatch]:
        """One row for each item of `bad`, which is then cleared."""
        if bad and self.mode == "PERMISSIVE":
            view = memoryview(data)
            found = [bytes(view[one.start:one.end]) for one in bad]
            types = schema or _empty_schema()
            yield pa.RecordBatch.from_arrays(
                [*(pa.nulls(len(found), field.type) for field in types),
                 pa.array(found, pa.binary())], names=[*types.names, CORRUPT])
        bad.clear()



def _empty_schema() -> pa.Schema:
    """The Arrow schema of record rows."""
    return pa.schema(pa.field(name, kind) for name, kind in zip(COLUMNS, (
        pa.binary(), pa.binary(), pa.int64(), pa.timestamp("us", "UTC"), pa.int32(),
        pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ), strict=True))


# ---- the table functions -----------------------------------------------------------------------

class _InArrow:
    """`decode_batches(TABLE(chunks) [, mode])` over Arrow batches (PySpark 4.1 on)."""

    def eval(self, chunks: Any, mode: pa.Array | None = None) -> Iterator[pa.Table]:
        """The rows of every value in the binary column of a table, or in an array."""
        column = chunks
        if isinstance(chunks, pa.RecordBatch):
            names = [field.name for field in chunks.schema if pa.types.is_binary(field.type)
                     or pa.types.is_large_binary(field.type)]
            column = chunks.column(_chosen(names))
        named = "FAILFAST" if mode is None or not len(mode) else mode[0].as_py()
        for data in column:
            if data.is_valid:
                for rows in _decoding(named).rows_of(data.as_buffer()):
                    yield pa.Table.from_batches([rows])


class _ByRow:
    """The same row by row: for PySpark 4.0, and for LATERAL, which Arrow UDTFs do not support."""

    def eval(self, chunk: Any, mode: str = "FAILFAST") -> Iterator[Row]:
        """The rows of one value, or of the binary column of one row."""
        if isinstance(chunk, Row):
            cells = chunk.asDict()
            names = [name for name, value in cells.items() if isinstance(value, bytes | bytearray)]
            is_null = cells.get("content", b"") is None  # another column's bytes are no batches
            chunk = chunk[_chosen(names)] if names and not is_null else None
        if chunk is not None:
            for rows in _decoding(mode).rows_of(chunk):
                for row in rows.to_pylist():
                    yield Row(**row)


def _chosen(names: Sequence[str]) -> str:
    """The column to decode: the only binary column, or the one named content."""
    if len(names) == 1:
        return names[0]
    if "content" in names:
        return "content"
    raise ValueError("decode_batches: a table with one binary column, or one named content, is "
                     f"needed; binary columns here: {', '.join(names) or 'none'}")


def _decoding(mode: str) -> Decoding:
    known = check_mode(mode)
    if known == "PERMISSIVE":
        raise ValueError("the table function decode_batches has no column for corrupt bytes: use "
                         "FAILFAST, DROPMALFORMED, or functions.decode_batches")
    return Decoding("", known)


def table_function() -> Any:
    """`decode_batches`, in the fastest form that this PySpark supports."""
    if hasattr(spark_functions, "arrow_udtf"):
        return spark_functions.arrow_udtf(_InArrow, returnType=record_schema(COLUMNS))
    return lateral_function()


def lateral_function() -> Any:
    """`decode_batches_of`, for use with LATERAL."""
    return spark_functions.udtf(_ByRow, returnType=record_schema(COLUMNS))
