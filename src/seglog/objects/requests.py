"""Requests to a store: a complete answer or one typed error, on threads shared by all readers."""

from __future__ import annotations

import atexit
import errno
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from seglog.errors import KafkaStorageError
from seglog.objects.directory_store import DirectoryStore
from seglog.objects.store_options import StorageOptions
from seglog.objects.store import Block, ObjectStore, ObjectVersion, StoreError

__all__ = ["Pool", "Requests", "in_background", "result_of"]

_T = TypeVar("_T")

#: Concurrent requests of the process; each waits in a thread, without the GIL.
THREADS: Final = 32
#: The end of the process waits so long for requests under way, which may be silent for a minute.
_END_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.5
_PAUSE_FIRST, _PAUSE_MAX = 0.05, 2.0
_FIRST_BYTES: Final = 1 << 20


class Requests:
    """Requests to one store by key; errors name the object's URL.

    Each method blocks, retries transient failures within the limits of the options, and raises
    KafkaStorageError with `code` file_missing (no such object), object_changed (not the requested
    version), object_read or object_write (the last failure).
    """

    def __init__(self, store: ObjectStore, options: StorageOptions) -> None:
        self._store, self._options = store, options
        self._is_local = isinstance(store, DirectoryStore)

    def list(self, prefix: str, url: str) -> tuple[dict[str, ObjectVersion], list[str]]:
        """The objects and prefixes directly below a prefix; others in the answer are ignored."""
        objects, prefixes = self._retry(lambda: self._store.list(prefix), url, 0)
        start = f"{prefix}/" if prefix else ""
        return ({info.key.removeprefix(start): info.version for info in objects
                 if _is_below(info.key, start)},
                [key.removeprefix(start) for key in prefixes if _is_below(key, start)])

    def version(self, key: str, url: str) -> ObjectVersion:
        """Size and entity tag of an object."""
        return self._retry(lambda: self._store.size(key), url, 0)

    def read(self, key: str, start: int, end: int, version: ObjectVersion, url: str) -> Block:
        """Exactly bytes [start, end) of this version of an object."""

        def ask() -> Block:
            data, found = self._store.read(key, start, end)
            _check_version(version, found, url, start)
            _check_size(data, end - start)
            return data

        try:
            return self._retry(ask, url, start)
        except KafkaStorageError as error:
            if error.code == "object_read":
                self._explain(error, key, version, url, start)
            raise

    def beginning(self, key: str, url: str, bytes_max: int) -> tuple[Block, int] | None:
        """The bytes of an object and its size; None if it does not exist. Of an object above
        `bytes_max` only the first, at most 1 MiB. Takes one request for an object of up to 1 MiB
        or above `bytes_max`, else two."""
        first = min(_FIRST_BYTES, max(1, bytes_max))
        try:
            data, version = self._retry(partial(self._read_first, key, first), url, 0)
            if version.size <= len(data) or version.size > bytes_max:
                return data, version.size
            return self.read(key, 0, version.size, version, url), version.size
        except KafkaStorageError as error:
            if error.code == "file_missing":
                return None
            if error.code == "object_read" and self.version(key, url).size == 0:
                return b"", 0  # every range of an empty object is invalid
            raise

    def write(self, key: str, content: bytes | Path, url: str) -> None:
        """Makes or replaces an object. Written again after a failure that may pass."""
        self._retry(lambda: self._store.write(key, content), url, 0, "object_write")

    def delete(self, key: str, url: str) -> None:
        """Removes an object, if it is there."""
        self._retry(lambda: self._store.delete(key), url, 0, "object_write")

    def sweep(self, prefix: str, url: str) -> None:
        """Removes what broken writes left of objects whose key begins with `prefix`."""
        self._retry(lambda: self._store.sweep(prefix), url, 0, "object_write")

    def _read_first(self, key: str, size: int) -> tuple[Block, ObjectVersion]:
        data, version = self._store.read(key, 0, size)
        _check_size(data, min(size, version.size))
        return data, version

    def _explain(self, error: KafkaStorageError, key: str, version: ObjectVersion, url: str,
                 start: int) -> None:
        """Raises the real cause of a refused range: stores report a range beyond the end of an
        object that shrank as an invalid request."""
        try:
            found = self._store.size(key)
        except StoreError as failure:
            if failure.is_missing:
                raise _error(errno.ENOENT, "no such object, or no longer", url, start,
                             "file_missing") from None
            return
        _check_version(version, found, url, start)

    def _retry(self, ask: Callable[[], _T], url: str, position: int,
               code: str = "object_read") -> _T:
        deadline = time.monotonic() + self._options.retry_timeout_seconds
        pause = _PAUSE_FIRST
        for attempt in range(self._options.max_retries + 1):
            try:
                if self._is_local or threading.current_thread() is not threading.main_thread():
                    return ask()
                # Clients look at no signal while they wait. Here Ctrl-C arrives.
                return result_of(in_background(ask))
            except StoreError as failure:
                if failure.is_missing:
                    raise _error(errno.ENOENT, "no such object, or no longer", url, position,
                                 "file_missing") from None
                wait = pause * random.uniform(0.5, 1)
                if not failure.may_pass or attempt == self._options.max_retries or \
                        time.monotonic() + wait > deadline:
                    raise _error(errno.EIO, str(failure), url, position, code) from None
            time.sleep(wait)
            pause = min(2 * pause, _PAUSE_MAX)
        raise AssertionError("the last attempt returns or raises")


