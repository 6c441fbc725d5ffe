"""Readers that wait for a log to change, and the spans that they share."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

__all__ = ["Followers"]

#: Spans that followers of a log share.
_SPANS_SHARED: Final = 8
#: The generation of the files, the base offset of the segment, the byte in it.
_Key: TypeAlias = tuple[int, int, int]
#: Whole batches, their first offset, the offset after them.
_Read: TypeAlias = tuple[bytes, int, int]


class Followers:
    """The readers that wait for a log to change, and what they have read of it lately.

    A thread that moves the log's end or a watermark, or closes the log, calls `wake`. Safe from any
    thread.
    """

    __slots__ = ("_reading", "_recent", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], object]] = deque()
        self._recent: deque[tuple[_Key, _Read]] = deque(maxlen=_SPANS_SHARED)
        self._reading: dict[_Key, threading.Lock] = {}

    def wake(self) -> None:
        """Calls every waiter of this moment, once."""
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
        """Returns what `read` gives, or gave another reader at the same position: readers that keep
        up are, and the bytes of a log are copied out of the kernel once for all of them."""
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
        """Forgets what was read: there is nothing to catch up with."""
        self._recent.clear()
