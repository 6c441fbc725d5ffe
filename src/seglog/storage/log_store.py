"""Where the files of logs are stored: the local file system, or an object store.

Readers use `Files` for listings, log files, indexes and small files, and do not know which it is.
Code that writes, recovers or deletes uses the local file system only.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from seglog._native.file import open_read, read_at
from seglog._native.index import OffsetIndexView, TimeIndexView, read_aborted
from seglog._native.scan import PartitionListing, list_partition
from seglog._native.status import Status, status_error
from seglog._native.window import WindowSource
from seglog.arguments import given_path
from seglog.errors import KafkaStorageError, storage_errors
from seglog.objects.store_options import StorageOptions
from seglog.objects.store import ObjectVersion
from seglog.objects.urls import is_url, local_path
from seglog.storage.paths import FileKind, leads_to_directory
from seglog.storage.textfile import read_beginning, whole_content

__all__ = ["LOCAL", "CheckStart", "FileHandle", "Files", "IndexView", "ListedDirectory",
           "LocalFile", "LocalFiles", "LogFile", "Readable", "Source", "Stamp", "absolute",
           "costs_requests", "files_of", "place_of", "small_file"]

#: The input of native readers: a descriptor, or fetched blocks.
Source = int | WindowSource

_T = TypeVar("_T")
IndexView = TypeVar("IndexView", OffsetIndexView, TimeIndexView)

#: A second change of a directory within this time may not be visible in its modification time.
_TICK_NS: Final = 20_000_000
#: How often a directory that changes is listed.
_LOOKS: Final = 5


class Readable(Protocol):
    """Bytes of an open log file, for any thread."""

    @property
    def source(self) -> Source:
        """For one native call with random access."""

    def span(self, start: int, end: int) -> AbstractContextManager[Source]:
        """For a native reader of all of [start, end), in order."""

    def read(self, size: int, position: int) -> bytes:
        """Exactly `size` bytes. Raises KafkaStorageError if the file ends before."""


#: Raises if a block that begins a log is not of this log.
CheckStart = Callable[[memoryview], None]


class LogFile(Readable, Protocol):
    """An open log file."""

    path: str
    size: int

    def close(self) -> None:
        """Closes the file."""


class LocalFile:
    """Reads the local file `path` through its descriptor `fd` (Readable)."""

    __slots__ = ("fd", "path")

    fd: int
    path: str

    @property
    def source(self) -> Source:
        """Its descriptor."""
        return self.fd

    def span(self, start: int, end: int) -> AbstractContextManager[Source]:
        """Its descriptor: the kernel reads ahead."""
        return nullcontext(self.fd)

    def read(self, size: int, position: int) -> bytes:
        """See Readable."""
        return read_at(self.fd, size, position, file=self.path)


class FileHandle(LocalFile):
    """A local log file open for reading: its descriptor, and its size when it was opened."""

    __slots__ = ("size",)

    def __init__(self, path: str) -> None:
        self.fd, self.size = open_read(path)
        self.path = path

    def close(self) -> None:
        """Closes the descriptor, once."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A value that changes when a directory gains or loses a file, or a file changes.

    `modified_ns` is the last change in ns since 1970; a second change within the same tick of the
    file system's clock is not visible. None if every change is visible.
    """

    content: Hashable
    modified_ns: int | None


class Files(Protocol):
    """A place where files are stored. Paths are absolute, or URLs. Picklable, for any thread."""

    #: Factor by which a thread decodes more at a time than of a local file, because each range
    #: costs a request.
    range_factor: int

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """(name, whether it is a directory) for all entries of a directory. Raises
        KafkaStorageError, also if the directory is missing."""

    def listing(self, path: str) -> tuple[PartitionListing, Mapping[str, ObjectVersion]]:
        """One pass over a partition directory, and the versions of its objects by name if they have
        versions. Raises KafkaStorageError as `entries`."""

    def names(self) -> Mapping[tuple[int, FileKind], str]:
        """Files of segments that are stored under another name in that directory, by base offset
        and kind: absolute paths, or URLs. As of the last listing."""

    def stamp(self, directory: str, file: str | None) -> Stamp:
        """The state of a directory's listing and of one `file` in it. Raises KafkaStorageError,
        also if either is missing."""

    def state(self, path: str) -> Hashable | None:
        """A value that changes when a small file is replaced; None if there is none. Raises
        KafkaStorageError."""

    def open_log(self, path: str, version: ObjectVersion | None) -> LogFile:
        """Opens a log file; of an object, this version. Raises KafkaStorageError if it cannot be
        opened, or no longer has that version."""

    def index(self, view: type[IndexView], path: str, base_offset: int) -> IndexView:
        """An offset or time index. Nothing is read before the first lookup."""

    def aborted(self, path: str) -> npt.NDArray[np.void]:
        """The entries of a transaction index. Raises KafkaStorageError if it was deleted since the
        listing: no entries would make aborted records committed."""

    def beginning(self, path: str, bytes_max: int) -> tuple[bytes, int] | None:
        """The first bytes of a small file and the size of the whole; None if there is none. Raises
        KafkaStorageError."""


class LocalFiles:
    """The local file system."""

    range_factor = 1

    def entries(self, path: str) -> list[tuple[str, bool]]:
        """As os.scandir, with links followed. Raises OSError."""
        def look() -> list[tuple[str, bool]]:
            with os.scandir(path) as entries:
                return [(entry.name, leads_to_directory(entry)) for entry in entries]

        return _steadily(path, look, sorted)

    def listing(self, path: str) -> tuple[PartitionListing, Mapping[str, ObjectVersion]]:
        """See Files."""
        return _steadily(path, lambda: list_partition(path), lambda found: (
            found.base_offsets.tolist(), found.flags.tolist(), found.snapshots.tolist(),
            sorted(found.others))), {}

    def names(self) -> Mapping[tuple[int, FileKind], str]:
        """See Files: none."""
        return {}

    def stamp(self, directory: str, file: str | None) -> Stamp:
        """See Files: two calls of stat."""
        with storage_errors(directory):
            found = [os.stat(path) for path in (directory, file) if path is not None]
        return Stamp(tuple((one.st_mtime_ns, one.st_ino, one.st_size) for one in found),
                     max(one.st_mtime_ns for one in found))

    def state(self, path: str) -> Hashable | None:
        """See Files."""
        with storage_errors(path):
            try:
                found = os.stat(path)
            except FileNotFoundError:
                return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def open_log(self, path: str, version: ObjectVersion | None = None) -> FileHandle:
        """See Files."""
        return FileHandle(path)

    def index(self, view: type[IndexView], path: str, base_offset: int) -> IndexView:
        """See Files."""
        return view(path, base_offset)

    def aborted(self, path: str) -> npt.NDArray[np.void]:
        """See Files."""
        found = read_aborted(path)
        if not len(found) and self.state(path) is None:
            raise status_error(Status.FILE_MISSING, file=path)
        return found

    def beginning(self, path: str, bytes_max: int) -> tuple[bytes, int] | None:
        """See Files."""
        return read_beginning(path, bytes_max)

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Unpickles as the only instance."""
        return "LOCAL"


