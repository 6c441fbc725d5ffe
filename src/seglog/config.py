"""Settings under Kafka's names, with Kafka's defaults, bounds and error texts.

A field is the Kafka name in Python's spelling: `segment.index.bytes` is `segment_index_bytes`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from seglog.errors import ConfigError

__all__ = ["LoadConfig", "LogConfig"]

_INTEGER = re.compile(r"[+-]?[0-9]{1,30}")
_MISSING = object()


def _setting(name: str, default: Any, *, minimum: int | None = None,
             also: tuple[str, ...] = ()) -> Any:
    """A dataclass field with its Kafka name, and the broker-wide names of the same setting."""
    return field(default=default, metadata={"name": name, "minimum": minimum, "also": also})


def _invalid(name: str, value: object, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}")


def _integer(name: str, value: object) -> int:
    number = value
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        number = int(value)
    if type(number) is not int or not -1 << 31 <= number < 1 << 31:
        raise _invalid(name, value, "Not a number of type INT")
    return number


def _boolean(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise _invalid(name, value, "Expected value to be either true or false")
    return text == "true"


class _Config:
    """What both classes do with their fields."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for one in fields(self):  # type: ignore[arg-type]
            name, minimum = one.metadata["name"], one.metadata["minimum"]
            value = getattr(self, one.name)
            if value is None and one.default is None:
                continue
            if isinstance(one.default, bool):
                value = _boolean(name, value)
            else:
                value = _integer(name, value)
                if minimum is not None and value < minimum:
                    raise _invalid(name, value, f"Value must be at least {minimum}")
            object.__setattr__(self, one.name, value)

    @classmethod
    def knows(cls, name: str) -> bool:
        """Whether `name` is Kafka's name of a setting, or the broker-wide name of one."""
        return any(name == one.metadata["name"] or name in one.metadata["also"]
                   for one in fields(cls))  # type: ignore[arg-type]

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """From a mapping of Kafka names, such as a topic's configs or a `server.properties`.

        A topic's name goes before a broker's (`segment.bytes` before `log.segment.bytes`). Names
        that mean nothing here are passed over. Raises ConfigError with Kafka's text.
        """
        found: dict[str, Any] = {}
        for one in fields(cls):  # type: ignore[arg-type]
            for name in (one.metadata["name"], *one.metadata["also"]):
                value = properties.get(name, _MISSING)
                if value is not _MISSING:
                    found[one.name] = value
                    break
        return cls(**found)


@dataclass(frozen=True, slots=True)
class LogConfig(_Config):
    """Per-log settings that say how segments and indexes are made (Kafka: LogConfig).

    Raises ConfigError for a value that Kafka would refuse. Sizes are bytes, times ms.
    """

    segment_bytes: int = _setting("segment.bytes", 1 << 30, minimum=1 << 20,
                                  also=("log.segment.bytes",))
    #: Replaces `segment_bytes` everywhere when set; for tests, without a minimum.
    internal_segment_bytes: int | None = _setting("internal.segment.bytes", None)
    segment_index_bytes: int = _setting("segment.index.bytes", 10 << 20, minimum=4,
                                        also=("log.index.size.max.bytes",))
    index_interval_bytes: int = _setting("index.interval.bytes", 4096, minimum=0,
                                         also=("log.index.interval.bytes",))
    preallocate: bool = _setting("preallocate", False, also=("log.preallocate",))

    @property
    def segment_size(self) -> int:
        """The size in bytes at which a segment is full."""
        return self.segment_bytes if self.internal_segment_bytes is None \
            else self.internal_segment_bytes


@dataclass(frozen=True, slots=True)
class LoadConfig(_Config):
    """How a data directory is loaded (Kafka: broker settings). Raises ConfigError."""

    #: Threads that open and check segments; with 1 nothing runs beside the caller.
    num_segment_loading_threads_per_data_dir: int = _setting(
        "num.segment.loading.threads.per.data.dir", 1, minimum=1)
    #: Logs that are loaded at a time.
    num_recovery_threads_per_data_dir: int = _setting(
        "num.recovery.threads.per.data.dir", 2, minimum=1)
    #: Producers idle for longer are forgotten when state is loaded.
    producer_id_expiration_ms: int = _setting("producer.id.expiration.ms", 86_400_000, minimum=1)
