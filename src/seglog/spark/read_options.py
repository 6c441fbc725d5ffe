"""The options of `spark.read.format("seglog")`, parsed and validated once.

Names, values, precedence and refusals are those of Spark's own Kafka source for batch queries
(KafkaSourceProvider.validateBatchOptions). A query moves from `format("kafka")` to
`format("seglog")` with a new format name and a path. docs/spark.md lists the differences. Options
for a Kafka client (`kafka.bootstrap.servers`, `kafkaConsumer.*`, ...) are accepted and ignored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from seglog.model import TopicPartition
from seglog.objects import StorageOptions
from seglog.spark.option_names import check_names
from seglog.spark.option_values import (
    INT_MAX, LONG_MAX, boolean, is_int, java_pattern, json_object, listed, long_number,
    per_partition, positive, storage_options,
)
from seglog.storage.isolation import Isolation
from seglog.storage.stream import OnDamage

__all__ = ["EARLIEST", "LATEST", "SPLIT_BYTES", "OffsetBound", "ReadOptions", "parse_options"]

_log = logging.getLogger("seglog.spark")

LATEST = -1
"""Kafka's special offset "the log end", as in Spark's offset JSON."""
EARLIEST = -2
"""Kafka's special offset "the log start", as in Spark's offset JSON."""

#: Default of maxPartitionBytes, the log bytes of a task: Spark's spark.sql.files.maxPartitionBytes.
SPLIT_BYTES = 128 << 20
# Kafka's special timestamps: -1 the log end, -2 and -4 (the local) log start, -3 the largest.
_TIMESTAMP_MIN = -4
_STRATEGIES = {"subscribe": "subscribe", "subscribepattern": "subscribePattern",
               "assign": "assign"}
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# The consumer settings that Spark's Kafka source refuses, and why.
_REFUSED = {
    "auto.offset.reset": ("set the source option 'startingOffsets' to 'earliest' or 'latest' "
                          "instead"),
    "key.deserializer": "keys are binary; use DataFrame operations to deserialize them",
    "value.deserializer": "values are binary; use DataFrame operations to deserialize them",
    "enable.auto.commit": "no offset is committed",
    "interceptor.classes": "records are read unchanged",
}


@dataclass(frozen=True, slots=True)
class OffsetBound:
    """Where to start or end. Exactly one of the three fields is set.

    `special` is EARLIEST or LATEST for every partition. `offsets` has one offset (or special) a
    partition. `timestamps` has one timestamp in ms a partition or, under None, for all partitions.
    """

    special: int | None = None
    offsets: Mapping[TopicPartition, int] | None = None
    timestamps: Mapping[TopicPartition | None, int] | None = None

    def partitions(self) -> set[TopicPartition] | None:
        """The partitions named, None if it applies to all."""
        named: Mapping[Any, int] | None = \
            self.timestamps if self.offsets is None else self.offsets
        if named is None or None in named:
            return None
        return set(named)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a query. Sizes are in bytes."""

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
    max_records_per_partition: int | None = None
    split_bytes: int | None = None
    batch_rows: int = 65536
    fail_on_data_loss: bool = True
    isolation: Isolation = "read_uncommitted"
    check_crcs: bool = True
    storage: StorageOptions = field(default_factory=StorageOptions)
    remote: str | None = None
    remote_layout: str | None = None

    @property
    def on_damage(self) -> OnDamage:
        """How readers treat damaged batches."""
        return "raise" if self.fail_on_data_loss else "skip"


