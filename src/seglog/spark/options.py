"""The options of `spark.read.format("seglog")`, parsed and validated once.

Names, values and precedence are those of Spark's own Kafka source (the "Structured Streaming +
Kafka Integration Guide", batch queries), so that a query moves from `format("kafka")` to
`format("seglog")` by changing the format and giving a path. Options that only mean something to a
Kafka client (`kafka.bootstrap.servers`, `kafkaConsumer.*`, ...) are accepted and ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seglog.model import TopicPartition
from seglog.storage.isolation import Isolation

__all__ = ["EARLIEST", "LATEST", "OffsetBound", "ReadOptions", "parse_options"]

LATEST = -1
"""Kafka's special offset "the log end", as in Spark's offset JSON."""
EARLIEST = -2
"""Kafka's special offset "the log start", as in Spark's offset JSON."""

_SPLIT_BYTES = 128 << 20  # Spark's own spark.sql.files.maxPartitionBytes
_STRATEGIES = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where to start or end: exactly one of the three is set.

    `special` is EARLIEST or LATEST for every partition, `offsets` has one offset (or special) a
    partition, `timestamps` one timestamp in ms a partition or, under None, for all of them.
    """

    special: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps: Mapping[TopicPartition | None, int] | None = None

    def partitions(self) -> set[TopicPartition] | None:
        """The partitions that it names, None when it speaks of all."""
        named: Mapping[Any, int] | None = self.offsets or self.timestamps
        if named is None or None in named:
            return None
        return set(named)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a query asked for. Sizes in bytes."""

    paths: tuple[str, ...]
    assign: frozenset[TopicPartition] | None = None
    subscribe: frozenset[str] | None = None
    subscribe_pattern: str | None = None
    starting: OffsetBound = field(default_factory=lambda: OffsetBound(special=EARLIEST))
    ending: OffsetBound = field(default_factory=lambda: OffsetBound(special=LATEST))
    latest_when_no_timestamp: bool = False
    include_headers: bool = False
    columns: tuple[str, ...] | None = None
    min_partitions: int | None = None
    split_bytes: int = _SPLIT_BYTES
    batch_rows: int = 65536
    fail_on_data_loss: bool = True
    isolation: Isolation = "read_uncommitted"
    check_crcs: bool = True


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Options of a query (case-insensitive names) to `ReadOptions`.

    Raises ValueError, in the words of Spark's source, for a value or combination it refuses.
    """
    given = {name.lower(): value for name, value in options.items()}
    chosen = [name for name in _STRATEGIES if given.get(name) is not None]
    if len(chosen) > 1:
        raise ValueError("Only one of the following options can be specified: "
                         f"subscribe, subscribePattern, assign; got {', '.join(chosen)}.")
    starting = _bound(given, "starting", EARLIEST)
    ending = _bound(given, "ending", LATEST)
    _refuse_specials(starting, ending)
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ValueError("startingOffsetsByTimestampStrategy must be 'error' or 'latest', "
                         f"got '{strategy}'.")
    columns = given.get("columns")
    return ReadOptions(
        paths=_paths(given),
        assign=_assign(given["assign"]) if "assign" in given else None,
        subscribe=frozenset(_split(given["subscribe"], "subscribe"))
        if "subscribe" in given else None,
        subscribe_pattern=_pattern(given.get("subscribepattern")),
        starting=starting,
        ending=ending,
        latest_when_no_timestamp=strategy == "latest",
        include_headers=_bool(given, "includeHeaders", False),
        columns=_split(columns, "columns") if columns is not None else None,
        min_partitions=_positive(given, "minPartitions"),
        split_bytes=_positive(given, "maxPartitionBytes") or _SPLIT_BYTES,
        batch_rows=_positive(given, "batchRows") or 65536,
        fail_on_data_loss=_bool(given, "failOnDataLoss", True),
        isolation=_isolation(given.get("kafka.isolation.level", "read_uncommitted")),
        check_crcs=_bool(given, "checkCrcs", True),
    )


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """`path` is one directory or, as Kafka's `log.dirs`, several with commas between them; Spark
    hands a list given to `load` as a JSON array under `paths`."""
    if given.get("paths"):
        listed = json.loads(given["paths"])
        if isinstance(listed, list) and listed and all(isinstance(p, str) for p in listed):
            return tuple(listed)
    if not given.get("path", "").strip():
        raise ValueError("format('seglog') needs a path: a Kafka data directory, several with "
                         "commas between them, or one partition's directory.")
    return _split(given["path"], "path")