def _is_below(key: str, start: str) -> bool:
    return key.startswith(start) and len(key) > len(start)


def _check_size(data: Block, size: int) -> None:
    if len(data) != size:
        raise StoreError(f"a short answer: {len(data)} of {size} bytes", may_pass=True)


def _check_version(expected: ObjectVersion, found: ObjectVersion, url: str, position: int) -> None:
    if expected.is_content_of(found):
        return
    raise _error(errno.ESTALE, f"the object changed while it was read: {_shown(expected)} was "
                 f"listed, {_shown(found)} is there now", url, position, "object_changed",
                 expected, found)


def _shown(version: ObjectVersion) -> str:
    if version.etag is None and version.modified_ms is not None:
        return f"{version.size} bytes (of {version.modified_ms} ms)"
    return f"{version.size} bytes" + (f" ({version.etag})" if version.etag else "")


def _error(number: int, reason: str, url: str, position: int, code: str, expected: object = None,
           found: object = None) -> KafkaStorageError:
    return KafkaStorageError(number, f"{reason} at byte {position}" if position else reason, url,
                             position=position, expected=expected, found=found, code=code)


# ---- threads

class Pool:
    """At most `threads` daemon threads, because the end of a process waits for those of a
    ThreadPoolExecutor. A forked child starts its own."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads, self._name = threads, name
        self._begin()
        _pools.append(self)

    def _begin(self) -> None:
        self._owner, self._started, self._lock = os.getpid(), 0, threading.Lock()
        self._tasks: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._futures: set[Future[Any]] = set()  # not done

    def submit(self, ask: Callable[[], _T]) -> Future[_T]:
        """Runs `ask` on a thread."""
        if self._owner != os.getpid():
            self._begin()
        future: Future[_T] = Future()
        with self._lock:
            self._futures.add(future)
            self._tasks.put((future, ask))
            if self._started < min(self._threads, len(self._futures)):
                self._started += 1
                threading.Thread(target=self._work, daemon=True,
                                 name=f"{self._name}-{self._started}").start()
        return future

    def _work(self) -> None:
        while True:
            future, ask = self._tasks.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(ask())
                except BaseException as error:
                    future.set_exception(error)
            with self._lock:
                self._futures.discard(future)
            del future, ask  # an idle thread keeps no block

    def stop(self) -> list[Future[Any]]:
        """Cancels what waits for a thread; what runs."""
        return [] if self._owner != os.getpid() else [
            future for future in list(self._futures) if not future.cancel()]


def result_of(future: Future[_T]) -> _T:
    """Its result, with looks meanwhile: Python misses a signal that comes as a wait begins."""
    while not future.done():
        with suppress(TimeoutError):
            future.exception(_LOOK_SECONDS)
    try:
        return future.result()
    finally:
        del future  # else its error refers to this frame, and this to the error


_pools: list[Pool] = []
_REQUESTS: Final = Pool(THREADS, "seglog-request")


def in_background(ask: Callable[[], _T]) -> Future[_T]:
    """Runs `ask`, which waits for no other, on a thread that all readers share."""
    return _REQUESTS.submit(ask)


@atexit.register
def _stop() -> None:
    """Waits a little for running requests: a client should not be in native code when the
    interpreter ends."""
    wait([future for pool in _pools for future in pool.stop()], _END_SECONDS)
