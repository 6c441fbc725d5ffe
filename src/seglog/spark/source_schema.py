"""The columns of `format("seglog")`: the names, order and types of Spark's own Kafka source.

The decoder writes them in the layout "spark" (csrc/include/seglog/columns.h), which has the Arrow
types that Spark requires for this schema.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType,
    TimestampType,
)

from seglog.spark.read_options import ReadOptions

__all__ = ["HEADERS", "check_schema", "record_schema", "spark_schema"]

HEADERS = ArrayType(StructType([StructField("key", StringType()),
                                StructField("value", BinaryType())]))
_SPARK: dict[str, DataType] = {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType(),
    "offset": LongType(), "timestamp": TimestampType(), "timestampType": IntegerType(),
    "headers": HEADERS,
}


def record_schema(names: Sequence[str]) -> StructType:
    """The schema of some of the columns, in this order."""
    return StructType([StructField(name, _SPARK[name]) for name in names])


def spark_schema(options: ReadOptions) -> StructType:
    """The schema of a query: all of Kafka's columns (headers only with includeHeaders), or those of
    the `columns` option. Raises ValueError for an unknown column."""
    names = options.columns
    if names is None:
        names = tuple(name for name in _SPARK if name != "headers" or options.include_headers)
    for name in names:
        if name not in _SPARK:
            raise ValueError(f"Option 'columns': no column '{name}'; there are "
                             f"{', '.join(_SPARK)}.")
    if len(set(names)) != len(names):
        raise ValueError("Option 'columns' names a column twice.")
    return record_schema(names)


def check_schema(schema: StructType) -> tuple[str, ...]:
    """The column names of a schema that the user may have given. Raises ValueError for a wrong
    type."""
    for field in schema.fields:
        if _SPARK.get(field.name) != field.dataType:
            raise ValueError(f"format('seglog') has no column '{field.name}' of type "
                             f"{field.dataType.simpleString()}; its columns are "
                             + ", ".join(f"{n} {t.simpleString()}" for n, t in _SPARK.items()))
        if not field.nullable:
            raise ValueError(f"Column '{field.name}' must be nullable.")
    return tuple(schema.fieldNames())
