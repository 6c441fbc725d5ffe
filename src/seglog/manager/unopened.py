"""Logs that were closed cleanly, or recovered in memory, loaded as rows of a table and not opened
yet.

A row has the values that the log would report. Its files are unchanged: a start extends the indexes
of the last segment for writing, and here the first caller who asks for the log does so. A log
without such a caller is still closed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from seglog._native.clean_load import largest_timestamps, sync_clean
from seglog.config import LogConfig
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from seglog.recovery.clean_rows import CleanRows
from seglog.storage.producer_state import is_expired

__all__ = ["UnopenedLogs"]

_UNKNOWN = np.iinfo(np.int64).min


class UnopenedLogs:
    """The unopened logs of one data directory, loaded at `loaded_ms`. Safe from any thread.

    `open_log(row)` opens the log of a row. `expires` is the idle time in ms after which a producer
    is removed (None: never), in checks every `expiry_interval_ms`.
    """

    def __init__(self, log_dir: str, rows: CleanRows, loaded_ms: int,
                 open_log: Callable[[UnopenedLogs, int], UnifiedLog], expires: int | None,
                 expiry_interval_ms: int) -> None:
        self.log_dir, self.rows, self.loaded_ms = log_dir, rows, loaded_ms
        self._open_log, self._expires, self._interval = open_log, expires, expiry_interval_ms
        self._row_of = {key: row for row, key in enumerate(rows.keys)}
        self._has_unflushed = rows.after_crash
        self._first_timestamps: npt.NDArray[np.int64] | None = None
        #: Whether retention has checked them since the load.
        self.was_swept = False

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._row_of))

    def path(self, key: TopicPartition) -> str:
        """The directory of a log."""
        return os.path.join(self.log_dir, str(key))

    def row(self, key: TopicPartition) -> int | None:
        """The row of a log; None if it is not here."""
        return self._row_of.get(key)

    def open(self, row: int) -> UnifiedLog:
        """Opens the log. Its row stays in the table until `take`, which the caller calls after
        adding the log."""
        return self._open_log(self, row)

    def take(self, key: TopicPartition) -> bool:
        """Removes a log. Returns whether it was here."""
        return self._row_of.pop(key, None) is not None

    # ---- what the logs would say --------------------------------------------------------------

    def _column(self, name: str) -> dict[TopicPartition, int]:
        values = self.rows.files[name].tolist()
        return {key: values[row] for key, row in self._members()}

    def _members(self) -> list[tuple[TopicPartition, int]]:
        return list(self._row_of.items())  # other threads may remove logs meanwhile

    def recovery_point(self, row: int) -> int:
        """Below it everything is flushed."""
        files = self.rows.files[row]
        return int(files["recovery_point" if self._has_unflushed else "log_end_offset"])

    def recovery_points(self) -> dict[TopicPartition, int]:
        """The recovery point of each log: its end, or after a crash what was flushed before."""
        return self._column("recovery_point" if self._has_unflushed else "log_end_offset")

    def flush(self) -> None:
        """Makes the logs durable up to their ends. Raises KafkaStorageError."""
        if not self._has_unflushed:
            return
        files = self.rows.files
        rows = [row for _, row in self._members()
                if files["recovery_point"][row] < files["log_end_offset"][row]]
        sync_clean(self.log_dir, [str(self.rows.keys[row]) for row in rows], files[rows], logs=True)
        self._has_unflushed = False

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of each log."""
        values = self.rows.high_watermarks.tolist()
        return {key: values[row] for key, row in self._members()}

    def log_start_offsets(self) -> dict[TopicPartition, int]:
        """The start offsets of logs that start after the base of their first segment."""
        files = self.rows.files
        behind = np.flatnonzero(files["log_start_offset"] > files["first_base_offset"]).tolist()
        found = ((self.rows.keys[row], int(files["log_start_offset"][row])) for row in behind)
        return {key: start for key, start in found if key in self._row_of}

    def number(self, key: TopicPartition, name: str) -> int:
        """One column of one log; 0 if it is not here any more."""
        row = self._row_of.get(key)
        return 0 if row is None else int(self.rows.files[name][row])

    def producer_count(self, now_ms: int) -> int:
        """The number of producers of all logs, without those that the last check found idle for too
        long."""
        files = self.rows.files
        rows = np.array([row for _, row in self._members()], np.int64)
        rows = rows[files["producers"][rows] > 0]
        looks = (now_ms - self.loaded_ms) // self._interval * self._interval
        at, count = self.loaded_ms + max(looks, 0), 0
        for first, producers in zip(files["producers_at"][rows].tolist(),
                                    files["producers"][rows].tolist(), strict=True):
            count += sum(self._expires is None or not is_expired(last, at, self._expires)
                         for last in self.rows.timestamps[first:first + producers].tolist())
        return count

    # ---- retention ----------------------------------------------------------------------------

    def sweep(self, now_ms: int, config_of: Callable[[str], LogConfig]) -> list[TopicPartition]:
        """The logs in which retention may delete or log something. It would not change the others.

        Skips compacted ones, as Kafka does.
        """
        self.was_swept = True
        by_topic: dict[str, LogConfig] = {}
        groups: dict[int, tuple[LogConfig, list[int]]] = {}
        for key, row in self._members():
            config = by_topic.get(key.topic)
            if config is None:
                config = by_topic[key.topic] = config_of(key.topic)
            if not config.compact:
                groups.setdefault(id(config), (config, []))[1].append(row)
        found: list[TopicPartition] = []
        for config, members in groups.values():
            rows = np.array(members, np.int64)
            found += [self.rows.keys[row] for row in
                      rows[self._may_be_deleted(rows, config, now_ms)].tolist()]
        return found

    def _may_be_deleted(self, rows: npt.NDArray[np.int64], config: LogConfig,
                        now_ms: int) -> npt.NDArray[np.bool_]:
        """Whether one of the rules of `log.retention` holds for the first segment."""
        files = self.rows.files[rows]
        single = files["second_base_offset"] < 0
        upper = np.where(single, files["log_end_offset"], files["second_base_offset"])
        found: npt.NDArray[np.bool_] = ~single & (upper <= files["log_start_offset"])
        if config.delete:
            stays = single & (files["size"] == 0)
            limit = config.retention_bytes
            if limit >= 0:
                found |= ~stays & (files["size"] - limit - files["first_size"] >= 0)
            if config.retention_ms >= 0:
                largest = self._largest_timestamps()[rows]
                # Unknown timestamps, and those in the future, are left to the log.
                old = (largest == _UNKNOWN) | (now_ms - largest > config.retention_ms)
                found |= (~stays & old) | (largest > now_ms)
        reached: npt.NDArray[np.bool_] = self.rows.high_watermarks[rows] >= upper
        return found & reached

    def _largest_timestamps(self) -> npt.NDArray[np.int64]:
        """The largest timestamp of the first segment of each log. It is read once:
        an unopened log does not change."""
        if self._first_timestamps is None:
            self._first_timestamps = largest_timestamps(
                self.log_dir, [str(key) for key in self.rows.keys],
                self.rows.files["first_base_offset"])
        return self._first_timestamps