def parse_options(options: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """Parses the options of a query (case-insensitive names). A stream starts at the latest offsets
    by default and has no end.

    Raises ValueError, with the option's name, for an unknown name and for a value or combination
    that Spark's source refuses.
    """
    given = {name.lower(): value for name, value in options.items()}
    check_names(given)
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ValueError("Option 'startingOffsetsByTimestampStrategy' is 'error' or 'latest', "
                         f"got '{strategy}'.")
    starting = _bound(given, "starting", LATEST if is_stream else EARLIEST)
    ending = _bound(given, "ending", LATEST)
    _check_strategy(given)
    for name, reason in _REFUSED.items():
        if f"kafka.{name}" in given:
            raise ValueError(f"Kafka option '{name}' is not supported: {reason}.")
    if not is_stream:
        _refuse_specials(starting, ending)
        _check_stream_only(given)
        _refuse_backwards(starting, ending)
    columns = given.get("columns")
    pattern = given.get("subscribepattern")
    return ReadOptions(
        paths=_paths(given),
        assign=_assign(given["assign"]) if "assign" in given else None,
        subscribe=frozenset(listed(given["subscribe"], "subscribe"))
        if "subscribe" in given else None,
        subscribe_pattern=None if pattern is None else pattern.strip(),
        starting=starting,
        ending=ending,
        latest_when_no_timestamp=strategy == "latest",
        include_headers=boolean(given, "includeHeaders", False),
        columns=listed(columns, "columns") if columns is not None else None,
        min_partitions=positive(given, "minPartitions"),
        max_records_per_partition=positive(given, "maxRecordsPerPartition", LONG_MAX),
        split_bytes=positive(given, "maxPartitionBytes", LONG_MAX),
        batch_rows=positive(given, "batchRows") or 65536,
        fail_on_data_loss=boolean(given, "failOnDataLoss", True),
        isolation=_isolation(given.get("kafka.isolation.level", "read_uncommitted")),
        check_crcs=boolean(given, "checkCrcs", True),
        storage=storage_options(given),
        remote=given.get("remote"),
        remote_layout=given.get("remotelayout"),
    )


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """The unchanged arguments of `load`; Spark passes a list as a JSON array in `paths`."""
    if given.get("paths"):
        try:
            paths = json.loads(given["paths"])
        except ValueError:
            paths = None
        if isinstance(paths, list) and paths and all(
                isinstance(path, str) and path.strip() for path in paths):
            return tuple(paths)
        raise ValueError("Option 'paths' is a JSON array of paths, such as [\"/a\",\"/b\"], "
                         f"got {given['paths']}")
    if not given.get("path", "").strip(" ,"):
        raise ValueError("format('seglog') needs a path: a Kafka data directory, several "
                         "separated by commas, or a partition directory.")
    return (given["path"],)


def _check_strategy(given: Mapping[str, str]) -> None:
    """Checks that exactly one of subscribe, subscribePattern and assign is set and not empty."""
    chosen = [name for name in _STRATEGIES if name in given]
    if len(chosen) > 1:
        raise ValueError("Only one of the following options can be specified: "
                         f"subscribe, subscribePattern, assign; got "
                         f"{', '.join(_STRATEGIES[name] for name in chosen)}.")
    if "assign" in given and not given["assign"].strip().startswith("{"):
        raise ValueError("No topicpartitions to assign as specified value for option 'assign' is "
                         f"'{given['assign']}'; it expects e.g. {_ASSIGN_EXAMPLE}")
    if "subscribe" in given and not given["subscribe"].strip(" ,"):
        raise ValueError("No topics to subscribe to as specified value for option 'subscribe' is "
                         f"'{given['subscribe']}'.")
    if "subscribepattern" in given:
        pattern = given["subscribepattern"].strip()
        if not pattern:
            raise ValueError("Pattern to subscribe is empty as specified value for option "
                             f"'subscribePattern' is '{given['subscribepattern']}'.")
        java_pattern(pattern, "subscribePattern")


_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[0,1]}'


def _assign(text: str) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for topic, partitions in json_object(text, "assign", _ASSIGN_EXAMPLE).items():
        if not isinstance(partitions, list) or not all(
                is_int(p) and 0 <= p <= INT_MAX for p in partitions):
            raise ValueError(f"Option 'assign' expects e.g. {_ASSIGN_EXAMPLE}, got {text}")
        found.update(TopicPartition(topic, partition) for partition in partitions)
    return frozenset(found)


def _check_stream_only(given: Mapping[str, str]) -> None:
    """Warns of ignored streaming options; raises ValueError if they contradict each other, and for
    an end that only a stream has."""
    if "maxoffsetspertrigger" in given and "minoffsetspertrigger" in given:
        values = []
        for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger"):
            value = long_number(given[name.lower()])
            if value is None:
                raise ValueError(f"Option '{name}' is a whole number, got '{given[name.lower()]}'.")
            values.append(value)
        if values[0] > values[1]:
            raise ValueError(f"The value of minOffsetsPerTrigger ({values[0]}) is higher than "
                             f"that of maxOffsetsPerTrigger ({values[1]}).")
    for name in _STREAM_ONLY:
        if name.lower() in given:
            _log.warning("%s option ignored in batch queries", name)
    if given.get("endat", "logEnd").strip().lower() != "logend":
        raise ValueError("Option 'endAt' is for streams: a batch query ends at the high watermarks "
                         "with the endingOffsets that seglog.spark.end_offsets(..., "
                         "endAt='highWatermark') returns.")


