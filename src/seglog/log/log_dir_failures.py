"""The channel of failed data directories (Kafka: LogDirFailureChannel)."""

from __future__ import annotations

import contextlib
import copy
import errno
import logging
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from seglog.errors import KafkaStorageError
from seglog.forks import ProcessBound, ending
from seglog.model import TopicPartition
from seglog.recovery.loader_failures import public_errors

__all__ = ["CLOSED", "NO_DESCRIPTOR", "OFFLINE", "TOO_MANY_OPEN", "LogDirFailure",
           "LogDirFailureChannel", "closed_error", "public_errors"]

#: Codes of a KafkaStorageError that is not a new failure of a directory.
OFFLINE: Final = "log_dir_offline"
CLOSED: Final = "log_closed"
NO_DESCRIPTOR: Final = "too_many_open_files"
#: Errors that say nothing about a directory, if they come from a read. A change that one of them
#: interrupts is an error of the directory, as everywhere in Kafka.
_OF_THE_PROCESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
#: Those of them that no sync returns: only a file or a directory was not opened.
TOO_MANY_OPEN: Final = (errno.EMFILE, errno.ENFILE)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogDirFailure:
    """A data directory that went offline, and the cause."""

    log_dir: str
    message: str
    error: BaseException | None
    partitions: tuple[TopicPartition, ...] = field(default=())
    future_partitions: tuple[TopicPartition, ...] = field(default=())


class LogDirFailureChannel(ProcessBound):
    """A set of failed directories, and a queue of those that are not handled yet.

    A directory enters once and stays failed until the process ends. Safe from any thread.
    """

    def __init__(self) -> None:
        #: The directories that ever failed. Readable without a lock.
        self.failed: set[str] = set()
        #: The first failure, for the message that no directory is left.
        self.first: LogDirFailure | None = None
        self._causes: dict[str, BaseException] = {}
        self._queue: queue.SimpleQueue[LogDirFailure | None] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def maybe_add_offline_log_dir(self, log_dir: str, message: str,
                                  error: BaseException | None = None) -> None:
        """Queues the directory unless it failed before. Logs the message in any case."""
        _log.error("%s", message, exc_info=error)
        with self._lock:
            if log_dir in self.failed:
                return
            failure = LogDirFailure(log_dir, message, _without_traceback(error))
            if failure.error is not None:
                self._causes[log_dir] = failure.error
            self.failed.add(log_dir)
            self.first = self.first or failure
        self._queue.put(failure)

    def has_offline_log_dir(self, log_dir: str) -> bool:
        """Whether the directory ever failed. Takes no lock, because every operation calls it."""
        return log_dir in self.failed

    @property
    def is_any_offline(self) -> bool:
        """Whether any directory ever failed; cheap."""
        return bool(self.failed)

    def take_next_offline_log_dir(self, block: bool = True) -> LogDirFailure | None:
        """The next failure that is not handled. None after `close`, or without `block` if there is
        none."""
        try:
            return self._queue.get(block=block)
        except queue.Empty:
            return None

    @ending
    def close(self) -> None:
        """Wakes the threads that wait for a failure."""
        self._queue.put(None)

    def check_online(self, log_dir: str) -> None:
        """Raises KafkaStorageError if the directory ever failed, with the `errno` of its failure,
        which is the cause."""
        if log_dir not in self.failed:
            return
        cause = self._causes.get(log_dir)  # which perhaps no caller has seen
        refusal = KafkaStorageError(f"The log dir {log_dir} is already offline due to a previous "
                                    "IO exception.", code=OFFLINE)
        refusal.errno = getattr(cause, "errno", None)
        try:
            raise refusal from cause
        finally:
            del refusal  # otherwise it keeps its frames and their open files alive

    @contextlib.contextmanager
    def guard(self, log_dir: str, message: str, *, reads: bool = False,
              repeats: bool = False) -> Iterator[None]:
        """Runs an operation on a directory (Kafka: maybeHandleIOException).

        Raises the error of `check_online` at once if the directory is offline. An OSError in the
        body takes it offline and becomes KafkaStorageError with `message`, unless it is one for an
        offline directory or a closed log. A body that only reads (`reads`) leaves the directory
        online if the process has too many open files, or no memory. So does one that can be
        repeated (`repeats`, a sync) if there are too many open files; then all guards around it do,
        and the code of the error is NO_DESCRIPTOR.
        """
        self.check_online(log_dir)
        try:
            yield
        except OSError as error:
            if isinstance(error, KafkaStorageError) and error.code in (OFFLINE, CLOSED,
                                                                       NO_DESCRIPTOR):
                raise
            failure = KafkaStorageError(error.errno, f"{message}: {error.strerror}",
                                        error.filename or log_dir)
            if repeats and error.errno in TOO_MANY_OPEN:
                failure.code = NO_DESCRIPTOR
            elif not reads or error.errno not in _OF_THE_PROCESS:
                self.maybe_add_offline_log_dir(log_dir, message, error)
                failure.code = OFFLINE
            try:
                raise failure from error
            finally:
                del failure  # as in check_online


def _without_traceback(error: BaseException | None) -> BaseException | None:
    """A copy without its traceback, whose frames would keep files open until the queue is read; the
    error itself if its class, the caller's, cannot be copied."""
    try:
        return copy.copy(error)
    except Exception:
        return error


def closed_error(message: str) -> KafkaStorageError:
    """The error for work on a closed log: its directory is not at fault."""
    return KafkaStorageError(message, code=CLOSED)
