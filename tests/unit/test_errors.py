"""Every error survives pickle: Spark's executors send errors to the driver."""

from __future__ import annotations

import copy
import os
import pickle
from typing import Any

import pytest

from seglog import errors

CLASSES = [found for name in errors.__all__ if isinstance(found := getattr(errors, name), type)]
#: Errors whose constructors take more than a message.
SPECIAL: list[errors.SeglogError] = [
    errors.CorruptRecordError("bad", file="/x", position=3, expected=1, found=2, code="batch_crc"),
    errors.LogLoadError("bad", kafka_name="InvalidOffsetException", file="/x"),
    errors.MetadataParseError("bad", kafka_name="OtherException", position=7),
    errors.UncheckedError("null", "NullPointerException"),
    errors.KafkaStorageError(2, "gone", "/x"),
    errors.KafkaStorageError(5, "bad", "/x", position=3, expected=1, found=2, code="batch_crc"),
    errors.AllLogDirsFailedError("all"),
    errors.RemoteMetadataTimeoutError("late"),
    errors.LogDirLockedError("/d", 1, "java"),
    errors.LogDirLockedError("/d", None),
    errors.ForkedProcessError("LogManager", 1),
    errors.RecordValidationError(errors.InvalidTimestampError("early"), ["a", "b"]),
    errors.UnexpectedAppendOffsetError("low", 3, 5),
    errors.LogCleaningError("broken"),
]


def _same(error: errors.SeglogError, again: Any) -> None:
    assert type(again) is type(error) and str(again) == str(error)
    assert {name: str(value) for name, value in vars(again).items()} == {
        name: str(value) for name, value in vars(error).items()}
    assert again.args == error.args and again.kafka_name == error.kafka_name
    if isinstance(error, OSError):
        assert (again.errno, again.strerror, again.filename) == (
            error.errno, error.strerror, error.filename)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", SPECIAL, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_pickle(error: errors.SeglogError, protocol: int) -> None:
    _same(error, pickle.loads(pickle.dumps(error, protocol)))
    _same(error, copy.copy(error))


@pytest.mark.parametrize("cls", [
    cls for cls in CLASSES if cls not in (errors.ForkedProcessError, errors.RecordValidationError)])
def test_every_class_keeps_its_message_and_attributes(cls: type[errors.SeglogError]) -> None:
    error = cls("text")
    error.batch_at = ("/t-0/0.log", 61)
    _same(error, pickle.loads(pickle.dumps(error)))


def test_a_message_about_a_process_does_not_change_in_another(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that reads a pickled error may have the pid that the error names."""
    locked, forked = errors.LogDirLockedError("/d", 4242, "java"), errors.ForkedProcessError(
        "LogManager", 4242)
    sent, texts = pickle.dumps((locked, forked)), (str(locked), str(forked))
    monkeypatch.setattr(os, "getpid", lambda: 4242)
    assert tuple(map(str, pickle.loads(sent))) == texts


def test_the_log_of_a_cleaning_error_stays_in_its_process() -> None:
    error = errors.LogCleaningError("broken", log=lambda: None)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == "broken" and again.log is None and error.log is not None


@pytest.mark.parametrize("cause, found", [
    (OSError(2, "gone", "/x"), (2, "gone", "/x", 7)),
    (OSError(28, "full"), (28, "full", "/log", 7)),
    (OSError("short"), (5, "short", "/log", 7)),
])
def test_an_error_of_the_system_becomes_one_of_storage(
        cause: OSError, found: tuple[int, str, str, int]) -> None:
    with pytest.raises(errors.KafkaStorageError) as caught, errors.storage_errors("/log", 7):
        raise cause
    error = caught.value
    assert (error.errno, error.strerror, error.file, error.position) == found
    assert error.__cause__ is cause


def test_an_error_of_seglog_stays_itself() -> None:
    cause = errors.RemoteMetadataTimeoutError("late")  # an OSError too
    with pytest.raises(errors.RemoteMetadataTimeoutError) as caught, errors.storage_errors("/log"):
        raise cause
    assert caught.value is cause
