"""The columns of `format("seglog")`: Spark's own Kafka source's, by name, order and type.

`RowConverter` turns decoded columns into Arrow batches that equal the declared schema exactly, as
Spark demands: timestamps in microseconds, int32 where the log has int8, constant columns for
topic and partition, null instead of an empty list of headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType,
    TimestampType,
)

from seglog.model import TopicPartition
from seglog.spark.options import ReadOptions

__all__ = ["RowConverter", "check_schema", "spark_schema"]

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK: dict[str, DataType] = {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType(),
    "offset": LongType(), "timestamp": TimestampType(), "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
_HEADER_FIELDS = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
_ARROW: dict[str, pa.DataType] = {
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(),
    "offset": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS))),
}
_NATIVE = {"key": "key", "value": "value", "offset": "offset", "timestamp": "timestamp",
           "timestampType": "timestamp_type", "headers": "headers"}


def spark_schema(options: ReadOptions) -> StructType:
    """The schema that a query gets: all of Kafka's columns, headers only with includeHeaders, or
    just those of the `columns` option. ValueError for a column that does not exist."""
    names = options.columns
    if names is None:
        names = tuple(name for name in _SPARK if name != "headers" or options.include_headers)
    for name in names:
        if name not in _SPARK:
            raise ValueError(f"Option 'columns': no column '{name}'; there are "
                             f"{', '.join(_SPARK)}.")
    if len(set(names)) != len(names):
        raise ValueError("Option 'columns' names a column twice.")
    return StructType([StructField(name, _SPARK[name]) for name in names])


def check_schema(schema: StructType) -> tuple[str, ...]:
    """The column names of a schema that the user may have given; it must agree in every type."""
    for field in schema.fields:
        if _SPARK.get(field.name) != field.dataType:
            raise ValueError(f"format('seglog') has no column '{field.name}' of type "
                             f"{field.dataType.simpleString()}; its columns are "
                             + ", ".join(f"{n} {t.simpleString()}" for n, t in _SPARK.items()))
        if not field.nullable:
            raise ValueError(f"Column '{field.name}' must be nullable.")
    return tuple(schema.fieldNames())


class RowConverter:
    """Arrow batches of one partition in the declared schema. Not shared between threads."""

    def __init__(self, names: Sequence[str], tp: TopicPartition, batch_rows: int) -> None:
        self._names = tuple(names)
        self._tp = tp
        self._rows = batch_rows
        self._constants: dict[str, pa.Array] = {}
        self.schema = pa.schema([pa.field(name, _ARROW[name]) for name in names])

    @property
    def native_columns(self) -> tuple[str, ...]:
        """What the decoder has to decode for it; the offset when only constants are asked for."""
        return tuple(_NATIVE[name] for name in self._names if name in _NATIVE) or ("offset",)

    def convert(self, columns: Any) -> pa.RecordBatch:
        """One batch. `columns` has `__arrow_c_array__` and the native columns."""
        decoded = pa.record_batch(columns)
        return pa.RecordBatch.from_arrays(
            [self._column(name, decoded) for name in self._names], schema=self.schema)

    def _column(self, name: str, decoded: pa.RecordBatch) -> pa.Array:
        if name in ("topic", "partition"):
            return self._constant(name, decoded.num_rows)
        array = decoded.column(_NATIVE[name])
        if name == "headers":
            return _headers(array)
        return array if array.type == _ARROW[name] else array.cast(_ARROW[name])

    def _constant(self, name: str, rows: int) -> pa.Array:
        known = self._constants.get(name)
        if known is None or len(known) < rows:
            value = self._tp.topic if name == "topic" else self._tp.partition
            known = pa.repeat(pa.scalar(value, _ARROW[name]), max(rows, self._rows))
            self._constants[name] = known
        return known.slice(0, rows)


def _headers(array: pa.ListArray) -> pa.ListArray:
    entries = array.values
    struct = pa.StructArray.from_arrays([entries.field(0), entries.field(1)],
                                        fields=_HEADER_FIELDS)
    empty = pc.equal(pc.list_value_length(array), 0)
    return pa.ListArray.from_arrays(array.offsets, struct, type=_ARROW["headers"], mask=empty)
