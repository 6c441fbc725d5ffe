"""Bytes per second over a sliding window (Kafka: RLMQuotaManager, SimpleRate, SampledStat)."""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass

from seglog.log.scheduler import Time

__all__ = ["RemoteQuota", "ThrottleTimes"]

_THROTTLES_MS = 60_000  # two samples of Kafka's metrics.sample.window.ms
_WAIT_SECONDS = 1.0


@dataclass(slots=True)
class _Sample:
    """The bytes of one window, and the time of the last of them."""

    begin_ms: int
    last_ms: int
    count: int = 0


class RemoteQuota:
    """A rate over `samples` windows of `window_ms`, and the wait until it is low enough. Callers
    that it delays record that in `throttle_times`.

    Safe from any thread.
    """

    def __init__(self, bytes_per_second: int, samples: int, window_ms: int, time: Time) -> None:
        self._limit, self._samples, self._window_ms = bytes_per_second, samples, window_ms
        self._time = time
        self.throttle_times = ThrottleTimes(time)
        self._lock, self._turn = threading.Lock(), threading.Lock()
        # A ring, of which `_current` is the newest. One more than counts: the oldest may have begun
        # before the time that counts, and reach into it.
        self._ring: list[_Sample] = []
        self._current = 0

    def update(self, bytes_per_second: int) -> None:
        """Sets another limit."""
        with self._lock:
            self._limit = bytes_per_second

    def record(self, count: int) -> None:
        """Counts `count` bytes."""
        now = self._time.milliseconds()
        with self._lock:
            self._begin(now)
            sample = self._ring[self._current]
            if now - sample.begin_ms >= self._window_ms:
                self._current = (self._current + 1) % (self._samples + 1)
                sample = _Sample(now, now)
                self._ring[self._current:self._current + 1] = [sample]
            sample.count += count
            sample.last_ms = now

    def throttle_ms(self) -> int:
        """Time until the rate is at its limit if no more bytes come; 0 below it."""
        now = self._time.milliseconds()
        with self._lock:
            self._begin(now)
            for number, sample in enumerate(self._ring):
                if now - sample.last_ms >= self._samples * self._window_ms:
                    self._ring[number] = _Sample(now, now)
            elapsed = max(now - min(one.begin_ms for one in self._ring), self._window_ms)
            rate = sum(one.count for one in self._ring) / (elapsed / 1000)
            if rate <= self._limit:
                return 0
            return math.floor((rate - self._limit) / self._limit * elapsed + 0.5)

    def _begin(self, now: int) -> None:
        if not self._ring:
            self._ring.append(_Sample(now, now))

    def take(self, size: int, cancelled: threading.Event) -> bool:
        """Waits until `size` bytes may be copied, one caller after the other, and counts them.
        False if it is cancelled, also while other callers wait before this one."""
        while not self._turn.acquire(timeout=_WAIT_SECONDS):
            if cancelled.is_set():
                return False
        try:
            while (throttle_ms := self.throttle_ms()) > 0:
                self.throttle_times.record(throttle_ms)
                if cancelled.wait(_WAIT_SECONDS):
                    break
            if cancelled.is_set():
                return False
            self.record(size)
            return True
        finally:
            self._turn.release()


class ThrottleTimes:
    """The delays of the last minute in ms (Kafka: RLMQuotaMetrics). Safe from any thread."""

    def __init__(self, time: Time) -> None:
        self._time = time
        self._lock = threading.Lock()
        self._recorded: deque[tuple[int, int]] = deque()

    def record(self, throttle_ms: int) -> None:
        """Adds a delay."""
        with self._lock:
            self._recorded.append((self._time.milliseconds(), throttle_ms))
            self._expire()

    def average(self) -> float:
        """NaN if there was none, as in Kafka."""
        found = self._recent()
        return sum(found) / len(found) if found else math.nan

    def maximum(self) -> float:
        """NaN if there was none, as in Kafka."""
        return max(self._recent(), default=math.nan)

    def _recent(self) -> list[int]:
        with self._lock:
            self._expire()
            return [delay for _, delay in self._recorded]

    def _expire(self) -> None:
        oldest = self._time.milliseconds() - _THROTTLES_MS
        while self._recorded and self._recorded[0][0] <= oldest:
            self._recorded.popleft()
