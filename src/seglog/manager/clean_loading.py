"""The logs that were closed cleanly or lost nothing in a crash, many per call, as rows (see
`unopened`).

All logs that need a repair, a report or an error are left to the loader.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from seglog._native.clean_load import sync_clean, write_indexes
from seglog.config.log import LONG_MAX
from seglog.log.readable_log import described
from seglog.log.unified_log import UnifiedLog, load_unified_log
from seglog.manager.state import ManagerState
from seglog.manager.unopened import UnopenedLogs
from seglog.model import TopicPartition
from seglog.recovery.clean_rows import CleanRows
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.disk import RealDisk
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.root import PartitionDirectory
from seglog.recovery.snapshot_files import log_reading
from seglog.storage.paths import (
    HIGH_WATERMARK_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT,
    snapshot_name,
)

__all__ = ["CleanLoading", "says_little"]

_log = logging.getLogger("seglog.manager.loading")
_loader_log = logging.getLogger("seglog.UnifiedLog")
_snapshot_log = logging.getLogger("seglog.ProducerStateManager")
_recovery_log = logging.getLogger("seglog.LogLoader")

_Offsets = Mapping[str, Mapping[TopicPartition, int]]


def says_little() -> bool:
    """Whether the loader's debug messages about its checks are off."""
    names = ("UnifiedLog", "LogLoader", "LogSegment", "ProducerStateManager", "manager.loading")
    return not any(logging.getLogger(f"seglog.{name}").isEnabledFor(logging.DEBUG)
                   for name in names)


