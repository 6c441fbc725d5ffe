"""The shutdown of a manager: flush, close, checkpoints, markers (LogManager.shutdown)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from seglog.errors import KafkaStorageError
from seglog.log.unified_log import UnifiedLog
from seglog.manager.offset_checkpoints import write_recovery_points
from seglog.manager.directories import LogDirectory
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.recovery.worker_pool import WorkerPool
from seglog.manager.table import LogTable
from seglog.manager.unopened import UnopenedLogs

__all__ = ["abandon_logs", "close_logs"]

_log = logging.getLogger(__name__)


def close_logs(directories: Sequence[LogDirectory], table: LogTable,
               channel: LogDirFailureChannel, threads: int, broker_epoch: int) -> None:
    """Flushes and closes all current and future logs, and marks the directories without errors. A
    log that was never opened is still in the state of its last close, or is flushed.

    A directory with a log that fails to close gets neither checkpoints nor a marker, so its next
    start runs a recovery.
    """
    pools: list[WorkerPool] = []
    try:
        jobs: list[tuple[LogDirectory, list[Future[None]]]] = []
        for directory in directories:
            _log.debug("Flushing and closing logs at %s", directory.path)
            pool = WorkerPool(threads, f"log-closing-{directory.path}", numbered=False)
            pools.append(pool)
            jobs.append((directory, [
                *(pool.submit(partial(_flush, logs, directory, channel))
                  for logs in table.unopened(directory.path)),
                *(pool.submit(partial(_close, log, directory, channel))
                  for log in table.opened(directory.path))]))
        for directory, futures in jobs:
            if _wait_for_all(futures):
                _finish(directory, table, broker_epoch)
    finally:
        for pool in pools:
            pool.shutdown()


def abandon_logs(table: LogTable) -> None:
    """Closes the files of all logs without changes: none is used again."""
    table.seal()
    for log in table.opened():
        log.close_handlers()


def _flush(logs: UnopenedLogs, directory: LogDirectory, channel: LogDirFailureChannel) -> None:
    with channel.guard(directory.path, f"Error while flushing logs in dir {directory.path}"):
        logs.flush()


def _close(log: UnifiedLog, directory: LogDirectory, channel: LogDirFailureChannel) -> None:
    key = log.topic_partition
    with log.lock:
        with channel.guard(directory.path, f"Error while flushing log for {key} in dir "
                                           f"{directory.path} with offset {log.log_end_offset}"):
            log.flush(True)
        # The text is Kafka's, although nothing is renamed here.
        with channel.guard(directory.path, f"Error while renaming dir for {key} in dir "
                                           f"{directory.path}"):
            log.close()


def _wait_for_all(futures: Sequence[Future[None]]) -> bool:
    """Waits for all of them. Returns whether all succeeded."""
    success = True
    for future in futures:
        try:
            future.result()
        except Exception as error:
            _log.warning("There was an error in one of the threads during LogManager shutdown: %s",
                         error, exc_info=error)
            success = False
    return success


def _finish(directory: LogDirectory, table: LogTable, broker_epoch: int) -> None:
    """Writes checkpoints, then the marker: a later start relies on this order."""
    with contextlib.suppress(KafkaStorageError):  # it is logged, and in the failure channel
        if directory.knows_its_logs:
            _log.debug("Updating log start offsets at %s", directory.path)
            _log.debug("Updating recovery points at %s", directory.path)
            write_recovery_points(directory, table)
        if directory.may_be_marked_clean:
            _log.debug("Writing clean shutdown marker at %s", directory.path)
            with contextlib.suppress(OSError):
                directory.write_clean_shutdown_marker(broker_epoch)