def _bound(given: Mapping[str, str], side: str, default: int) -> OffsetBound:
    """The bound by Spark's precedence: one timestamp for all, timestamps by partition, offsets."""
    if f"{side}timestamp" in given:
        text = given[f"{side}timestamp"].strip()
        stamp = long_number(text)
        if stamp is None:
            raise ValueError(f"Expecting a timestamp in ms for option '{side}Timestamp', "
                             f"got '{text}'.")
        _check_stamp(stamp, f"{side}Timestamp")
        return OffsetBound(timestamps={None: stamp})
    if f"{side}offsetsbytimestamp" in given:
        option = f"{side}OffsetsByTimestamp"
        stamps = per_partition(given[f"{side}offsetsbytimestamp"], option)
        for stamp in stamps.values():
            _check_stamp(stamp, option)
        return OffsetBound(timestamps={tp: stamp for tp, stamp in stamps.items()})
    if f"{side}offsets" not in given:
        return OffsetBound(special=default)
    text = given[f"{side}offsets"]
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetBound(special=EARLIEST if word == "earliest" else LATEST)
    offsets = per_partition(text, f"{side}Offsets")
    for tp, offset in offsets.items():
        if offset < EARLIEST:
            raise ValueError(f"Offset {offset} of {tp} in '{side}Offsets' is below -2.")
    return OffsetBound(offsets=offsets)


def _check_stamp(stamp: int, option: str) -> None:
    if stamp < _TIMESTAMP_MIN:
        raise ValueError(f"Option '{option}' holds a negative timestamp, {stamp}, that is none of "
                         "Kafka's special ones: -1 the log end, -2 its start, -3 the largest "
                         "timestamp, -4 the local log start.")


def _refuse_specials(starting: OffsetBound, ending: OffsetBound) -> None:
    """Raises ValueError for combinations that a batch query of Spark's Kafka source refuses."""
    if starting.special == LATEST:
        raise ValueError("starting offset can't be latest for batch queries on Kafka")
    for tp, offset in (starting.offsets or {}).items():
        if offset == LATEST:
            raise ValueError(f"startingOffsets for {tp} can't be latest for batch queries on Kafka")
    if ending.special == EARLIEST:
        raise ValueError("ending offset can't be earliest for batch queries on Kafka")
    for tp, offset in (ending.offsets or {}).items():
        if offset == EARLIEST:
            raise ValueError(f"ending offset for {tp} can't be earliest for batch queries on Kafka")


def _refuse_backwards(starting: OffsetBound, ending: OffsetBound) -> None:
    """KafkaSourceProvider.checkOffsetLimitValidity."""
    kinds: tuple[tuple[str, Mapping[Any, int] | None, Mapping[Any, int] | None], ...] = (
        ("offset", starting.offsets, ending.offsets),
        ("timestamp", starting.timestamps, ending.timestamps))
    for kind, first, last in kinds:
        if first is None or last is None or None in first or None in last:
            continue
        if set(first) != set(last):
            raise ValueError(
                "The specified start offset and end offset should have the same topic-partitions. "
                f"Topic-partitions for start offset: {_named(first)}. "
                f"Topic-partitions for end offset: {_named(last)}.")
        for tp, start in first.items():
            if start > last[tp] >= 0:
                raise ValueError(
                    f"The specified start {kind} {start} is greater than the end {kind} {last[tp]} "
                    f"for topic {tp.topic} partition {tp.partition}.")


def _named(partitions: Mapping[Any, int]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _isolation(text: str) -> Isolation:
    level = text.strip().lower()
    if level == "read_committed":
        return "read_committed"
    if level == "read_uncommitted":
        return "read_uncommitted"
    raise ValueError("Option 'kafka.isolation.level' is read_uncommitted or read_committed, "
                     f"got '{text}'.")
