"""Disables the cyclic garbage collector while a load creates many long-lived objects."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collections_paused"]

#: So many new objects the collector scans in a millisecond or two.
_FEW = 20_000


class _Pauses:
    """How many callers want it paused, and whether it was enabled before."""

    def __init__(self) -> None:
        self.lock, self.count, self.was_enabled = threading.Lock(), 0, False

    def end_in_child(self) -> None:
        """The threads that paused it do not exist in a forked child."""
        if self.count and self.was_enabled:
            gc.enable()
        self.lock, self.count = threading.Lock(), 0


_pauses = _Pauses()
os.register_at_fork(after_in_child=_pauses.end_in_child)


@contextmanager
def collections_paused() -> Iterator[None]:
    """Pauses Python's cyclic garbage collector inside the context, in all threads; callers may
    nest.

    It would scan all loaded logs again and again, and find nothing: with thousands of partitions
    that took half the time of a start. If the new objects are many, they are frozen at the end:
    otherwise the collector would scan all of them at once.
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
                # What another caller froze stays so. To count that takes long if it is much.
                if gc.get_count()[0] > _FEW and not gc.get_freeze_count():
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()
