"""The classes of the loader's failures, and the public errors that they become."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from seglog.errors import KafkaStorageError, LogLoadError
from seglog.recovery.findings import Severity, finding
from seglog.recovery.loader import unreadable
from seglog.recovery.loader_failures import (
    CorruptRecord, InvalidOffset, InvalidRecord, IoFailure, LoaderFailure, OffsetOverflow,
)
from seglog.recovery.scans import Extent
from seglog.recovery.segment_recovery import RecoveryFailure, SegmentRecovery
from seglog._native.status import Status


@pytest.mark.parametrize(("make", "name"), [
    (CorruptRecord, "CorruptRecordException"), (InvalidRecord, "InvalidRecordException"),
    (InvalidOffset, "InvalidOffsetException"),
    (OffsetOverflow, "LogSegmentOffsetOverflowException")])
def test_kafkas_name(make: Callable[..., LoaderFailure], name: str) -> None:
    failure = make("what", file="5.log", position=7, expected=1, found=2)
    error = failure.to_error("/k/t-0")
    assert failure.kafka_error == name and isinstance(error, LogLoadError)
    assert (error.kafka_name, error.file, error.position, error.expected, error.found) == (
        name, "/k/t-0/5.log", 7, 1, 2)


@pytest.mark.parametrize(("number", "expected"), [(errno.EACCES, errno.EACCES),
                                                  (None, errno.EIO)])
def test_a_refused_read_takes_the_directory_offline(number: int | None, expected: int) -> None:
    """A recovery that ends with one says the same."""
    failure = IoFailure("cannot be read", number=number, file="5.log", position=7)
    recovery = SegmentRecovery(5, Extent("/k/t-0/5.log", 0, 9), 9, 5, 0, 0, Status.END, 0, 0)
    for one in (failure, RecoveryFailure(failure, recovery)):
        error = one.to_error("/k/t-0")
        assert isinstance(error, KafkaStorageError)
        assert (error.errno, error.kafka_name, error.file, error.position) == (
            expected, "IOException", "/k/t-0/5.log", 7)
        assert one.to_finding("t-0").kafka_error == "IOException"


@pytest.mark.parametrize(("number", "code", "severity"), [
    (errno.ENOENT, "file-missing", Severity.INFO),
    (errno.EACCES, "directory-unreadable", Severity.ERROR)])
def test_a_directory_that_cannot_be_listed(number: int, code: str, severity: Severity) -> None:
    """A topic that a broker deletes meanwhile is no problem."""
    error = KafkaStorageError(number, "why", "/k/t-0")
    assert unreadable(error) == finding(code, directory="t-0", message=str(error))
    assert unreadable(error).severity is severity
