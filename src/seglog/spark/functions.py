"""Kafka's hash, partitioner, checksum and record batches as functions on columns.

For Python (`functions.kafka_partition(df.key, 6)`) and, after `register_functions(spark)`, for SQL
(`SELECT kafka_partition(key, 6)`). They are Arrow UDFs since PySpark 4.1 and pandas UDFs before,
and process whole columns in C. Null input gives null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as spark_functions
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType

from seglog.arrow.checks import crc32c_column, murmur2_column, valid_batches
from seglog.encoding import MAX_BATCH_BYTES_DEFAULT
from seglog.spark import decoding, encoding_rows
from seglog.spark.decoding import Decoding, Mode, check_columns, check_mode
from seglog.spark.encoding_rows import BATCH_SCHEMA, Encoding, record_columns
from seglog.spark.failures import in_one_sentence

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["crc32c", "decode_batches", "encode_batches", "is_valid_batch", "kafka_partition",
           "murmur2", "register_functions"]

_Function = Callable[..., Any]
_INT_MAX: Final = 0x7FFFFFFF


# ---- on whole columns, on the executors --------------------------------------------------------

def _typed(column: Any, kind: pa.DataType) -> Any:
    """The column as `kind`, if it has only nulls and so Arrow's null type."""
    return column.cast(kind) if pa.types.is_null(column.type) else column


def _bytes(column: Any) -> Any:
    found = _typed(column, pa.binary())
    if not (pa.types.is_binary(found.type) or pa.types.is_string(found.type)
            or pa.types.is_large_binary(found.type) or pa.types.is_large_string(found.type)):
        raise ValueError(f"expected binary or string, found {found.type}: cast the column")
    return found


def _murmur2(data: pa.Array) -> pa.Array:
    return pa.array(murmur2_column(_bytes(data)), mask=_nulls(data))


def _kafka_partition(key: pa.Array, partitions: pa.Array) -> pa.Array:
    count = _typed(partitions, pa.int32()).fill_null(1).to_numpy(zero_copy_only=False)
    if len(count) and count.min() < 1:
        raise ValueError(f"kafka_partition: {count.min()} partitions, expected at least 1")
    # Kafka: BuiltInPartitioner.partitionForKey, Utils.toPositive
    hashed = murmur2_column(_bytes(key)) & _INT_MAX
    return pa.array((hashed % count).astype(np.int32), mask=_nulls(key) | _nulls(partitions))


def _crc32c(data: pa.Array) -> pa.Array:
    return pa.array(crc32c_column(_bytes(data)), mask=_nulls(data))


def _is_valid_batch(data: pa.Array) -> pa.Array:
    return pa.array(valid_batches(_bytes(data)) == 1, mask=_nulls(data))


def _nulls(column: Any) -> NDArray[np.bool_]:
    nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


# ---- as Spark's functions ----------------------------------------------------------------------

def _over_pandas(over: Callable[..., Any]) -> Callable[..., Any]:
    """The same function over one or two pandas.Series."""
    def of_one(first: Any) -> Any:
        return _to_series(over(pa.Array.from_pandas(first)))

    def of_two(first: Any, second: Any) -> Any:
        return _to_series(over(pa.Array.from_pandas(first), pa.Array.from_pandas(second)))

    wrapped = of_two if over.__code__.co_argcount == 2 else of_one
    names = ("first", "second")[:over.__code__.co_argcount]
    wrapped.__annotations__ = dict.fromkeys(
        (*names, "return"), import_module("pandas").Series)
    wrapped.__name__ = over.__name__
    return wrapped


def _to_series(column: pa.Array) -> Any:
    return column.to_pandas(integer_object_nulls=True)


_COLUMN_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], DataType]]] = {
    "murmur2": (_murmur2, IntegerType()), "kafka_partition": (_kafka_partition, IntegerType()),
    "crc32c": (_crc32c, LongType()), "is_valid_batch": (_is_valid_batch, BooleanType()),
}


@cache
def _udf(name: str) -> _Function:
    """The function over Arrow arrays: an Arrow UDF, or a pandas UDF before PySpark 4.1. Made on
    first use because PySpark requires pandas for it."""
    over, returns = _COLUMN_FUNCTIONS[name]
    over.__name__ = name
    if hasattr(spark_functions, "arrow_udf"):
        udf: _Function = spark_functions.arrow_udf(in_one_sentence(over), returns)
        return udf
    pandas_udf: Callable[..., _Function] = getattr(spark_functions, "pandas_udf")  # noqa: B009
    return pandas_udf(in_one_sentence(_over_pandas(over)), returns)


