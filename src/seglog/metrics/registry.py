"""The registry: metrics by MBean name, in the order of registration."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from seglog.forks import SurvivesFork
from seglog.metrics.kinds import Gauge, Meter, Metric, Timer

__all__ = ["MetricName", "MetricsGroup", "MetricsRegistry", "MetricsSource", "quote_tag"]

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Metric)
Tags = Mapping[str, str | int]

# Kafka: Sanitizer.jmxSanitize. Java's \w is ASCII.
_PLAIN = re.compile(r"[A-Za-z0-9_\-%. \t]*")


def quote_tag(value: str) -> str:
    """A tag's value in an MBean name, quoted (ObjectName.quote) if necessary.

    `/data/k1` becomes `"/data/k1"`. Within quotes a backslash escapes `"`, `*`, `?` and itself,
    and a line feed is a backslash and an n.
    """
    if _PLAIN.fullmatch(value):
        return value
    return '"' + re.sub(r'(["*?\\])', r"\\\1", value).replace("\n", r"\n") + '"'


def _tag_text(tags: Iterable[tuple[str, str]]) -> str:
    return "".join([f",{key}={quote_tag(value)}" for key, value in tags if value])


@dataclass(frozen=True, slots=True)
class MetricName:
    """Group, type, name and tags of a metric (Kafka: KafkaMetricsGroup).

    Tags keep their order, which is part of the name. Tags with an empty value are omitted.
    """

    group: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, group: str, type_: str, name: str, tags: Tags | None = None) -> MetricName:
        """A name with tags from a mapping; numbers become strings."""
        return cls(group, type_, name, tuple((key, str(value))
                                             for key, value in (tags or {}).items()))

    @property
    def mbean(self) -> str:
        """`kafka.log:type=LogManager,name=LogDirectoryOffline,logDirectory="/data/k1"`."""
        name = f",name={self.name}" if self.name else ""
        return f"{self.group}:type={self.type}{name}{_tag_text(self.tags)}"

    def __str__(self) -> str:
        return self.mbean


class MetricsSource(Protocol):
    """Metrics that are created when they are read. Called without a lock held."""

    def metrics(self) -> Iterable[tuple[MetricName, Metric]]:
        """All current metrics."""

    def find(self, mbean: str) -> Metric | None:
        """The metric with this MBean name."""

    def __len__(self) -> int:
        """The number of metrics."""


class MetricsRegistry(SurvivesFork):
    """Metrics by name. Any thread may add, remove and read at any time.

    `clock` returns monotonic seconds, for meters and timers.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._metrics: dict[str, tuple[MetricName, Metric]] = {}  # by MBean name; under the lock
        self._sources: tuple[MetricsSource, ...] = ()

    def group(self, group: str, type_: str) -> MetricsGroup:
        """The metrics of one class: `registry.group("kafka.log", "LogManager")`."""
        return MetricsGroup(self, group, type_)

    def add(self, name: MetricName, metric: _M) -> _M:
        """Registers `metric`, or returns the metric that already has this name, as in Kafka.

        Raises TypeError if that metric is of another kind.
        """
        with self._lock:
            _, found = self._metrics.setdefault(name.mbean, (name, metric))
        if not isinstance(found, type(metric)):
            raise TypeError(f"{name} is a {type(found).__name__}, not a {type(metric).__name__}")
        return found

    def add_all(self, metrics: Mapping[str, tuple[MetricName, Metric]]) -> None:
        """Registers many metrics by MBean name; skips names that are taken."""
        with self._lock:
            for mbean, entry in metrics.items():
                self._metrics.setdefault(mbean, entry)

    def add_source(self, source: MetricsSource) -> None:
        """Adds a source. A registered metric takes precedence over the source's of that name."""
        with self._lock:
            self._sources = (*self._sources, source)

    def remove_source(self, source: MetricsSource) -> None:
        """Removes a source, if it is there."""
        with self._lock:
            self._sources = tuple(one for one in self._sources if one is not source)

    def remove(self, name: MetricName | str) -> bool:
        """Removes a metric by name or MBean name. Returns whether it existed."""
        with self._lock:
            return self._metrics.pop(str(name), None) is not None

    def remove_all(self, names: Iterable[str]) -> None:
        """Removes the metrics with these MBean names."""
        with self._lock:
            for name in names:
                self._metrics.pop(name, None)

    def get(self, name: MetricName | str) -> Metric | None:
        """The metric with this name or MBean name, or None."""
        mbean = str(name)
        with self._lock:
            found = self._metrics.get(mbean)
        if found is not None:
            return found[1]
        made = (source.find(mbean) for source in self._sources)
        return next((metric for metric in made if metric is not None), None)

    def snapshot(self) -> dict[str, dict[str, object]]:
        """{MBean name: {attribute: value}}, with the attributes that Kafka's metrics have in JMX.

        Raises what a gauge's function raises.
        """
        return {name.mbean: metric.attributes() for name, metric in self}

    def __iter__(self) -> Iterator[tuple[MetricName, Metric]]:
        """All current metrics, oldest first, then those of sources. Holds no lock while the
        caller reads values."""
        made = [one for source in self._sources for one in source.metrics()]
        with self._lock:
            found, names = list(self._metrics.values()), set(self._metrics) if made else set()
        return iter(found + [one for one in made if one[0].mbean not in names])

    def __len__(self) -> int:
        return len(self._metrics) + sum(map(len, self._sources))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, MetricName | str) and self.get(name) is not None


class MetricsGroup:
    """Registers metrics that share group and type (Kafka: KafkaMetricsGroup).

    For a name that is taken, methods return the existing metric. They raise TypeError if it is of
    another kind.
    """

    def __init__(self, registry: MetricsRegistry, group: str, type_: str) -> None:
        self.registry, self.group, self.type = registry, group, type_

    def name(self, name: str, tags: Tags | None = None) -> MetricName:
        """The full name of a metric of this group."""
        return MetricName.of(self.group, self.type, name, tags)

    def gauge(self, name: str, value: Callable[[], _T], tags: Tags | None = None) -> Gauge[_T]:
        """Registers a gauge. Each read calls `value` in the reading thread; None is no value."""
        return self.registry.add(self.name(name, tags), Gauge(value))

    def gauges(self, values: Mapping[str, Callable[[], object]], tags: Tags) -> list[str]:
        """Registers many gauges with the same tags at little cost. Returns their MBean names."""
        texts = tuple((key, str(value)) for key, value in tags.items())
        suffix = _tag_text(texts)
        found: dict[str, tuple[MetricName, Metric]] = {
            f"{self.group}:type={self.type},name={name}{suffix}":
            (MetricName(self.group, self.type, name, texts), Gauge(value))
            for name, value in values.items()}
        self.registry.add_all(found)
        return list(found)

    def meter(self, name: str, event_type: str, tags: Tags | None = None) -> Meter:
        """Counts events, such as `"bytes"`, and measures their rate per second."""
        return self.registry.add(self.name(name, tags), Meter(event_type, self.registry.clock))

    def timer(self, name: str, tags: Tags | None = None) -> Timer:
        """Durations in ms, and calls per second."""
        # Every load of a log asks for the timer that logs share, which is expensive to create.
        found = self.registry.get(self.name(name, tags))
        if isinstance(found, Timer):
            return found
        return self.registry.add(self.name(name, tags), Timer(self.registry.clock))

    def remove(self, name: str, tags: Tags | None = None) -> bool:
        """Removes a metric. Returns whether it existed."""
        return self.registry.remove(self.name(name, tags))
