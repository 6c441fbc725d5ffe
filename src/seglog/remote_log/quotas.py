"""Bytes per second over a sliding window (Kafka: RLMQuotaManager, SimpleRate)."""

from __future__ import annotations

import threading
from collections import deque

from seglog.log.scheduler import Time

__all__ = ["RemoteQuota"]


class RemoteQuota:
    """A rate over `samples` windows of `window_ms`, and the wait until it is low enough.

    Safe from any thread.
    """

    def __init__(self, bytes_per_second: int, samples: int, window_ms: int, time: Time) -> None:
        self._limit, self._samples, self._window_ms = bytes_per_second, samples, window_ms
        self._time = time
        self._lock = threading.Lock()
        self._windows: deque[list[int]] = deque()  # [begin in ms, bytes]

    def update(self, bytes_per_second: int) -> None:
        """Sets another limit."""
        with self._lock:
            self._limit = bytes_per_second

    def record(self, count: int) -> None:
        """Counts `count` bytes."""
        now = self._time.milliseconds()
        with self._lock:
            if not self._windows or now - self._windows[-1][0] >= self._window_ms:
                self._windows.append([now, 0])
            self._windows[-1][1] += count
            self._expire(now)

    def throttle_ms(self) -> int:
        """Time until the rate is at its limit if no more bytes come; 0 below it."""
        now = self._time.milliseconds()
        with self._lock:
            self._expire(now)
            if not self._windows:
                return 0
            elapsed = max(now - self._windows[0][0], self._window_ms)
            rate = sum(size for _, size in self._windows) * 1000 / elapsed
            if rate <= self._limit:
                return 0
            return round((rate - self._limit) / self._limit * elapsed)

    def _expire(self, now: int) -> None:
        while self._windows and now - self._windows[0][0] >= self._samples * self._window_ms:
            self._windows.popleft()
