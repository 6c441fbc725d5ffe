"""Output files: one that counts what is written, and one that gets its name when it is complete."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO

from seglog.errors import KafkaStorageError

__all__ = ["CountedFile", "OutputFile"]


class CountedFile:
    """A file with a position, which writers of formats ask for, also where it is a pipe.

    Once `is_cut`, what is written is dropped: a writer cannot be closed without the end of its
    format, after which the rows before a failure look like all.
    """

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.size, self.is_cut = file, 0, False

    def write(self, data: bytes) -> int:
        """All of it."""
        view = memoryview(data)
        if not self.is_cut:
            self._file.write(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """The number of bytes written."""
        return self.size

    def flush(self) -> None:
        """Flushes the file."""
        self._file.flush()


class OutputFile:
    """The file of a `with` block: has a temporary name in the same directory, and gets its own when
    the block succeeds.

    A block that raises leaves no new file and does not change an existing one. A file that replaces
    another gets its mode, and its owner and group where this user may set them. Anything but a
    regular file (a pipe, a terminal) is written to directly. A link stays, and the file that it
    names is written. Raises KafkaStorageError: EEXIST for an existing file without `force`, and
    system errors.
    """

    def __init__(self, path: str, *, force: bool) -> None:
        self._path, self._force = os.path.abspath(path), force
        # A rename to the name of a link would replace the link: /dev/stdout of the whole machine.
        self._target = os.path.realpath(path)
        self._temporary: str | None = None
        self._file: BinaryIO

    def __enter__(self) -> BinaryIO:
        try:
            self._file = self._open()
        except OSError as error:
            raise self._refused(error) from None
        return self._file

    def _open(self) -> BinaryIO:
        found: os.stat_result | None = None
        with suppress(FileNotFoundError):
            found = os.stat(self._path)
        if found is not None:
            if stat.S_ISDIR(found.st_mode):
                raise IsADirectoryError(errno.EISDIR, "Is a directory")
            if not stat.S_ISREG(found.st_mode):
                return open(self._path, "wb")
            if not self._force:
                raise self._exists()
        temporary = os.path.join(os.path.dirname(self._target),
                                 f".seglog-export-{secrets.token_hex(8)}.part")
        # Others may read the records only if they may read the file that these replace.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL,
                             0o666 if found is None else 0o600)
        self._temporary = temporary
        if found is not None:
            with suppress(OSError):  # only root may change the owner
                os.fchown(descriptor, found.st_uid, found.st_gid)
            with suppress(OSError):
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
        return os.fdopen(descriptor, "wb")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        try:
            if kind is None:
                self._complete()
            else:
                with suppress(OSError):
                    self._file.close()
        except OSError as failure:
            raise self._refused(failure) from None
        finally:
            if self._temporary is not None:
                with suppress(OSError):
                    os.unlink(self._temporary)
        if isinstance(error, OSError) and not isinstance(
                error, KafkaStorageError | BrokenPipeError):
            raise self._refused(error) from None

    def _complete(self) -> None:
        self._file.flush()
        if self._temporary is None:
            self._file.close()
            return
        os.fsync(self._file.fileno())
        self._file.close()
        if not self._force:
            try:
                os.link(self._temporary, self._target)  # fails if the file has appeared meanwhile
                return
            except FileExistsError:
                raise self._exists() from None
            except OSError:
                pass  # a file system without links
        os.replace(self._temporary, self._target)
        self._temporary = None

    def _exists(self) -> FileExistsError:
        return FileExistsError(errno.EEXIST, "the file exists; --force replaces it")

    def _refused(self, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(error.errno or errno.EIO, error.strerror or str(error), self._path)