LOCAL: Final = LocalFiles()


class ListedDirectory(LocalFiles):
    """The files of one local directory that was listed, as long as no other one has its path: a
    partition that was deleted and created again has segments of the same names. Unpickles as
    LOCAL."""

    def __init__(self, path: str) -> None:
        self._path, self._place = path, _place(path)

    def open_log(self, path: str, version: ObjectVersion | None = None) -> FileHandle:
        """See Files."""
        handle = FileHandle(path)
        try:
            self._check(path)
        except KafkaStorageError:
            handle.close()
            raise
        return handle

    def aborted(self, path: str) -> npt.NDArray[np.void]:
        """See Files."""
        found = super().aborted(path)
        self._check(path)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _local, ()

    def _check(self, file: str) -> None:
        """What was opened before this is of the listed directory, if that is still there, or if
        none is."""
        if _place(self._path) not in (None, self._place):
            raise KafkaStorageError(errno.ENOENT, "another directory took the place of the one "
                                    "that was listed", file)


def _local() -> LocalFiles:
    return LOCAL


def _place(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _steadily(path: str, look: Callable[[], _T], content: Callable[[_T], object]) -> _T:
    """What `look` finds in a directory while no file comes or goes.

    A pass over a large directory takes several system calls. A file that gets another name between
    two of them may appear under neither, and of two files only the one that was created later.
    """
    before: object = None
    for _ in range(_LOOKS):
        modified_ns, now_ns = _modified_ns(path), time.time_ns()
        found = look()
        if _modified_ns(path) == modified_ns and modified_ns + _TICK_NS < now_ns:
            break
        seen = content(found)
        if seen == before:
            break
        before = seen
    return found


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0  # the listing says why


def files_of(path: str, options: StorageOptions | Mapping[str, str] | None = None) -> Files:
    """The Files that a path or URL belongs to. Raises KafkaStorageError for a URL that no client
    can read."""
    if not is_url(path):
        return LOCAL
    from seglog.storage.remote import RemoteFiles

    return RemoteFiles(path, options if isinstance(options, StorageOptions)
                       else StorageOptions(options))


def costs_requests(files: Files) -> bool:
    """Whether files are read by requests to a store."""
    return files.range_factor > 1


def place_of(value: str | os.PathLike[str], name: str = "path") -> str:
    """A path as given, or the path of a `file://` URL; other URLs without a trailing slash. Raises
    as `given_path`."""
    path = given_path(value, name)
    if not is_url(path):
        return path
    return given_path(local_path(path) or path.rstrip("/"), name)


def absolute(path: str) -> str:
    """The absolute path; a URL is returned unchanged."""
    return path if is_url(path) else os.path.abspath(path)


def small_file(files: Files, path: str, bytes_max: int) -> bytes | None:
    """The content of a small file, None if there is none. Raises KafkaStorageError, and
    MalformedCheckpointError (`checkpoint_too_large`) above `bytes_max`."""
    return whole_content(files.beginning(path, bytes_max), path, bytes_max)
