"""The process that reads beside a world: it ends when it is told to, and says what is wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import seglog
from seglog.config import LogConfig
from tests.stress.operations import Subject
from tests.stress.reading_process import ReadingProcess
from tests.stress.truth import Writer
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def reader() -> Iterator[ReadingProcess]:
    with ReadingProcess() as made:
        yield made


def subject(path: Path, values: list[bytes]) -> Subject:
    with seglog.open(path) as log:
        log.append_many(values)
    return Subject(lambda: None, LogConfig(), cuts=False)  # type: ignore[arg-type, return-value]


def test_it_tells_what_it_read_and_reads_no_more_when_it_was_told(
        tmp_path: Path, reader: ReadingProcess) -> None:
    values = Writer().values(10)
    for root in (tmp_path / "one", tmp_path / "two"):
        it = subject(root / "t-0", [value.encode() for value in values])
        reader.begin("seed", [root], {"t": it})
        wait_for(lambda: it.truth._seen)
        reader.end()
        count = len(it.truth._seen)
        assert count % 10 == 0 and set(it.truth._seen) == set(enumerate(values))
        it.truth.appended(0, values)
        it.truth.check_seen()
        shutil.rmtree(root)


def test_it_reports_a_value_that_nobody_appended(tmp_path: Path) -> None:
    it = subject(tmp_path / "t-0", [b"wrong"])
    with ReadingProcess() as made:
        made.begin("seed", [tmp_path], {"t": it})
        wait_for(lambda: made._process.poll() is not None)
        for _ in range(2):
            with pytest.raises(AssertionError, match="a value that nobody appended: b'wrong'"):
                made.end()
