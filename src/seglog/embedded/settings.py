"""The arguments of `seglog.open`: settings, a durability, a directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal

from seglog.arguments import directory_path, partition_of, shown
from seglog.config import LogConfig
from seglog.errors import IllegalArgumentError, InvalidTopicPartitionError
from seglog.model import TopicPartition
from seglog.storage.paths import DirectoryKind, check_topic, directory_name_or_none

__all__ = ["Durability", "durability_of", "place_of", "settings_of"]

#: When appended records become durable: "none" when the log is flushed, rolled or closed, "append"
#: before an append returns, a number at most that many seconds later. `flush.messages` and
#: `flush.ms` can only make it sooner.
Durability = Literal["none", "append"] | float

_FOREVER: Final = {"retention.ms": "-1"}
_DURABILITY_SECONDS_MAX: Final = 31_536_000  # a year


def settings_of(config: LogConfig | Mapping[str, object] | None) -> LogConfig:
    """The settings of a log from the caller's argument. Raises ConfigError, TypeError."""
    if isinstance(config, LogConfig):
        settings = config
    elif config is None or isinstance(config, Mapping):
        settings = LogConfig().override({**_FOREVER, **(config or {})})
    else:
        raise TypeError(f"config must be a LogConfig or a mapping, not {shown(config)}")
    return settings


def durability_of(durability: Durability) -> Durability:
    """The durability. Raises IllegalArgumentError for an invalid one."""
    if isinstance(durability, str):
        if durability in ("none", "append"):
            return durability
    elif type(durability) in (int, float) and 0 < durability <= _DURABILITY_SECONDS_MAX:
        return float(durability)
    raise IllegalArgumentError("durability must be 'none', 'append', or seconds up to "
                               f"{_DURABILITY_SECONDS_MAX}, not {shown(durability)}")


def place_of(given: str | os.PathLike[str], wanted: TopicPartition | None
             ) -> tuple[str, TopicPartition]:
    """The data directory and the partition.

    Raises InvalidTopicError, and InvalidTopicPartitionError for a directory that a broker would
    load under another name (`t-00`).
    """
    path = directory_path("path", given)
    if wanted is not None:
        check_topic(partition_of(wanted).topic)
    name = directory_name_or_none(path)
    if name is None:
        return path, wanted or TopicPartition("log", 0)
    if name.kind is not DirectoryKind.LIVE:
        raise InvalidTopicPartitionError(
            f"{path} is not the directory of a live log: its name ends in {name.kind.value}")
    if wanted is not None and wanted != name.topic_partition:
        raise InvalidTopicPartitionError(f"{path} is not the directory of {wanted}")
    found = name.topic_partition
    check_topic(found.topic)
    if os.path.basename(path) != str(found):
        raise InvalidTopicPartitionError(
            f"{path} is not a name that Kafka gives to a log: the directory of partition "
            f"{found.partition} of topic {found.topic} is {found}")
    return os.path.dirname(path), found
