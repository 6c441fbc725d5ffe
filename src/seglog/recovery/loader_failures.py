"""The ways in which Kafka's loader abandons a log, carried as exceptions inside a dry run."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from seglog.errors import (
    KafkaStorageError, LogLoadError, MalformedCheckpointError, SeglogError,
)
from seglog.recovery.findings import Finding, finding

__all__ = ["FileVanished", "LoaderFailure", "checkpoint_failure", "public_errors"]

# Exceptions other than IOException of Kafka's checkpoint reader, by the code of our error.
_UNCHECKED = {
    "checkpoint_number": "NumberFormatException",
    "checkpoint_capacity": "IllegalArgumentException",
    "epoch_negative": "IllegalArgumentException",
    "partition_metadata_short": "NullPointerException",
    "partition_metadata_uuid": "IllegalArgumentException",
}


class LoaderFailure(Exception):
    """Kafka's loader would throw `kafka_error` with `message`. Does not leave seglog.recovery."""

    def __init__(self, kafka_error: str, message: str, *, number: int | None = None,
                 **where: Any) -> None:
        """`number` is the errno of an IOException."""
        super().__init__(message)
        self.kafka_error, self.message, self.where = kafka_error, message, where
        self.number = number or errno.EIO

    def to_error(self, path: str) -> SeglogError:
        """The public error for a load of the partition directory `path`."""
        where = {name: self.where.get(name) for name in ("position", "expected", "found")}
        file = os.path.join(path, self.where.get("file") or "")
        if self.kafka_error not in ("IOException", "KafkaStorageException"):
            return LogLoadError(self.message, kafka_name=self.kafka_error, file=file,
                                code="log_unloadable", **where)
        error = KafkaStorageError(self.number, self.message, file)
        error.kafka_name = self.kafka_error  # type: ignore[misc]
        error.file = file
        error.position, error.expected, error.found = where.values()
        return error

    def to_finding(self, directory: str, code: str = "log-unloadable") -> Finding:
        """The failure as a finding."""
        return finding(code, message=self.message, directory=directory,
                       kafka_error=self.kafka_error, **self.where)


class FileVanished(Exception):
    """A file that phase one saw is gone: another process changes the directory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@contextlib.contextmanager
def public_errors(path: str) -> Iterator[None]:
    """Converts the errors of work on the partition directory `path` into public ones:
    KafkaStorageError for errors of the file system, LogLoadError where Kafka abandons the log."""
    try:
        yield
    except LoaderFailure as failure:
        raise failure.to_error(path) from failure
    except FileVanished as vanished:
        raise KafkaStorageError(errno.ENOENT, "the file vanished while it was loaded",
                                os.path.join(path, vanished.name)) from None
    except KafkaStorageError:
        raise
    except OSError as error:
        raise KafkaStorageError(error.errno or errno.EIO, error.strerror or str(error),
                                error.filename or path) from error


def checkpoint_failure(error: MalformedCheckpointError, what: str, path: str,
                       name: str) -> LoaderFailure:
    """The failure for a malformed text file of a partition; `what` is Kafka's name for it."""
    where = {"file": name, "position": error.position, "expected": error.expected,
             "found": error.found}
    unchecked = _UNCHECKED.get(error.code)
    if unchecked is not None:
        return LoaderFailure(unchecked, str(error), **where)
    return LoaderFailure("KafkaStorageException", f"Error while reading {what} file {path}/{name}",
                         **where)
