"""Small files read whole, within bounds, and replaced so that a crash leaves old or new."""

from __future__ import annotations

import os
from pathlib import Path

from seglog._native import file as native_file
from seglog.errors import KafkaStorageError, MalformedCheckpointError

__all__ = ["read_small_file", "replace_file", "sync_directory", "write_file"]

_Path = str | os.PathLike[str]


def read_small_file(path: _Path, bytes_max: int) -> bytes | None:
    """The content of a regular file, None where there is none.

    Raises KafkaStorageError for what is no regular file or cannot be read, and
    MalformedCheckpointError (`checkpoint_too_large`) above `bytes_max`.
    """
    try:
        descriptor, size = native_file.open_read(path)
    except KafkaStorageError as error:
        if error.code == "file_missing":
            return None
        raise
    try:
        if size > bytes_max:
            raise MalformedCheckpointError(
                f"{os.fspath(path)}: {size} bytes, at most {bytes_max} are read",
                file=os.fspath(path), expected=bytes_max, found=size, code="checkpoint_too_large")
        return native_file.read_at(descriptor, size, 0, file=path)
    finally:
        os.close(descriptor)


def replace_file(path: _Path, content: bytes, temporary: _Path) -> None:
    """Writes `temporary`, syncs it, renames it onto `path` and syncs the directory.

    After a crash `path` holds the old content or the new, never a part. An OSError of any of the
    steps becomes KafkaStorageError with its number and leaves the old file in place.
    """
    try:
        write_file(temporary, content)
        os.replace(temporary, path)
        sync_directory(Path(path).parent)
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"Error while writing to checkpoint file {os.path.abspath(path)}: "
            f"{error.strerror}", os.fspath(path)) from error


def write_file(path: _Path, content: bytes) -> None:
    """Writes a file in place and syncs it, not its directory. OSError; a crash may leave a part."""
    with open(path, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def sync_directory(path: _Path) -> None:
    """Makes the names in a directory durable. OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
