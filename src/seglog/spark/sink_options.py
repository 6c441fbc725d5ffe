"""The options and columns of `df.write.format("seglog")`, checked once on the driver.

Columns, their types and errors are those of Spark's own Kafka sink (KafkaWriter: validateQuery).
Producer and topic options keep Kafka's spelling, with or without Spark's `kafka.` prefix; options
for a client are ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, DoubleType, IntegerType, StringType, StructType, TimestampType,
)

from seglog.config import LogConfig
from seglog.spark.locations import local_directory
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
#: A broker creates at most 10,000 at once (ReplicationControlManager); each is a directory.
_PARTITIONS_MAX: Final = 1_000_000
_NAMES: Final = ("path", "topic", "num.partitions", "compression.type", "batch.size",
                 "segment.bytes", "index.interval.bytes", "max.message.bytes")
#: Kafka's topic settings. One that a write does not take is ignored, however near its name is.
_OF_TOPICS: Final = frozenset(field.name.replace("_", ".") for field in fields(LogConfig))
_NEAR: Final = 0.8


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
    """Parses the options of a write (case-insensitive names). Raises ValueError, also for a name
    that nearly is one of them."""
    given = {name.lower().removeprefix("kafka."): value for name, value in options.items()}
    _check_names(given)
    path = given.get("path", "").strip()
    if not path:
        raise ValueError("format('seglog') writes to a path: one Kafka data directory, as in "
                         ".save('/var/lib/kafka').")
    codec = given.get("compression.type", "none").strip().lower()
    codec = {"uncompressed": "none", "producer": "none"}.get(codec, codec)
    if codec not in CODEC_NAMES:
        raise ValueError(f"Option 'compression.type' must be one of {', '.join(CODEC_NAMES)}, "
                         f"got '{codec}'.")
    default, topic = SinkOptions(path), given.get("topic")
    return SinkOptions(
        local_directory(path), None if topic is None else topic.strip(),
        _number(given, "num.partitions", None, 1, _PARTITIONS_MAX), codec,
        _number(given, "batch.size", default.batch_bytes, 1) or default.batch_bytes,
        _number(given, "segment.bytes", default.segment_bytes, _SEGMENT_BYTES_MIN)
        or default.segment_bytes,
        _number(given, "index.interval.bytes", default.index_interval_bytes, 0) or 0,
        _number(given, "max.message.bytes", default.max_message_bytes, 0) or 0)


def _check_names(given: Iterable[str]) -> None:
    for name in given:
        near = difflib.get_close_matches(name, _NAMES, 1, _NEAR)
        if near and near[0] != name and name not in _OF_TOPICS:
            raise ValueError(f"Option '{name}' is unknown; did you mean '{near[0]}'?")


def _number(given: Mapping[str, str], name: str, default: int | None, least: int,
            most: int = _INT_MAX) -> int | None:
    text = given.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\d{1,10}", text.strip(), re.ASCII) \
            or not least <= int(text) <= most:
        raise ValueError(f"Option '{name}' must be a number from {least} to {most}, "
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
