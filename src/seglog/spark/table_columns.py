"""The columns of tables: their types in Spark and Arrow, and rows as Arrow batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType, BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType,
    TimestampType,
)

__all__ = ["Columns", "alternate", "arrow_schema", "row_batches", "struct_type", "text_array"]

Columns = Sequence[tuple[str, str]]
"""Name and type of each column, in order."""

_TYPES: Final[Mapping[str, tuple[DataType, pa.DataType]]] = {
    "string": (StringType(), pa.string()),
    "int": (IntegerType(), pa.int32()),
    "long": (LongType(), pa.int64()),
    "boolean": (BooleanType(), pa.bool_()),
    "binary": (BinaryType(), pa.binary()),
    "timestamp": (TimestampType(), pa.timestamp("us", "UTC")),
}
_BATCH_ROWS = 65536

_T = TypeVar("_T")


def struct_type(columns: Columns) -> StructType:
    """The columns as Spark's schema; every column is nullable."""
    return StructType([StructField(name, _TYPES[kind][0]) for name, kind in columns])


def arrow_schema(columns: Columns) -> pa.Schema:
    """The columns as Arrow's schema, which equals `struct_type` as Spark requires."""
    return pa.schema([pa.field(name, _TYPES[kind][1]) for name, kind in columns])


def row_batches(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Arrow batches of rows, given as mappings by column name. Text may be invalid UTF-8."""
    remaining = iter(rows)
    while chunk := list(itertools.islice(remaining, _BATCH_ROWS)):
        yield pa.RecordBatch.from_arrays(
            [pa.array([_valid(row[field.name]) for row in chunk], field.type)
             for field in schema], schema=schema)


def text_array(values: Iterable[str | None]) -> pa.Array:
    """One column of text, which may be invalid UTF-8."""
    return pa.array(map(_valid, values), pa.string())


def _valid(value: Any) -> Any:
    """Text with invalid bytes, as in file names, shown as escapes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return value


def alternate(groups: Iterable[Iterable[_T]]) -> Iterator[_T]:
    """The first item of each group, then the second of each, and so on."""
    missing = object()
    for row in itertools.zip_longest(*groups, fillvalue=missing):
        yield from (one for one in row if one is not missing)  # type: ignore[misc]
