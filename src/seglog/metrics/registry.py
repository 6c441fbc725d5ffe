"""The registry: metrics by their MBean names, in the order in which they were registered."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from seglog.forks import SurvivesFork
from seglog.metrics.kinds import Counter, Gauge, Histogram, Meter, Metric, Timer

__all__ = ["MetricName", "MetricsGroup", "MetricsRegistry", "MetricsSource", "quote_tag"]

_T = TypeVar("_T")
_M = TypeVar("_M", bound=Metric)
_S = TypeVar("_S", Histogram, Timer)
Tags = Mapping[str, str | int]

# Kafka: Sanitizer.jmxSanitize. Java's \w is ASCII.
_PLAIN = re.compile(r"[A-Za-z0-9_\-%. \t]*")


def quote_tag(value: str) -> str:
    """A tag's value as it stands in an MBean name: quoted (ObjectName.quote) where it has to be.

    `/data/k1` becomes `"/data/k1"`; within quotes `"`, `*`, `?` and a backslash get a backslash,
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

    Tags keep their order, which is part of the name; those with an empty value are left out of it.
    """

    group: str
    type: str
    name: str
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, group: str, type_: str, name: str, tags: Tags | None = None) -> MetricName:
        """With tags as a mapping; numbers become text."""
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
    """Metrics that are made when somebody reads them. Called outside of any lock."""

    def metrics(self) -> Iterable[tuple[MetricName, Metric]]:
        """All of this moment."""

    def find(self, mbean: str) -> Metric | None:
        """The one of that MBean name."""

    def __len__(self) -> int:
        """How many there are."""


class MetricsRegistry(SurvivesFork):
    """Metrics by name. Any thread may add, remove and read at any time.

    `clock` gives seconds that never go back (meters and timers measure by it).
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._metrics: dict[str, tuple[MetricName, Metric]] = {}  # by MBean name; under the lock
        self._sources: tuple[MetricsSource, ...] = ()

    def group(self, group: str, type_: str) -> MetricsGroup:
        """What registers metrics of one class: `registry.group("kafka.log", "LogManager")`."""
        return MetricsGroup(self, group, type_)

    def add(self, name: MetricName, metric: _M) -> _M:
        """Registers `metric`, or gives the one that has this name already, as Kafka's does.

        TypeError if that one is of another kind.
        """
        with self._lock:
            _, found = self._metrics.setdefault(name.mbean, (name, metric))
        if not isinstance(found, type(metric)):
            raise TypeError(f"{name} is a {type(found).__name__}, not a {type(metric).__name__}")
        return found

    def add_all(self, metrics: Mapping[str, tuple[MetricName, Metric]]) -> None:
        """Registers many by their MBean names; those whose names are taken are passed over."""
        with self._lock:
            for mbean, entry in metrics.items():
                self._metrics.setdefault(mbean, entry)

    def add_source(self, source: MetricsSource) -> None:
        """Lets `source` make metrics of its own. One that is registered under the same name comes
        first."""
        with self._lock:
            self._sources = (*self._sources, source)

    def remove_source(self, source: MetricsSource) -> None:
        """Its metrics are gone."""
        with self._lock:
            self._sources = tuple(one for one in self._sources if one is not source)

    def remove(self, name: MetricName | str) -> bool:
        """Takes a metric out, by its name or MBean name; whether it was there."""
        with self._lock:
            return self._metrics.pop(str(name), None) is not None

    def remove_all(self, names: Iterable[str]) -> None:
        """Takes out those with these MBean names."""
        with self._lock:
            for name in names:
                self._metrics.pop(name, None)

    def get(self, name: MetricName | str) -> Metric | None:
        """The metric of that name or MBean name."""
        mbean = str(name)
        with self._lock:
            found = self._metrics.get(mbean)
        if found is not None:
            return found[1]
        made = (source.find(mbean) for source in self._sources)
        return next((metric for metric in made if metric is not None), None)

    def snapshot(self) -> dict[str, dict[str, object]]:
        """{MBean name: {attribute: value}} with the attributes that JMX shows of Kafka's metrics.

        Raises what a gauge's function raises.
        """
        return {name.mbean: metric.attributes() for name, metric in self}

    def __iter__(self) -> Iterator[tuple[MetricName, Metric]]:
        """All of this moment, oldest first, then those of sources. Values are read without holding
        the registry."""
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

    A name that is taken gives the metric that has it; TypeError if that is of another kind.
    """

    def __init__(self, registry: MetricsRegistry, group: str, type_: str) -> None:
        self.registry, self.group, self.type = registry, group, type_

    def name(self, name: str, tags: Tags | None = None) -> MetricName:
        """The full name of a metric of this group."""
        return MetricName.of(self.group, self.type, name, tags)

    def gauge(self, name: str, value: Callable[[], _T], tags: Tags | None = None) -> Gauge[_T]:
        """`value` is called at each reading, by the thread that reads; None is no value."""
        return self.registry.add(self.name(name, tags), Gauge(value))

    def gauges(self, values: Mapping[str, Callable[[], object]], tags: Tags) -> list[str]:
        """Registers many gauges with the same tags at little cost; their MBean names."""
        texts = tuple((key, str(value)) for key, value in tags.items())
        suffix = _tag_text(texts)
        found: dict[str, tuple[MetricName, Metric]] = {
            f"{self.group}:type={self.type},name={name}{suffix}":
            (MetricName(self.group, self.type, name, texts), Gauge(value))
            for name, value in values.items()}
        self.registry.add_all(found)
        return list(found)

    def counter(self, name: str, tags: Tags | None = None) -> Counter:
        """A number that is counted up and down."""
        return self.registry.add(self.name(name, tags), Counter())

    def meter(self, name: str, event_type: str, tags: Tags | None = None) -> Meter:
        """Counts events, such as `"bytes"`, and their rate a second."""
        return self.registry.add(self.name(name, tags), Meter(event_type, self.registry.clock))

    def histogram(self, name: str, tags: Tags | None = None) -> Histogram:
        """Percentiles of what was measured in the last minutes."""
        return self._found_or(self.name(name, tags), Histogram)

    def timer(self, name: str, tags: Tags | None = None) -> Timer:
        """Durations in ms and calls a second."""
        return self._found_or(self.name(name, tags), Timer)

    def _found_or(self, name: MetricName, kind: type[_S]) -> _S:
        """The metric of that name. One with samples is only made when there is none: logs ask for
        those that they share at every load."""
        found = self.registry.get(name)
        if isinstance(found, kind):
            return found
        return self.registry.add(name, kind(self.registry.clock))

    def remove(self, name: str, tags: Tags | None = None) -> bool:
        """Takes a metric out; whether it was there."""
        return self.registry.remove(self.name(name, tags))
