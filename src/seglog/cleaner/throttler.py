"""Limits the bytes per second of all cleaner threads (Kafka: Throttler)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from seglog.forks import ProcessBound
from seglog.log.scheduler import Time
from seglog.metrics import Meter

__all__ = ["Throttler"]

_CHECK_INTERVAL_NS = 300_000_000
_SLICE_MS = 100
_LONGEST_S = 1e9
_NS_PER_S, _NS_PER_MS = 1_000_000_000, 1_000_000


class Throttler(ProcessBound):
    """Threads report their bytes and sleep, so that together they stay at `desired_rate` bytes a
    second. Safe from any thread.

    Kafka's sleep cannot be interrupted. Here it is divided into pieces of 100 ms, and a caller's
    check runs between them: a shutdown does not wait for a low rate. Neither does another rate.
    """

    def __init__(self, desired_rate: float, time: Time) -> None:
        self._rate = desired_rate
        #: Counts the bytes, if there is one.
        self.meter: Meter | None = None
        self._time, self._lock = time, threading.Lock()
        self._started_ns = self._resume_ns = time.nanoseconds()
        self._observed = 0

    @property
    def desired_rate(self) -> float:
        """Bytes per second. Another one counts from now on, also for threads that sleep."""
        return self._rate

    @desired_rate.setter
    def desired_rate(self, rate: float) -> None:
        with self._lock:
            self._rate, self._observed = rate, 0
            self._started_ns = self._resume_ns = self._time.nanoseconds()

    def maybe_throttle(self, observed: int, check: Callable[[], object] = lambda: None) -> None:
        """Counts bytes and sleeps if there were too many; `check` may raise to end it."""
        if self.meter is not None:
            self.meter.mark(observed)
        with self._lock:
            self._observed += observed
            now = self._time.nanoseconds()
            elapsed = now - self._started_ns
            if elapsed > _CHECK_INTERVAL_NS and self._observed:
                wanted = max(elapsed, self._wanted_ns())
                self._resume_ns = self._started_ns + wanted
                self._started_ns, self._observed = self._resume_ns, 0
        while (left := (self._resume_ns - self._time.nanoseconds()) // _NS_PER_MS) > 0:
            check()
            self._time.sleep(min(left, _SLICE_MS))

    def _wanted_ns(self) -> int:
        """How long the bytes so far should have taken: forever at a rate of 0, and no time at NaN,
        which Kafka accepts."""
        if math.isnan(self._rate):
            return 0
        seconds = self._observed / self._rate if self._rate else _LONGEST_S
        return int(min(seconds, _LONGEST_S) * _NS_PER_S)
