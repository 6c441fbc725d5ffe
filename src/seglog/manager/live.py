"""The data directories of a manager: all configured ones, and those that work."""

from __future__ import annotations

import errno
import logging
import os
import threading
import uuid
from collections.abc import Sequence
from typing import NoReturn

from seglog.arguments import directory_path
from seglog.errors import AllLogDirsFailedError, LogDirNotFoundError
from seglog.log.log_dir_failures import LogDirFailureChannel
from seglog.manager.directories import (
    LogDirectory, create_and_validate_log_dirs, lock_log_dirs,
)
from seglog.manager.identity import Identities

__all__ = ["LiveDirectories"]

_Path = str | os.PathLike[str]
_log = logging.getLogger(__name__)


class LiveDirectories:
    """The configured data directories; those that work are locked. Safe from any thread."""

    def __init__(self, log_dirs: Sequence[str], identities: Identities,
                 channel: LogDirFailureChannel, keep_log_starts: bool) -> None:
        """Creates missing directories and takes the locks.

        Raises AllLogDirsFailedError, LogDirLockedError.
        """
        self.log_dirs = list(log_dirs)
        self._channel = channel
        self._lock = threading.RLock()
        self._live: dict[str, LogDirectory] = {}
        live = create_and_validate_log_dirs(log_dirs, identities.unreadable, channel)
        if not live:
            self._all_failed("No data directory can be used: none of the specified log dirs from "
                             f"{', '.join(log_dirs)} can be created or validated")
        ids = identities.directory_ids
        for directory in lock_log_dirs(
                [LogDirectory(path, ids.get(path), channel, keep_log_starts) for path in live],
                channel):
            try:
                directory.create_checkpoints()
            except OSError as error:
                channel.maybe_add_offline_log_dir(
                    directory.path, f"Error while creating checkpoints in {directory.path}", error)
                directory.unlock()
                continue
            self._live[directory.path] = directory
        if not self._live:
            self._all_failed(f"No data directory can be used: all log dirs in "
                             f"{', '.join(log_dirs)} have failed")

    def _all_failed(self, message: str) -> NoReturn:
        _log.critical("%s", message)
        raise self._error(message)

    def _error(self, message: str) -> AllLogDirsFailedError:
        """The error with the first failure: its cause and its file."""
        failure = self._channel.first
        if failure is None:
            return AllLogDirsFailedError(errno.EIO, message)
        cause = failure.error
        why = failure.message if cause is None else getattr(cause, "strerror", None) or str(cause)
        file = getattr(cause, "filename", None)
        if file and str(file) not in why:
            why = f"{file}: {why}"
        error = AllLogDirsFailedError(getattr(cause, "errno", None) or errno.EIO,
                                      f"{message}: {why}")
        error.__cause__ = cause
        return error

    def all(self) -> list[LogDirectory]:
        """The working directories, in configured order."""
        with self._lock:
            return list(self._live.values())

    def get(self, path: str) -> LogDirectory | None:
        """The directory at an absolute path, if it works."""
        with self._lock:
            return self._live.get(path)

    def remove(self, path: str) -> LogDirectory | None:
        """Removes a failed directory; None if it was removed before."""
        with self._lock:
            directory = self._live.pop(path, None)
        if not self._live:
            _log.critical("No data directory is left: all log dirs in %s have failed",
                          ", ".join(self.log_dirs))
        return directory

    @property
    def paths(self) -> list[str]:
        """Paths of the working directories."""
        return [directory.path for directory in self.all()]

    @property
    def offline(self) -> list[str]:
        """Paths of the failed directories."""
        live = set(self.paths)
        return [path for path in self.log_dirs if path not in live]

    @property
    def ids(self) -> dict[str, uuid.UUID]:
        """`directory.id` by path, for working directories that have one."""
        return {one.path: one.directory_id for one in self.all() if one.directory_id is not None}

    def path_of(self, directory_id: uuid.UUID) -> str | None:
        """The directory with that id, if it works."""
        return next((path for path, found in self.ids.items() if found == directory_id), None)

    def configured(self, log_dir: _Path) -> str:
        """The absolute path of a configured directory. Raises LogDirNotFoundError for any other."""
        path = directory_path("log_dir", log_dir)
        if path not in self.log_dirs:
            raise LogDirNotFoundError(f"Log dir {path} is not found in the config.")
        return path

    def require_one(self) -> None:
        """Raises AllLogDirsFailedError if none is left."""
        if not self._live:
            raise self._error("No data directory is left: all log dirs in "
                              f"{', '.join(self.log_dirs)} have failed")
