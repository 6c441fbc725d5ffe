"""Kafka's hash, partitioner, checksum and record batches as functions on columns.

For Python (`functions.kafka_partition(df.key, 6)`) and, after `register_functions(spark)`, for SQL
(`SELECT kafka_partition(key, 6)`). They are Arrow UDFs from PySpark 4.1 on and pandas UDFs before,
and work on whole columns in C. A null gives a null.
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

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = ["crc32c", "decode_batches", "encode_batches", "is_valid_batch", "kafka_partition",
           "murmur2", "register_functions"]

_Function = Callable[..., Any]
_INT_MAX: Final = 0x7FFFFFFF


# ---- on whole columns, on the executors --------------------------------------------------------

def _bytes(column: Any) -> Any:
    """A column of nulls alone has a type of its own."""
    return column.cast(pa.binary()) if pa.types.is_null(column.type) else column


def _murmur2(data: pa.Array) -> pa.Array:
    return pa.array(murmur2_column(_bytes(data)), mask=_nulls(data))


def _kafka_partition(key: pa.Array, partitions: pa.Array) -> pa.Array:
    count = partitions.fill_null(1).to_numpy(zero_copy_only=False)
    if len(count) and count.min() < 1:
        raise ValueError(f"kafka_partition: {count.min()} partitions, at least 1 is needed")
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

def _as_udf(over: Callable[..., Any], name: str, returns: DataType) -> _Function:
    """A UDF over Arrow arrays: an Arrow UDF, or a pandas UDF before PySpark 4.1."""
    over.__name__ = name
    if hasattr(spark_functions, "arrow_udf"):
        udf: _Function = spark_functions.arrow_udf(over, returns)
        return udf
    pandas_udf: Callable[..., _Function] = getattr(spark_functions, "pandas_udf")  # noqa: B009
    return pandas_udf(_over_pandas(over), returns)


def _over_pandas(over: Callable[..., Any]) -> Callable[..., Any]:
    """The same over pandas.Series of one or two arguments."""
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
    """Made at its first use: PySpark wants pandas for it."""
    over, returns = _COLUMN_FUNCTIONS[name]
    return _as_udf(over, name, returns)


def murmur2(data: Column | str) -> Column:
    """The signed 32-bit hash of bytes or of text as UTF-8 (Kafka: Utils.murmur2)."""
    return _udf("murmur2")(data)  # type: ignore[no-any-return]


def kafka_partition(key: Column | str, partitions: Column | int) -> Column:
    """The partition to which Kafka's producers send a key, among `partitions` (a number or a
    column of numbers): BuiltInPartitioner.partitionForKey.

    Null for a null key, which producers spread over the partitions as they like. The query fails
    for less than one partition.
    """
    count = spark_functions.lit(partitions) if isinstance(partitions, int) else partitions
    return _udf("kafka_partition")(key, count)  # type: ignore[no-any-return]


def crc32c(data: Column | str) -> Column:
    """The CRC-32C (Castagnoli) of bytes or of text as UTF-8: 0 to 2**32 - 1, a long."""
    return _udf("crc32c")(data)  # type: ignore[no-any-return]


def is_valid_batch(data: Column | str) -> Column:
    """Whether bytes are exactly one record batch whose length and CRC are right.

    A message of the old formats 0 and 1 counts too. False for any other bytes, which never fail
    the query (Kafka: DefaultRecordBatch.isValid).
    """
    return _udf("is_valid_batch")(data)  # type: ignore[no-any-return]


# ---- record batches to rows --------------------------------------------------------------------

def decode_batches(frame: DataFrame, column: str = "content", *, mode: Mode = "FAILFAST",
                   keep: Sequence[str] = ()) -> DataFrame:
    """The records of a binary column of `frame` whose values are whole record batches, such as
    chunks of log files or the `content` of `spark.read.format("binaryFile")`.

    One row a record: `key`, `value`, `offset`, `timestamp`, `timestampType` and `headers` as in
    `format("seglog")`, after the columns `keep` of the row that held it. Control records are no
    rows; transactions are not looked at. A null gives no rows.

    Bytes that are no sound batch, a torn one at the end included, fail the query with FAILFAST;
    DROPMALFORMED leaves them out; PERMISSIVE gives them as a row whose `_corrupt_record` (binary,
    null for a record) holds them. Zeros at the end of a preallocated segment are passed over.
    Raises ValueError for another mode and for a column that is not there or not binary.
    """
    check_columns(frame.schema, column, keep)
    decode = Decoding(column, check_mode(mode), tuple(keep))
    return frame.select(column, *keep).mapInArrow(decode, decode.schema(frame.schema))


def encode_batches(frame: DataFrame, *, codec: str = "none", level: int | None = None,
                   max_batch_bytes: int = MAX_BATCH_BYTES_DEFAULT) -> DataFrame:
    """The rows of `frame` as record batches: one row a batch, `batch` (binary) and `record_count`.

    Records have the columns `key`, `value`, `timestamp` and `headers` of `frame` as far as it has
    them; the others are left out. `codec` is none, gzip, snappy, lz4 or zstd. Rows of one Spark
    partition are encoded in their order, and a batch ends before the record that would take it
    over `max_batch_bytes` before compression. Each begins at offset 0, as producers send them.

    Raises ValueError without a column `key` or `value`; the query fails with IllegalArgumentError
    for what Kafka refuses in a record.
    """
    return frame.select(*record_columns(frame.columns)).mapInArrow(
        Encoding(codec, level, max_batch_bytes), BATCH_SCHEMA)


def register_functions(spark: SparkSession) -> None:
    """Makes the functions known to the SQL of a session: `murmur2`, `kafka_partition`, `crc32c`,
    `is_valid_batch`, and the table functions `decode_batches(TABLE(chunks) [, mode])`,
    `encode_batches(TABLE(records) [, codec])` and, by rows and so slower,
    `decode_batches_of(content [, mode])` for LATERAL, which Spark refuses to Arrow UDTFs."""
    for name in _COLUMN_FUNCTIONS:
        spark.udf.register(name, _udf(name))
    spark.udtf.register("decode_batches", decoding.table_function())
    spark.udtf.register("decode_batches_of", decoding.lateral_function())
    spark.udtf.register("encode_batches", encoding_rows.table_function())
