"""No searches for garbage while many objects are made that all stay."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collections_paused"]


class _Pauses:
    """How many want it now, and whether there was something to stop."""

    def __init__(self) -> None:
        self.lock, self.count, self.was_enabled = threading.Lock(), 0, False


    def end_in_child(self) -> None:
        """The threads that asked for it are not in a forked child."""
        if self.count and self.was_enabled:
            gc.enable()
        self.lock, self.count = threading.Lock(), 0


_pauses = _Pauses()
os.register_at_fork(after_in_child=_pauses.end_in_child)


@contextmanager
def collections_paused() -> Iterator[None]:
    """Python's collector of cycles does not run within, in any thread; several may ask for it.

    It would look at every log that is loaded already, again and again, and find nothing: with
    thousands of partitions that was half the time of a start. What was made meanwhile counts as old
    at the end, or the collector would look at all of it once more, at once.
    """
    with _pauses.lock:
        if not _pauses.count:
            _pauses.was_enabled = gc.isenabled()
            gc.disable()
        _pauses.count += 1
    try:
        yield
    finally:
        with _pauses.lock:
            _pauses.count -= 1
            if not _pauses.count and _pauses.was_enabled:
                if not gc.get_freeze_count():  # what somebody else froze stays so
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
