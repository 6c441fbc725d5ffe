"""The options and columns of `df.write.format("seglog")`, checked once on the driver.

Columns, their types and errors are those of Spark's own Kafka sink (KafkaWriter: validateQuery).
Producer and topic options keep Kafka's spelling, with or without Spark's `kafka.` prefix; options
for a client are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, DoubleType, IntegerType, StringType, StructType, TimestampType,
)

from seglog.spark.source_schema import HEADERS
from seglog.storage.codecs import CODEC_NAMES

__all__ = ["SinkOptions", "check_columns", "parse_sink_options"]

_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),), "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()), "headers": (HEADERS,), "partition": (IntegerType(),),
    "timestamp": (DoubleType(), TimestampType()),
}
_INT_MAX: Final = 2**31 - 1
_SEGMENT_BYTES_MIN: Final = 14  # Kafka's minimum of segment.bytes


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write. Sizes are in bytes."""

    path: str
    topic: str | None = None
    num_partitions: int | None = None
    codec: str = "none"
    batch_bytes: int = 65536
    segment_bytes: int = 1 << 30
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1048588


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parses the options of a write (case-insensitive names). Raises ValueError."""
    given = {name.lower().removeprefix("kafka."): value for name, value in options.items()}
    path = given.get("path", "").strip()
    if not path:
        raise ValueError("format('seglog') writes to a path: one Kafka data directory, as in "
                         ".save('/var/lib/kafka').")
    codec = given.get("compression.type", "none").strip().lower()
    codec = {"uncompressed": "none", "producer": "none"}.get(codec, codec)
    if codec not in CODEC_NAMES:
        raise ValueError(f"Option 'compression.type' must be one of {', '.join(CODEC_NAMES)}, "
                         f"got '{codec}'.")
    default = SinkOptions(path)
    return SinkOptions(
        path, given.get("topic"), _number(given, "num.partitions", None, 1), codec,
        _number(given, "batch.size", default.batch_bytes, 1) or default.batch_bytes,
        _number(given, "segment.bytes", default.segment_bytes, _SEGMENT_BYTES_MIN)
        or default.segment_bytes,
        _number(given, "index.interval.bytes", default.index_interval_bytes, 0) or 0,
        _number(given, "max.message.bytes", default.max_message_bytes, 0) or 0)


def _number(given: Mapping[str, str], name: str, default: int | None, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text.strip(), re.ASCII) \
            or not least <= int(text) <= _INT_MAX:
        raise ValueError(f"Option '{name}' must be a number from {least} to {_INT_MAX}, "
                         f"got '{text}'.")
    return int(text)


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raises ValueError, with the message of Spark's Kafka sink, for missing or bad columns.

    Ignores unknown columns.
    """
    types = {field.name: field.dataType for field in schema.fields}
    if topic is None and "topic" not in types:
        raise ValueError("topic option required when no 'topic' attribute is present. Use the "
                         "topic option for setting a topic.")
    if "value" not in types:
        raise ValueError("Required attribute 'value' not found")
    for name, wanted in _TYPES.items():
        if name not in types or (name == "topic" and topic is not None):
            continue
        if not any(_same(types[name], one) for one in wanted):
            raise ValueError(f"{name} attribute unsupported type {types[name].simpleString()}. "
                             f"{name} must be a(n) "
                             f"{' or '.join(one.simpleString() for one in wanted)}")


def _same(found: DataType, wanted: DataType) -> bool:
    """Whether types are equal except for nullability (DataTypeUtils.sameType)."""
    if isinstance(wanted, ArrayType):
        return isinstance(found, ArrayType) and _same(found.elementType, wanted.elementType)
    if isinstance(wanted, StructType):
        return isinstance(found, StructType) and len(found) == len(wanted) and all(
            one.name == other.name and _same(one.dataType, other.dataType)
            for one, other in zip(found, wanted, strict=True))
    return type(found) is type(wanted)
