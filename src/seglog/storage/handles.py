"""A bounded cache of the files that readers hold open: log files and indexes.

A broker keeps a descriptor for every segment and two maps besides, so a directory of 33,000
segments exhausts the default `vm.max_map_count`. Here files are opened on first use, and the least
recently used is closed when more than `files_max` are open. A log of a million segments can be read
under `ulimit -n 1024`.
"""

from __future__ import annotations

import errno
import itertools
import resource
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from seglog.errors import KafkaStorageError
from seglog.forks import SurvivesFork

__all__ = ["FILES_PER_SEGMENT", "SEGMENTS_OPEN_MAX", "HandleCache", "shared_cache"]

#: A segment in use has its log file open and, if they are large, two indexes.
FILES_PER_SEGMENT = 3
#: Default size of the cache that all logs of a process share: 384 descriptors at most, and no more
#: than a quarter of the process's limit.
SEGMENTS_OPEN_MAX = 128


class Closable(Protocol):
    """A value that the cache may hold."""

    def close(self) -> None:
        """Closes the file."""


_T = TypeVar("_T", bound=Closable)


class _Held(Generic[_T]):
    __slots__ = ("pins", "value")

    def __init__(self, value: _T) -> None:
        self.value, self.pins = value, 1


class HandleCache(SurvivesFork):
    """Values by key, closed in the order of their last use. Safe from any thread.

    A value is pinned while a caller is inside `pin`, and is not closed then. The cache exceeds its
    bound by the number of values that are pinned at once.
    """

    def __init__(self, files_max: int) -> None:
        if files_max < 1:
            raise ValueError(f"a cache of {files_max} files cannot hold the one in use")
        self.files_max = files_max
        # An RLock: the garbage collector may close a reader while this thread holds `_lock`. A
        # forked child may use its parent's descriptors, because pread moves no offset.
        self._held: OrderedDict[Hashable, _Held[Any]] = OrderedDict()
        self._owners = itertools.count()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as an empty cache of the same size, or as the process-wide cache if this is the
        one."""
        return (shared_cache, ()) if self is _shared else (HandleCache, (self.files_max,))

    def new_owner(self) -> int:
        """A number unique to a log: the first part of its keys, and the argument of `forget`."""
        return next(self._owners)

    def __len__(self) -> int:
        return len(self._held)

    @contextmanager
    def pin(self, key: tuple[int, str], opener: Callable[[str], _T]) -> Iterator[_T]:
        """The value of `key` = (owner, path), opened by `opener(path)` if it is not cached."""
        held: _Held[_T] = self._take(key) or self._open(key, opener)
        try:
            yield held.value
        finally:
            self._release(key, held)

    def forget(self, owner: int) -> None:
        """Closes all values of one owner; pinned values are closed when they are released."""
        with self._lock:
            keys = [key for key in list(self._held) if key[0] == owner]  # type: ignore[index]
            dropped = [self._held.pop(key, None) for key in keys]
            idle = [held for held in dropped if held is not None and not held.pins]
        for held in idle:
            held.value.close()

    def _take(self, key: Hashable) -> _Held[Any] | None:
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                held.pins += 1
                self._held.move_to_end(key)
            return held

    def _open(self, key: tuple[int, str], opener: Callable[[str], _T]) -> _Held[_T]:
        # Opens without the lock, because a cold directory can make an open wait for the disk. If
        # two threads open the same file, the second uses the first one's value.
        try:
            value = opener(key[1])
        except KafkaStorageError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            self.evict(keep=0)
            value = opener(key[1])
        with self._lock:
            held = self._held.get(key)
            if held is None:
                held = self._held[key] = _Held(value)
            else:
                held.pins += 1
        if held.value is not value:
            value.close()
        self.evict(keep=self.files_max)
        return held

    def _release(self, key: Hashable, held: _Held[Any]) -> None:
        with self._lock:
            held.pins -= 1
            orphaned = held.pins == 0 and self._held.get(key) is not held
        if orphaned:
            held.value.close()

    def evict(self, keep: int) -> None:
        """Closes values that nobody uses, the longest unused first, until `keep` are left."""
        victims = []
        with self._lock:
            excess = len(self._held) - keep
            if excess > 0:
                for key, held in list(self._held.items()):
                    if not held.pins and self._held.pop(key, None) is held:
                        victims.append(held)
                        excess -= 1
                        if excess <= 0:
                            break
        for held in victims:
            held.value.close()


def _files_max() -> int:
    wanted = SEGMENTS_OPEN_MAX * FILES_PER_SEGMENT
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return wanted if limit == resource.RLIM_INFINITY else max(FILES_PER_SEGMENT,
                                                              min(wanted, limit // 4))


_shared = HandleCache(_files_max())


def shared_cache() -> HandleCache:
    """The process-wide cache, for logs that do not ask for their own."""
    return _shared
