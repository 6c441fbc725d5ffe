"""Small files read whole, within bounds, and replaced so that a crash leaves old or new."""

from __future__ import annotations

import os
from pathlib import Path

from seglog._native import file as native_file
from seglog.errors import KafkaStorageError, MalformedCheckpointError

__all__ = ["read_small_file", "replace_file"]

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
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        directory = os.open(Path(path).parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise KafkaStorageError(
            error.errno, f"Error while writing to checkpoint file {os.path.abspath(path)}: "
            f"{error.strerror}", os.fspath(path)) from error
