"""Lookups in mapped indexes: where the directory's lock is held, never under a file that is cut."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import LogConfig
from seglog.errors import OffsetOutOfRangeError
from seglog.log import readers
from seglog.log.local_reads import LocalReads
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from tests.support.waiting import wait_for

SETTINGS = {"internal.segment.bytes": "8000", "index.interval.bytes": "200",
            "file.delete.delay.ms": "0"}
RECORDS = 400

pytestmark = pytest.mark.skipif(sys.platform != "linux",
                                reason="reads /proc/self/maps, which only Linux has")


def mapped(directory: Path) -> set[str]:
    """The index files under a directory that this process has mapped."""
    return {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()
            if line.endswith(".index") and str(directory) in line}


def fill(log: seglog.EmbeddedLog) -> None:
    while log.log_end_offset < RECORDS:
        log.append(b"%d" % log.log_end_offset + b"." * 50)


def value_at(log: UnifiedLog, offset: int) -> bytes:
    records = log.read(offset, 1).records
    assert int.from_bytes(records[:8], "big") == offset
    return records


def test_maps_are_made_by_reads_and_end_before_a_cut(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0", config=SETTINGS) as program:
        fill(program)
        log = program.log
        assert log.number_of_segments > 3 and not mapped(tmp_path)
        before = {offset: value_at(log, offset) for offset in range(RECORDS)}
        assert len(mapped(tmp_path)) == log.number_of_segments
        log.truncate_to(RECORDS // 2)
        assert not mapped(tmp_path)
        assert {offset: value_at(log, offset) for offset in range(RECORDS // 2)}.items() \
            <= before.items()
        assert len(mapped(tmp_path)) == log.number_of_segments
    assert not mapped(tmp_path)


@pytest.mark.parametrize("end", [lambda log: log.truncate_to(RECORDS // 2), UnifiedLog.close])
def test_the_index_of_a_segment_that_is_read_over_a_cut_is_mapped_no_more(
        tmp_path: Path, end: Callable[[UnifiedLog], object]) -> None:
    """A look at an entry beyond the file's end would kill the process, also if another one cuts it
    after this one closed the log."""
    with seglog.open(tmp_path / "t-0", config=SETTINGS) as program:
        fill(program)
        view = program.log.readers.view()
        held = [program.log.readers.segment(view, base) for base in view.base_offsets.tolist()]
        assert len(mapped(tmp_path)) == len(held)
        sizes = [one.reader.index.mapped_bytes for one in held]
        assert max(sizes[:-1]) < sizes[-1] == program.log.config.segment_index_bytes
        end(program.log)
        assert not mapped(tmp_path)
        assert [one.reader.index.mapped_bytes for one in held] == [0] * len(held)


def test_a_log_whose_directory_is_not_locked_is_not_mapped(tmp_path: Path) -> None:
    """Another process may cut its files."""
    with seglog.open(tmp_path / "t-0", config=SETTINGS) as program:
        fill(program)
    clock = MockTime()
    log = UnifiedLog.create(tmp_path / "t-0", LogConfig.from_properties(SETTINGS),
                            scheduler=clock.scheduler, time=clock)
    for offset in range(RECORDS):
        value_at(log, offset)
    assert not mapped(tmp_path)
    log.close()


def test_maps_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers._shared, "segments_max", 3)
    with seglog.open(tmp_path / "t-0", config=SETTINGS) as program:
        fill(program)
        for offset in range(RECORDS):
            value_at(program.log, offset)
        assert 0 < len(mapped(tmp_path)) <= 3


def test_a_read_survives_a_roll_of_the_active_segment(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of the old segment, which has no entry, is trimmed to nothing while a reader is
    about to search it, and the new segment has entries. No SIGBUS."""
    with seglog.open(tmp_path / "t-0", config=SETTINGS) as program:
        log, rolled = program.log, list[int]()
        program.append(b"first")
        add_aborted, read_segment = LocalReads._add_aborted, LocalReads._read_segment

        def roll() -> None:
            if not rolled:
                rolled.append(log.roll())
                for _ in range(30):
                    program.append(b"v" * 50)

        def add(reads: LocalReads, view: Any, segment: Any, *rest: Any) -> None:
            roll()
            assert (tmp_path / "t-0" / f"{0:020}.index").stat().st_size == 0
            add_aborted(reads, view, segment, *rest)

        def read(reads: LocalReads, segment: Any, *rest: Any) -> Any:
            roll()
            return read_segment(reads, segment, *rest)

        program.append(b"second")
        with monkeypatch.context() as patch:
            patch.setattr(LocalReads, "_add_aborted", add)
            found = log.read(0, 1000, "read_committed")
        assert rolled == [2] and found.aborted_transactions == []
        assert len(found.records) < 200
        rolled.clear()
        log.roll()
        program.append(b"alone")
        with monkeypatch.context() as patch:
            patch.setattr(LocalReads, "_read_segment", read)
            found = log.read(log.log_end_offset - 1, 1000, "read_committed")
        assert rolled and int.from_bytes(found.records[:8], "big") == rolled[0] - 1


def test_readers_race_with_truncations(tmp_path: Path) -> None:
    """No wrong batch, and no SIGBUS, while segments are cut, become active and are trimmed."""
    with seglog.open(tmp_path / "t-0", config=SETTINGS) as program:
        fill(program)
        wrong: list[BaseException] = []
        found: set[int] = set()
        done = threading.Event()

        def read(seed: int) -> None:
            rng = random.Random(seed)
            while not done.is_set() and not wrong:
                try:
                    offset = rng.randrange(RECORDS)
                    records = program.log.read(offset, 1).records
                    if records:  # else it was the log's end
                        assert int.from_bytes(records[:8], "big") == offset
                        found.add(offset)
                except OffsetOutOfRangeError:
                    pass
                except BaseException as error:
                    wrong.append(error)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        rng = random.Random(9)
        try:
            for _ in range(20):
                program.log.truncate_to(rng.randrange(RECORDS))
                fill(program)
            wait_for(lambda: len(found) > 10 or wrong)
        finally:
            done.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not wrong