class CleanLoading:
    """The plain logs of one data directory. `offsets` are those of its checkpoints by name.
    `after_crash`, a log whose recovery changes more than indexes and a snapshot is not plain."""

    def __init__(self, state: ManagerState, load: DirectoryLoad, offsets: _Offsets, *,
                 after_crash: bool) -> None:
        self._state, self._load, self._log_dir = state, load, load.path
        self._offsets, self._after_crash = offsets, after_crash

    def read(self, partitions: Sequence[PartitionDirectory]) -> CleanRows:
        """The rows of those partitions that are plain; see `DirectoryLoad.read_rows`."""
        keys = [one.topic_partition for one in partitions]
        configs = [self._state.configs.of(key.topic) for key in keys]
        rows = CleanRows.read(
            self._log_dir, keys, configs,
            start_offsets=self._offsets[LOG_START_OFFSET_CHECKPOINT],
            recovery_points=self._offsets[RECOVERY_POINT_CHECKPOINT],
            high_watermarks=self._offsets[HIGH_WATERMARK_CHECKPOINT],
            segments_max=self._load.row_segments_max, will_write=True,
            after_crash=self._after_crash, now_ms=self._state.now_ms(),
            producer_idle_ms=self._state.producer_id_expiration_ms)
        # A tiered log begins before its first segment.
        is_remote = [self._state.context.is_remote(config, key.topic)
                     for key, config in zip(keys, configs, strict=True)]
        is_plain = rows.is_plain & ~np.array(is_remote, bool)
        if self._after_crash:
            # The flushes by time know opened logs alone.
            never = np.array([config.flush_ms == LONG_MAX for config in configs], bool)
            is_plain &= never | (rows.files["recovery_point"] == rows.files["log_end_offset"])
            rows.files["plain"] = is_plain
            write_indexes(self._log_dir, [str(key) for key in keys], rows.files, rows.contents)
            is_plain = rows.is_plain
        strays = rows.files["stray_snapshot"]
        for row in np.flatnonzero(is_plain & (strays >= 0)).tolist():
            is_plain[row] = self._delete_stray(keys[row], int(strays[row]))
        for row in np.flatnonzero(is_plain & (rows.files["snapshot_at"] >= 0)).tolist():
            is_plain[row] = self._write_snapshot(keys[row], rows, row)
        return rows.where(is_plain)

    def _delete_stray(self, key: TopicPartition, offset: int) -> bool:
        """Deletes a stray snapshot. Returns whether it is gone; if not, the loader reports why."""
        try:
            os.unlink(os.path.join(self._log_dir, str(key), snapshot_name(offset)))
        except OSError:
            return False
        return True

    def _write_snapshot(self, key: TopicPartition, rows: CleanRows, row: int) -> bool:
        """Replaces the snapshot at the log's end by that of the recovery, atomically; `finish`
        makes it durable. Returns whether it is there; if not, the loader reports why."""
        data = rows.new_snapshot(row)
        assert data is not None
        try:
            RealDisk(os.path.join(self._log_dir, str(key))).replace(
                snapshot_name(int(rows.files["log_end_offset"][row])), data, sync=False)
        except OSError:
            return False
        return True

    def finish(self) -> UnopenedLogs | None:
        """The logs of all rows; None where nothing was plain. After a crash they are durable now:
        a second crash must not undo what the first process created, renamed or deleted, because
        later writes rely on it. KafkaStorageError."""
        is_logged = any(one.isEnabledFor(logging.INFO)
                        for one in (_log, _loader_log, _snapshot_log))
        rows = self._load.finish_rows(self._log_row if is_logged else None)
        if rows is None:
            return None
        context = self._state.context
        if self._after_crash:
            sync_clean(self._log_dir, [str(key) for key in rows.keys], rows.files)
        return UnopenedLogs(
            self._log_dir, rows, self._state.now_ms(),
            partial(_open_log, self._state), self._state.producer_id_expiration_ms,
            context.producer_id_expiration_check_interval_ms)

    # ---- the loader's messages ----------------------------------------------------------------

    def _log_row(self, part: CleanRows, row: int, completed: int) -> None:
        self._log_load(part, row)
        key, files, mark = part.keys[row], part.files[row], part.high_watermarks[row]
        start, end = files["log_start_offset"], files["log_end_offset"]
        topic_id = part.topic_id(row) if files["has_topic_id"] else None
        _log.info("Completed load of %s with %d segments, local-log-start-offset %d and "
                  "log-end-offset %d in %dms (%d/%d completed in %s)",
                  described(os.path.join(self._log_dir, str(key)), key, topic_id, mark, mark,
                            start, end), files["segments"], start, end, 0, completed,
                  len(self._load.partitions), self._log_dir)

    def _log_load(self, part: CleanRows, row: int) -> None:
        key, end = part.keys[row], int(part.files["log_end_offset"][row])
        prefix = f"[LogLoader partition={key}, dir={self._log_dir}] "
        # A recovery with batches has written it.
        has_snapshot = bool(part.files["has_snapshot"][row]) or (
            self._after_crash and bool(part.files["last_size"][row]))
        if (stray := int(part.files["stray_snapshot"][row])) >= 0:
            _snapshot_log.info("Deleted producer state snapshot %s", self._snapshot(key, stray))
        if self._after_crash:
            self._log_recovery(part, row, prefix)
        _loader_log.info("%sLoading producer state till offset %s", prefix, end)
        if has_snapshot or self._after_crash:
            _loader_log.info("%sReloading from producer snapshot and rebuilding producer state "
                             "from offset %s", prefix, end)
        if has_snapshot:
            log_reading(end, self._snapshot(key, end))
        if key not in self._offsets[HIGH_WATERMARK_CHECKPOINT]:
            _log.info("No checkpointed highwatermark is found for partition %s", key)
        _log.info("Log loaded for partition %s with initial high watermark %d", key,
                  part.high_watermarks[row])

    def _log_recovery(self, part: CleanRows, row: int, prefix: str) -> None:
        """The recovery of the last segment, with the snapshots before and after it."""
        key, files = part.keys[row], part.files[row]
        base, end = int(files["last_base_offset"]), int(files["log_end_offset"])
        _recovery_log.info("%sRecovering unflushed segment %s. %s recovered for %s.", prefix, base,
                           0, key)
        _loader_log.info("%sLoading producer state till offset %s", prefix, base)
        _loader_log.info("%sReloading from producer snapshot and rebuilding producer state from "
                         "offset %s", prefix, base)
        if end > base and files["has_snapshot"]:
            _snapshot_log.info("Deleted producer state snapshot %s", self._snapshot(key, end))
        if base > part.start_offsets[row] and files["segments"] > 1:
            log_reading(base, self._snapshot(key, base))
        elif base > part.start_offsets[row]:  # there is none, and it is deleted with the log start
            _snapshot_log.info("Wrote producer snapshot at offset %s with %s producer ids.", base,
                               0)
            _snapshot_log.info("Deleted producer state snapshot %s", self._snapshot(key, base))
        if end > base:
            _snapshot_log.info("Wrote producer snapshot at offset %s with %s producer ids.", end,
                               files["producers"])

    def _snapshot(self, key: TopicPartition, offset: int) -> str:
        return os.path.join(self._log_dir, str(key), snapshot_name(offset))


def _open_log(state: ManagerState, logs: UnopenedLogs, row: int) -> UnifiedLog:
    """Loads the log of a row as the start would have done, but for a second recovery of what it has
    recovered. KafkaStorageError, LogLoadError."""
    rows = logs.rows
    key, log_dir = rows.keys[row], logs.log_dir
    inputs = LoadInputs(
        key, True, int(rows.start_offsets[row]), logs.recovery_point(row), rows.configs[row],
        is_recovered=rows.after_crash,
        producer_id_expiration_ms=state.producer_id_expiration_ms, clock=state.now_ms)
    with state.failures.guard(log_dir, f"Error while opening log for {key} in dir {log_dir}",
                              reads=True):
        log = load_unified_log(logs.path(key), inputs, context=state.context,
                               loaded_ms=logs.loaded_ms)
        log.update_high_watermark(int(rows.high_watermarks[row]))
    return log