def _split(text: str, name: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    if not parts:
        raise ValueError(f"Option '{name}' is empty.")
    return parts


def _pattern(text: str | None) -> str | None:
    if text is None:
        return None
    if not text.strip():
        raise ValueError("Pattern to subscribe is empty as specified value for option "
                         "'subscribePattern'.")
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"subscribePattern {text!r} is no regular expression: {error}") from None
    return text


def _json(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError(f"Option '{option}' expects e.g. {example}, got {text}")
    return parsed


def _assign(text: str) -> frozenset[TopicPartition]:
    example = '{"topicA":[0,1],"topicB":[0,1]}'
    found: set[TopicPartition] = set()
    for topic, partitions in _json(text, "assign", example).items():
        if not isinstance(partitions, list) or not all(_is_int(p) for p in partitions):
            raise ValueError(f"Option 'assign' expects e.g. {example}, got {text}")
        found.update(TopicPartition(topic, partition) for partition in partitions)
    if not found:
        raise ValueError("Option 'assign' names no partition.")
    return frozenset(found)


def _per_partition(text: str, option: str) -> dict[TopicPartition, int]:
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    found = {}
    for topic, partitions in _json(text, option, example).items():
        if not isinstance(partitions, dict):
            raise ValueError(f"Option '{option}' expects e.g. {example}, got {text}")
        for partition, value in partitions.items():
            if not re.fullmatch(r"\d+", partition, re.ASCII) or not _is_int(value):
                raise ValueError(f"Option '{option}' expects e.g. {example}, got {text}")
            found[TopicPartition(topic, int(partition))] = value
    return found


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bound(given: Mapping[str, str], side: str, default: int) -> OffsetBound:
    """Spark's precedence: one timestamp for all, then timestamps by partition, then offsets."""
    if f"{side}timestamp" in given:
        text = given[f"{side}timestamp"].strip()
        if not re.fullmatch(r"\d+", text, re.ASCII):
            raise ValueError(f"Expecting a timestamp in ms for option '{side}Timestamp', "
                             f"got '{text}'.")
        return OffsetBound(timestamps={None: int(text)})
    if f"{side}offsetsbytimestamp" in given:
        option = f"{side}OffsetsByTimestamp"
        stamps = _per_partition(given[f"{side}offsetsbytimestamp"], option)
        if any(stamp < 0 for stamp in stamps.values()):
            raise ValueError(f"Option '{option}' holds a negative timestamp.")
        return OffsetBound(timestamps={tp: stamp for tp, stamp in stamps.items()})
    if f"{side}offsets" not in given:
        return OffsetBound(special=default)
    text = given[f"{side}offsets"]
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetBound(special=EARLIEST if word == "earliest" else LATEST)
    offsets = _per_partition(text, f"{side}Offsets")
    for tp, offset in offsets.items():
        if offset < EARLIEST:
            raise ValueError(f"Offset {offset} of {tp} in '{side}Offsets' is below -2.")
    return OffsetBound(offsets=offsets)


def _refuse_specials(starting: OffsetBound, ending: OffsetBound) -> None:
    """The combinations that a batch query of Spark's Kafka source refuses."""
    if starting.special == LATEST:
        raise ValueError("starting offset can't be latest for batch queries on Kafka")
    if ending.special == EARLIEST:
        raise ValueError("ending offset can't be earliest for batch queries on Kafka")
    for tp, offset in (starting.offsets or {}).items():
        if offset == LATEST:
            raise ValueError(f"startingOffsets for {tp} can't be latest for batch queries on Kafka")
    for tp, offset in (ending.offsets or {}).items():
        if offset == EARLIEST:
            raise ValueError(f"ending offset for {tp} can't be earliest for batch queries on Kafka")


def _bool(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(f"Option '{name}' is true or false, got '{text}'.")
    return text.strip().lower() == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"\d+", text.strip(), re.ASCII) or int(text) <= 0:
        raise ValueError(f"Option '{name}' must be a positive number, got '{text}'.")
    return int(text)


def _isolation(text: str) -> Isolation:
    level = text.strip().lower()
    if level == "read_committed":
        return "read_committed"
    if level == "read_uncommitted":
        return "read_uncommitted"
    raise ValueError("kafka.isolation.level must be read_uncommitted or read_committed, "
                     f"got '{text}'.")