def murmur2(data: Column | str) -> Column:
    """The signed 32-bit hash of binary or UTF-8 text (Kafka: Utils.murmur2)."""
    return _udf("murmur2")(data)  # type: ignore[no-any-return]


def kafka_partition(key: Column | str, partitions: Column | int) -> Column:
    """The partition that Kafka's producers choose for a key among `partitions` (a number or a
    column of numbers): BuiltInPartitioner.partitionForKey.

    Null for a null key, for which producers may choose any partition. The query fails for fewer
    than one partition.
    """
    count = spark_functions.lit(partitions) if isinstance(partitions, int) else partitions
    return _udf("kafka_partition")(key, count)  # type: ignore[no-any-return]


def crc32c(data: Column | str) -> Column:
    """The CRC-32C (Castagnoli) of binary or UTF-8 text: 0 to 2**32 - 1, a long."""
    return _udf("crc32c")(data)  # type: ignore[no-any-return]


def is_valid_batch(data: Column | str) -> Column:
    """Whether bytes are exactly one record batch with correct length and CRC.

    A message of the old formats 0 and 1 also counts. Invalid bytes give false and never fail the
    query (Kafka: DefaultRecordBatch.isValid).
    """
    return _udf("is_valid_batch")(data)  # type: ignore[no-any-return]


# ---- record batches to rows --------------------------------------------------------------------

def decode_batches(frame: DataFrame, column: str = "content", *, mode: Mode = "FAILFAST",
                   keep: Sequence[str] = ()) -> DataFrame:
    """Decodes a binary column of `frame` whose values are whole record batches, such as chunks of
    log files or the `content` of `spark.read.format("binaryFile")`.

    Returns one row a record: the columns `keep` of its source row, then `key`, `value`, `offset`,
    `timestamp`, `timestampType` and `headers` as in `format("seglog")`. Omits control records and
    ignores transactions. A null gives no rows.

    On bytes that are not a valid batch, including a torn last batch, FAILFAST fails the query,
    DROPMALFORMED drops them, and PERMISSIVE returns them in the `_corrupt_record` column (binary,
    null for a record) of an extra row. Zeros at the end of a preallocated segment are skipped.
    Raises ValueError for an unknown mode and for a column that is missing or not binary.
    """
    check_columns(frame.schema, column, keep)
    decode = Decoding(column, check_mode(mode), tuple(keep))
    return frame.select(*dict.fromkeys((column, *keep))).mapInArrow(
        decode, decode.schema(frame.schema))


def encode_batches(frame: DataFrame, *, codec: str = "none", level: int | None = None,
                   max_batch_bytes: int = MAX_BATCH_BYTES_DEFAULT) -> DataFrame:
    """Encodes the rows of `frame`: one row a batch, with `batch` (binary) and `record_count`.

    Uses the columns `key`, `value`, `timestamp` and `headers` that `frame` has and ignores all
    others. `codec` is none, gzip, snappy, lz4 or zstd. The rows of a Spark partition keep their
    order. A batch ends before the record that would exceed `max_batch_bytes` before compression.
    Each batch starts at offset 0, as from a producer.

    Raises ValueError without a column `key` or `value`; the query fails with IllegalArgumentError
    for a record that Kafka refuses.
    """
    return frame.select(*record_columns(frame.columns)).mapInArrow(
        Encoding(codec, level, max_batch_bytes), BATCH_SCHEMA)


def register_functions(spark: SparkSession) -> None:
    """Registers the functions for a session's SQL: `murmur2`, `kafka_partition`, `crc32c`,
    `is_valid_batch`, and the table functions `decode_batches(TABLE(chunks) [, mode])`,
    `encode_batches(TABLE(records) [, codec])` and `decode_batches_of(content [, mode])`. The last
    is for LATERAL, which Arrow UDTFs do not support; it works row by row and is slower."""
    for name in _COLUMN_FUNCTIONS:
        spark.udf.register(name, _udf(name))
    spark.udtf.register("decode_batches", decoding.table_function())
    spark.udtf.register("decode_batches_of", decoding.lateral_function())
    spark.udtf.register("encode_batches", encoding_rows.table_function())
