"""The gauges of a log manager under Kafka's names."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from seglog.metrics import MetricsRegistry

__all__ = ["Countdown", "Gauges"]


class Gauges:
    """What one owner registered; `remove` takes all of it out again, once."""

    def __init__(self, registry: MetricsRegistry, group: str = "kafka.log",
                 type_: str = "LogManager") -> None:
        self._group = registry.group(group, type_)
        self._registered: list[tuple[str, Mapping[str, str | int]]] = []

    def add(self, name: str, tags: Mapping[str, str | int],
            value: Callable[[], int | None]) -> None:
        """Registers a gauge."""
        self._group.gauge(name, value, tags)
        self._registered.append((name, tags))

    def remove(self) -> None:
        """Removes all that was added."""
        registered, self._registered = self._registered, []
        for name, tags in registered:
            self._group.remove(name, tags)


class Countdown:
    """Numbers by key that threads set while gauges read them."""

    def __init__(self) -> None:
        self._values: dict[object, int] = {}
        self._lock = threading.Lock()

    def set(self, key: object, value: int) -> None:
        """Puts a number."""
        with self._lock:
            self._values[key] = value

    def get(self, key: object) -> int | None:
        """The number, None before it was put."""
        with self._lock:
            return self._values.get(key)
