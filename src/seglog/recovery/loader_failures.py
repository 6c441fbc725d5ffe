"""The ways in which Kafka's loader abandons a log, carried as exceptions inside a dry run."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

from seglog.errors import (
    CorruptRecordError, InvalidRecordError, KafkaStorageError, LogLoadError,
    MalformedCheckpointError, SeglogError, storage_errors,
)
from seglog.recovery.findings import Finding, finding

__all__ = ["CorruptRecord", "FileVanished", "InvalidOffset", "InvalidRecord", "IoFailure",
           "LoaderFailure", "OffsetOverflow", "public_errors", "reading_error",
           "text_file_failures"]

# Exceptions other than IOException of Kafka's checkpoint reader, by the code of our error.
_UNCHECKED = {
    "checkpoint_number": "NumberFormatException",
    "checkpoint_capacity": "IllegalArgumentException",
    "epoch_negative": "IllegalArgumentException",
    "partition_metadata_short": "NullPointerException",
    "partition_metadata_uuid": "IllegalArgumentException",
}


class LoaderFailure(Exception):
    """Kafka's loader would throw `kafka_error` with `message`. Stays inside seglog.recovery.

    A failure that some caller handles has a class of its own.
    """

    def __init__(self, kafka_error: str, message: str, **where: Any) -> None:
        super().__init__(message)
        self.kafka_error, self.message, self.where = kafka_error, message, where

    def to_error(self, path: str) -> SeglogError:
        """The public error for a load of the partition directory `path`."""
        where = {name: self.where.get(name) for name in ("position", "expected", "found")}
        return LogLoadError(self.message, kafka_name=self.kafka_error, file=self._file(path),
                            code="log_unloadable", **where)

    def _file(self, path: str) -> str:
        return os.path.join(path, self.where.get("file") or "")

    def to_finding(self, directory: str, code: str = "log-unloadable") -> Finding:
        """The failure as a finding."""
        return finding(code, message=self.message, directory=directory,
                       kafka_error=self.kafka_error, **self.where)


class IoFailure(LoaderFailure):
    """A file cannot be read, which takes its data directory offline: Kafka's IOException or
    KafkaStorageException. `number` is the system's."""

    def __init__(self, message: str, *, kafka_error: str = "IOException",
                 number: int | None = None, **where: Any) -> None:
        super().__init__(kafka_error, message, **where)
        self.number = number or errno.EIO

    def to_error(self, path: str) -> SeglogError:
        """See LoaderFailure."""
        facts: dict[str, Any] = {
            name: self.where.get(name) for name in ("position", "expected", "found")}
        error = KafkaStorageError(self.number, self.message, self._file(path), **facts)
        error.kafka_name = self.kafka_error  # type: ignore[misc]
        return error


class CorruptRecord(LoaderFailure):
    """CorruptRecordException: a length that no batch or record has."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(CorruptRecordError.kafka_name, message, **where)


class InvalidRecord(LoaderFailure):
    """InvalidRecordException: a record that does not parse."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__(InvalidRecordError.kafka_name, message, **where)


class InvalidOffset(LoaderFailure):
    """InvalidOffsetException: an index entry that is not above the last one."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__("InvalidOffsetException", message, **where)


class OffsetOverflow(LoaderFailure):
    """LogSegmentOffsetOverflowException: a batch too far from the base of its segment."""

    def __init__(self, message: str, **where: Any) -> None:
        super().__init__("LogSegmentOffsetOverflowException", message, **where)


class FileVanished(Exception):
    """A file that phase one saw is gone: another process changes the directory."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def reading_error(failure: LoaderFailure, path: str) -> SeglogError:
    """The exception of a reader for bytes of the log file `path` at which Kafka's iteration
    throws."""
    if isinstance(failure, CorruptRecord):
        return CorruptRecordError(failure.message, file=path,
                                  position=failure.where.get("position"), code="batch_length")
    return failure.to_error(os.path.dirname(path))


@contextlib.contextmanager
def public_errors(path: str) -> Iterator[None]:
    """Converts the errors of work on the partition directory `path` into public ones:
    KafkaStorageError for errors of the file system, LogLoadError where Kafka abandons the log."""
    try:
        with storage_errors(path):
            yield
    except LoaderFailure as failure:
        raise failure.to_error(path) from failure
    except FileVanished as vanished:
        raise KafkaStorageError(errno.ENOENT, "the file vanished while it was loaded",
                                os.path.join(path, vanished.name)) from None


@contextlib.contextmanager
def text_file_failures(what: str, path: str, name: str) -> Iterator[None]:
    """Turns the error of a malformed text file of a partition into what Kafka's loader throws;
    `what` is Kafka's name for the file `name` of the directory `path`."""
    try:
        yield
    except MalformedCheckpointError as error:
        where = {"file": name, "position": error.position, "expected": error.expected,
                 "found": error.found}
        unchecked = _UNCHECKED.get(error.code)
        if unchecked is not None:
            raise LoaderFailure(unchecked, str(error), **where) from None
        raise IoFailure(f"Error while reading {what} file {path}/{name}",
                        kafka_error="KafkaStorageException", **where) from None
