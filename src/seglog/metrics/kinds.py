"""The kinds of metrics, each with the attributes that Kafka shows in JMX.

They measure as Kafka's Yammer Metrics 2: rates are moving averages over 1, 5 and 15 minutes with a
tick of 5 seconds, and percentiles come from a sample weighted towards the last five minutes. Reads
and marks run the ticks that are due, so no thread is needed. All methods are thread-safe.
"""

from __future__ import annotations

import bisect
import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from seglog.forks import SurvivesFork

__all__ = ["Gauge", "Histogram", "Meter", "Metric", "QUANTILES", "Timer"]

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)
_Clock = Callable[[], float]

_TICK_SECONDS: Final = 5.0
_SAMPLE_SIZE: Final = 1028
_SAMPLE_ALPHA: Final = 0.015  # the weight of a value doubles every 46 seconds
_RESCALE_SECONDS: Final = 3600.0

#: JMX attributes and their quantiles.
QUANTILES: Final = {
    "50thPercentile": 0.5, "75thPercentile": 0.75, "95thPercentile": 0.95, "98thPercentile": 0.98,
    "99thPercentile": 0.99, "999thPercentile": 0.999,
}


class Metric(ABC):
    """Base class of the metrics in a registry."""

    @abstractmethod
    def attributes(self) -> dict[str, object]:
        """{name: value} of the attributes, as in JMX."""


class Gauge(Metric, Generic[_T_co]):
    """A value that a function computes at each read."""

    def __init__(self, value: Callable[[], _T_co]) -> None:
        self._value = value

    @property
    def value(self) -> _T_co:
        """The current value. Raises what the gauge's function raises."""
        return self._value()

    def attributes(self) -> dict[str, object]:
        """`Value`."""
        return {"Value": self.value}


class _MovingAverage:
    """An exponentially weighted rate of events per second; its owner's lock guards it."""

    def __init__(self, minutes: int) -> None:
        self._alpha = 1 - math.exp(-_TICK_SECONDS / 60 / minutes)
        self.rate: float | None = None

    def tick(self, events: int, ticks: int, steady: float = 0.0) -> None:
        """Adds `ticks` ticks: `events` fall in the first, `steady` events per second in each."""
        instant = events / _TICK_SECONDS + steady
        self.rate = instant if self.rate is None else \
            self.rate + self._alpha * (instant - self.rate)
        self.rate = steady + (self.rate - steady) * (1 - self._alpha) ** (ticks - 1)


class _Source:
    """A count kept outside of the meter, and its value when the meter last read it."""

    def __init__(self, total: Callable[[], int]) -> None:
        self._total, self._seen = total, total()

    def take(self) -> int:
        """The increase since the last call."""
        total = self._total()
        fresh, self._seen = total - self._seen, total
        return fresh


class Meter(SurvivesFork, Metric):
    """Counts events and measures their rate per second."""

    def __init__(self, event_type: str, clock: _Clock) -> None:
        self.event_type = event_type
        self._clock = clock
        self._started = self._ticked = clock()
        self._count = self._counted = 0  # all events, and those already in a tick
        self._pulled = 0  # the part of `_count` that sources added since the last tick
        self._sources: list[_Source] = []
        self._averages = [_MovingAverage(minutes) for minutes in (1, 5, 15)]

    def mark(self, events: int = 1) -> None:
        """Records `events` events at the current time."""
        with self._lock:
            self._tick()
            self._count += events

    def follow(self, total: Callable[[], int]) -> None:
        """Counts every increase of `total()` from now on, at no cost to the code that counts.

        A read or a mark calls `total` under the meter's lock, so it must not block. The increase
        since the last tick counts as spread evenly over that time.
        """
        source = _Source(total)
        with self._lock:
            self._sources.append(source)

    def _pull(self) -> None:
        for source in self._sources:
            fresh = source.take()
            self._count += fresh
            self._pulled += fresh

    def _tick(self) -> None:
        ticks = int((self._clock() - self._ticked) / _TICK_SECONDS)
        if ticks > 0:
            self._pull()
            self._ticked += ticks * _TICK_SECONDS
            events, self._counted = self._count - self._counted - self._pulled, self._count
            steady, self._pulled = self._pulled / (ticks * _TICK_SECONDS), 0
            for average in self._averages:
                average.tick(events, ticks, steady)

    @property
    def count(self) -> int:
        """Events since the meter was created."""
        with self._lock:
            self._pull()
            return self._count

    @property
    def mean_rate(self) -> float:
        """Events per second since the meter was created."""
        seconds = self._clock() - self._started
        count = self.count
        return count / seconds if count and seconds > 0 else 0.0

    @property
    def rates(self) -> tuple[float, float, float]:
        """Events per second over 1, 5 and 15 minutes; 0 before the first tick."""
        with self._lock:
            self._tick()
            one, five, fifteen = (average.rate or 0.0 for average in self._averages)
        return one, five, fifteen

    def attributes(self) -> dict[str, object]:
        """`Count`, `EventType`, `RateUnit` and the rates per second."""
        one, five, fifteen = self.rates
        return {"Count": self.count, "EventType": self.event_type, "RateUnit": "SECONDS",
                "MeanRate": self.mean_rate, "OneMinuteRate": one, "FiveMinuteRate": five,
                "FifteenMinuteRate": fifteen}


