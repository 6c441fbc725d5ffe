"""Readers that wait for a log to change, and the spans that they share."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Followers"]

#: Number of spans that followers of a log share.
_SPANS_SHARED: Final = 8
#: The generation of the files, the segment's base offset, the byte in the segment.
_Key: TypeAlias = tuple[int, int, int]
#: Whole batches, their first offset, the offset after them.
_Read: TypeAlias = tuple[bytes, int, int]


class Followers:
    """The readers that wait for a log to change, and a cache of what they read last.

    A thread that moves the log's end or a watermark, or closes the log, calls `wake`. Safe from any
    thread.
    """

    __slots__ = ("_reading", "_recent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        self._recent: deque[tuple[_Key, _Read]] = deque(maxlen=_SPANS_SHARED)
        self._reading: dict[_Key, threading.Lock] = {}

    def wake(self) -> None:
        """Calls every current waiter once."""
        for _ in range(len(self.waiting)):
            try:
                waiter = self.waiting.popleft()
            except IndexError:
                return
            waiter()

    def forget(self, waiter: Callable[[], object]) -> None:
        """Removes a waiter, if it was not called already."""
        with contextlib.suppress(ValueError):
            self.waiting.remove(waiter)

    def read_once(self, key: _Key, read: Callable[[], _Read],
                  fits: Callable[[_Read], bool]) -> _Read:
        """Returns the result of `read`, or the cached result of another reader at the same
        position. Readers that keep up are at the same position, so the bytes are copied out of the
        kernel once for all of them."""
        lock = self._reading.setdefault(key, threading.Lock())
        try:
            with lock:
                for known, found in tuple(self._recent):
                    if known == key and fits(found):
                        return found
                found = read()
                self._recent.append((key, found))
                return found
        finally:
            self._reading.pop(key, None)

    def clear(self) -> None:
        """Clears the cache."""
        self._recent.clear()
