"""The border: every code of status.h has a sentence, a class and its numbers."""

from __future__ import annotations

import errno
import importlib.util
import pickle
import re
import sys
from pathlib import Path

import pytest

from seglog import errors
from seglog._native.status import Status, status_error

TABLE = Path(__file__).parents[2] / "csrc/include/seglog/statuses.h"
ERRORS = [status for status in Status if status.is_error and status is not Status.NO_MEMORY]
#: About what a caller passed, which stands in no file.
ARGUMENTS = [status for status in ERRORS if status >= Status.ENCODE_OFFSET]


def test_codes_are_those_of_the_table() -> None:
    codes = {name: int(number) for name, number in re.findall(
        r"^SLG_STATUS\((\w+), (\d+)\)", TABLE.read_text(), re.M)}
    assert codes == {status.name: status.value for status in Status}
    assert len(set(codes.values())) == len(codes)


def test_rows_of_the_table_may_be_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tools/make_capi.py reads each row or refuses the table; it skips none."""
    spec = importlib.util.spec_from_file_location(
        "make_capi", Path(__file__).parents[2] / "tools/make_capi.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "make_capi", tool)  # dataclasses ask for it
    spec.loader.exec_module(tool)
    assert tool.status_codes() == [(status.name, status.value) for status in Status]
    monkeypatch.setattr(tool, "HEADERS", tmp_path)
    table = tmp_path / "statuses.h"
    table.write_text("/* SLG_STATUS(name, code) */\n#define X(SLG_STATUS)\nSLG_STATUS(ONE, 1)\n"
                     "SLG_STATUS(\n    TWO, /* of\n two lines */\n    2) /* two */\n"
                     "  SLG_STATUS(THREE,\n             3)\n")
    assert tool.status_codes() == [("ONE", 1), ("TWO", 2), ("THREE", 3)]
    table.write_text("SLG_STATUS(ONE, 1)\nSLG_STATUS(TWO, ONE + 1)\n")
    with pytest.raises(ValueError, match="2 rows, of which 1"):
        tool.status_codes()


def test_outcomes_are_no_errors() -> None:
    outcomes = [status for status in Status if not status.is_error]
    assert [status.code for status in outcomes] == [
        "ok", "end", "torn_tail", "zero_tail", "full", "more", "codec"]
    for status in outcomes:
        with pytest.raises(ValueError, match="is an outcome"):
            status_error(status)
    with pytest.raises(ValueError, match="is not a valid Status"):
        status_error(15)


@pytest.mark.parametrize("status", ARGUMENTS, ids=lambda status: status.code)
def test_an_argument_is_refused_as_by_kafka(status: Status) -> None:
    error = status_error(status, file="row 7", expected=-17, found=39)
    assert type(error) is errors.IllegalArgumentError and isinstance(error, ValueError)
    assert str(error).startswith("row 7: ") and "{" not in str(error)


@pytest.mark.parametrize("status", [status for status in ERRORS if status not in ARGUMENTS],
                         ids=lambda status: status.code)
def test_error_names_file_position_expected_and_found(status: Status) -> None:
    error = status_error(status, file="/d/t-0/0.log", position=4242, expected=-17, found=39)
    assert isinstance(error, errors.SeglogError)
    assert isinstance(error, (errors.CorruptDataError, errors.KafkaStorageError))
    assert (error.file, error.position, error.expected, error.found, error.code) == (
        "/d/t-0/0.log", 4242, -17, 39, status.code)
    assert "/d/t-0/0.log" in str(error) and "4242" in str(error)
    assert "{" not in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert vars(again) == vars(error)


@pytest.mark.parametrize(("status", "kind"), [
    (Status.BATCH_CRC, errors.CorruptRecordError),
    (Status.BATCH_CODEC, errors.UnsupportedCompressionTypeError),
    (Status.RECORD_VARINT, errors.InvalidRecordError),
    (Status.LEGACY_SIZE, errors.CorruptRecordError),
    (Status.LEGACY_NESTED, errors.InvalidRecordError),
    (Status.LEGACY_CODEC, errors.UnsupportedCompressionTypeError),
    (Status.CODEC_TOO_LARGE, errors.DecompressionError),
    (Status.INDEX_SIZE, errors.CorruptIndexError),
    (Status.TXN_VERSION, errors.CorruptIndexError),
    (Status.FILE_SHRANK, errors.KafkaStorageError),
    (Status.LIMIT, errors.CorruptDataError),
])
def test_class_of_each_kind(status: Status, kind: type[Exception]) -> None:
    assert type(status_error(status)) is kind


def test_system_errors_keep_errno_and_file_name() -> None:
    error = status_error(Status.IO, file=Path("/x/y"), position=9, sys_errno=errno.EACCES)
    assert isinstance(error, errors.KafkaStorageError)
    assert (error.errno, error.filename, error.code) == (errno.EACCES, "/x/y", "io")
    assert "Permission denied" in str(error) and "byte 9" in str(error)
    assert status_error(Status.FILE_MISSING).errno == errno.ENOENT
    link = status_error(Status.FILE_KIND, file=b"/x/link", sys_errno=errno.ELOOP)
    assert "symbolic link" in str(link)


def test_memory_is_not_corruption() -> None:
    assert isinstance(status_error(Status.NO_MEMORY), MemoryError)


def test_names_of_files() -> None:
    assert str(status_error(Status.BATCH_CRC, file=7)).startswith("descriptor 7: ")
    assert status_error(Status.BATCH_CRC).file is None
    undecodable = status_error(Status.BATCH_CRC, file=b"/x/\xff")
    assert undecodable.file == "/x/\udcff"