class _Sample:
    """A sample of up to 1,028 values that favours new ones (Cormode et al., forward decay)."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._started = clock()
        self._random = random.Random()
        self._kept: list[tuple[float, float]] = []  # (priority, value), least priority first

    def add(self, value: float) -> None:
        """Adds the value if its random priority exceeds the lowest in the sample."""
        age = self._clock() - self._started
        if age >= _RESCALE_SECONDS:
            self._started += age
            factor = math.exp(-_SAMPLE_ALPHA * age)
            self._kept = [(priority * factor, kept) for priority, kept in self._kept]
            age = 0.0
        priority = math.exp(_SAMPLE_ALPHA * age) / (1.0 - self._random.random())
        if len(self._kept) < _SAMPLE_SIZE:
            bisect.insort(self._kept, (priority, value))
        elif self._kept[0][0] < priority:
            del self._kept[0]
            bisect.insort(self._kept, (priority, value))

    def quantiles(self) -> dict[str, float]:
        """The attributes in QUANTILES, interpolated between neighbours; 0 if there is no value."""
        values = sorted(value for _, value in self._kept)
        found = {}
        for name, quantile in QUANTILES.items():
            position = quantile * (len(values) + 1)
            at = int(position)
            if not values:
                found[name] = 0.0
            elif at < 1:
                found[name] = values[0]
            elif at >= len(values):
                found[name] = values[-1]
            else:
                lower, upper = values[at - 1], values[at]
                found[name] = lower + (position - at) * (upper - lower)
        return found


class Histogram(SurvivesFork, Metric):
    """Count, extremes, mean and deviation of all values, and percentiles of the last minutes."""

    def __init__(self, clock: _Clock) -> None:
        self._sample = _Sample(clock)
        self._count = 0
        self._least, self._most = math.inf, -math.inf
        self._mean = self._squares = 0.0  # Welford's: the mean, and the sum of squared deviations

    def update(self, value: float) -> None:
        """Adds a value."""
        with self._lock:
            self._count += 1
            self._least, self._most = min(self._least, value), max(self._most, value)
            deviation = value - self._mean
            self._mean += deviation / self._count
            self._squares += deviation * (value - self._mean)
            self._sample.add(value)

    @property
    def count(self) -> int:
        """Values since the histogram was created."""
        return self._count

    def attributes(self) -> dict[str, object]:
        """`Count`, `Min`, `Max`, `Mean`, `StdDev` and the percentiles; 0 if there is no value."""
        with self._lock:
            count, mean = self._count, self._mean
            deviation = math.sqrt(self._squares / (count - 1)) if count > 1 else 0.0
            least, most = (self._least, self._most) if count else (0.0, 0.0)
            return {"Count": count, "Min": least, "Max": most, "Mean": mean, "StdDev": deviation,
                    **self._sample.quantiles()}


class Timer(Metric):
    """Durations in ms, and calls per second."""

    def __init__(self, clock: _Clock) -> None:
        self._clock = clock
        self._meter, self._histogram = Meter("calls", clock), Histogram(clock)

    def update(self, milliseconds: float) -> None:
        """Adds a call of this duration. Ignores a negative duration."""
        if milliseconds >= 0:
            self._histogram.update(milliseconds)
            self._meter.mark()

    @contextmanager
    def time(self) -> Iterator[None]:
        """Measures its `with` block, also if that raises."""
        started = self._clock()
        try:
            yield
        finally:
            self.update((self._clock() - started) * 1000)

    @property
    def count(self) -> int:
        """Calls since the timer was created."""
        return self._histogram.count

    def attributes(self) -> dict[str, object]:
        """The attributes of a meter and of a histogram, and `LatencyUnit`."""
        return {**self._meter.attributes(), "LatencyUnit": "MILLISECONDS",
                **self._histogram.attributes()}
