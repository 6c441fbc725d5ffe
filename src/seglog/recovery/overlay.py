"""An overlay: a disk that records the changes of a dry run and makes none."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from seglog.errors import KafkaStorageError, storage_errors
from seglog.model import EpochEntry
from seglog.recovery.scans import Extent

__all__ = ["OverlayDisk", "file_size", "read_up_to"]

_READ_BYTES = 1 << 20


def file_size(path: str) -> int | None:
    """The size of a regular file; None if there is none."""
    with storage_errors(path):
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def read_up_to(path: str, fd: int, position: int, size: int) -> bytes:
    """Up to `size` bytes, fewer at the end of the file."""
    parts = []
    while size > 0:
        with storage_errors(path, position):
            part = os.pread(fd, min(size, _READ_BYTES), position)
        if not part:
            break
        parts.append(part)
        position, size = position + len(part), size - len(part)
    return b"".join(parts)


@dataclass(frozen=True, slots=True)
class _OverlayFile:
    """A file of `size` bytes: `written` from its start on, then those of `source`, then zeros."""

    source: Extent
    written: bytes
    size: int

    def read(self, position: int, size: int) -> bytes:
        end = min(position + size, self.size)
        if end <= position:
            return b""
        parts = [self.written[position:end]]
        position += len(parts[0])
        if position < min(end, self.source.size):
            parts.append(_read(self.source, position, min(end, self.source.size)))
            position = min(end, self.source.size)
        return b"".join((*parts, bytes(end - position)))

    def resized(self, size: int) -> _OverlayFile:
        source = Extent(self.source.path, self.source.start,
                        self.source.start + min(self.source.size, size))
        return _OverlayFile(source, self.written[:size], size)


_NOTHING = Extent("", 0, 0)


def _read(extent: Extent, start: int, end: int) -> bytes:
    with storage_errors(extent.path):
        fd = os.open(extent.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return read_up_to(extent.path, fd, extent.start + start, end - start).ljust(
                end - start, b"\0")
        finally:
            os.close(fd)


class OverlayDisk:
    """See `seglog.recovery.disk.Disk`. Opens files only for reading."""

    def __init__(self, path: str) -> None:
        self.path = os.fspath(path)
        self._changed: dict[str, _OverlayFile | None] = {}

    def _file(self, name: str) -> _OverlayFile | None:
        if name in self._changed:
            return self._changed[name]
        path = os.path.join(self.path, name)
        size = file_size(path)
        return None if size is None else _OverlayFile(Extent(path, 0, size), b"", size)

    def _existing(self, name: str) -> _OverlayFile:
        found = self._file(name)
        if found is None:
            raise KafkaStorageError(errno.ENOENT, os.strerror(errno.ENOENT),
                                    os.path.join(self.path, name))
        return found

    def _file_or_new(self, name: str) -> _OverlayFile:
        found = self._file(name)
        if found is not None:
            return found
        self._refuse_other(name)
        return _OverlayFile(_NOTHING, b"", 0)

    def _refuse_other(self, name: str, *, is_replaced: bool = False) -> None:
        """Raises the error of a real disk if something else than a file has the name. With
        `is_replaced`, a rename would take the name, also from a link or a fifo."""
        if name in self._changed:
            return
        path = os.path.join(self.path, name)
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return  # none has it; other reasons are `_file`'s
        if stat.S_ISREG(mode) or (is_replaced and not stat.S_ISDIR(mode)):
            return
        number = (errno.EISDIR if stat.S_ISDIR(mode) else
                  errno.ELOOP if stat.S_ISLNK(mode) else errno.EINVAL)
        raise KafkaStorageError(number, os.strerror(number), path)

    def look(self, read: Sequence[str], measure: Sequence[str] = ()) -> None:
        """See Disk: reads nothing in advance."""

    def known(self, name: str) -> bytes | None:
        """See Disk."""
        return None

    def forget(self) -> None:
        """See Disk."""

    def size(self, name: str) -> int | None:
        """See Disk."""
        found = self._file(name)
        return None if found is None else found.size

    def extent(self, name: str) -> Extent:
        """See Disk. Only for logs, whose bytes are always those of real files."""
        found = self._file(name)
        return _NOTHING if found is None or not found.size else found.source

    def read(self, name: str, position: int, size: int) -> bytes:
        """See Disk."""
        return self._existing(name).read(position, size)

    def create(self, name: str, size: int = 0) -> None:
        """See Disk."""
        self._changed[name] = self._file_or_new(name).resized(size)

    def preallocate(self, name: str, size: int) -> None:
        """See Disk."""
        self.create(name, size)

    def resize(self, name: str, size: int) -> None:
        """See Disk."""
        self._changed[name] = self._existing(name).resized(size)

    def write(self, name: str, position: int, data: bytes) -> None:
        """See Disk."""
        found = self._file_or_new(name)
        size = max(found.size, position + len(data))
        before = found.read(0, position) if position > len(found.written) else found.written
        written = before[:position].ljust(position, b"\0") + data + before[position + len(data):]
        self._changed[name] = replace(found, written=written, size=size)

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See Disk. A file that has the content already stays, as on a real disk: the rebuilt
        indexes of a long log do not fit into memory, and nearly all are what is there."""
        if self.size(name) == len(data) and self.read(name, 0, len(data)) == data:
            return
        self._refuse_other(name, is_replaced=True)
        self._changed[name] = _OverlayFile(_NOTHING, data, len(data))

    def copy(self, source: str, start: int, end: int, name: str) -> None:
        """See Disk."""
        found = self._existing(source).source
        self._changed[name] = _OverlayFile(
            Extent(found.path, found.start + start, found.start + end), b"", end - start)

    def rename(self, name: str, new_name: str) -> bool:
        """See Disk."""
        found = self._file(name)
        if found is None:
            return False
        self._refuse_other(new_name, is_replaced=True)
        self._changed[name], self._changed[new_name] = None, found
        return True

    def delete(self, name: str) -> bool:
        """See Disk."""
        found = self._file(name)
        self._changed[name] = None
        return found is not None

    def keep(self, name: str, start: int = 0) -> None:
        """See Disk: nothing is truncated, so nothing is kept."""

    def write_epochs(self, epochs: Iterable[EpochEntry]) -> None:
        """See Disk: does nothing, because the epochs are not read again."""

    def overlay(self) -> OverlayDisk:
        """See Disk."""
        copy = OverlayDisk(self.path)
        copy._changed.update(self._changed)
        return copy

    def sync(self, name: str) -> None:
        """See Disk."""

    def open_for_sync(self, names: Iterable[str]) -> list[tuple[int, str]]:
        """See Disk: there is nothing to wait for."""
        return []

    def sync_directory(self) -> None:
        """See Disk."""

    def modified_ms(self, name: str) -> int:
        """See Disk. A recorded change has no time."""
        try:
            return os.lstat(os.path.join(self.path, name)).st_mtime_ns // 1_000_000
        except OSError:
            return 0

    def copy_times(self, source: str, name: str) -> None:
        """See Disk."""
