"""LocalLog.replaceSegments, and what a crash in the middle of it leaves."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seglog._native.batch import scan
from seglog.config import LogConfig
from seglog.errors import LogLoadError
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from tests.log.test_fast_path import NOW, batch

FAR = 2**31
#: Last offsets of the batches in a segment at 0 that no index can describe.
OFFSETS = [0, 7, FAR + 3, FAR + 4, 2 * FAR + 9]
CHANGES = ("create", "resize", "write", "replace", "copy", "rename", "delete")


class Dead(BaseException):
    """The process is no more."""


def at(offset: int) -> bytes:
    data = batch(timestamp=NOW + offset % 1000)
    return struct.pack(">q", offset) + data[8:12] + struct.pack(">i", 0) + data[16:]


def overflowed(path: Path) -> UnifiedLog:
    """A log whose first segment has offsets beyond its indexes, as only compaction of old made."""
    path.mkdir(parents=True)
    (path / "00000000000000000000.log").write_bytes(b"".join(map(at, OFFSETS)))
    (path / "00000000000000000000.index").touch()
    (path / f"{3 * FAR:020d}.log").write_bytes(at(3 * FAR))
    (path / f"{3 * FAR:020d}.index").touch()
    return opened(path)


def opened(path: Path, *, clean: bool = True) -> UnifiedLog:
    clock = MockTime(current_time_ms=NOW)
    return UnifiedLog.create(path, LogConfig.from_properties({"segment.index.bytes": "1200"}),
                             scheduler=clock.scheduler, time=clock, clean_shutdown=clean,
                             recovery_point=3 * FAR + 1)


def offsets_of(log: UnifiedLog) -> list[int]:
    found: list[int] = []
    start = 0
    while start < log.log_end_offset:
        rows = scan(log.read(start, 1 << 20).records).batches
        found += rows["last_offset"].tolist()
        start = found[-1] + 1
    return found


EVERYTHING = [*OFFSETS, 3 * FAR]


def test_split(tmp_path: Path) -> None:
    log = overflowed(tmp_path / "t-0")
    assert log.split_overflowed_segment(0) == [0, FAR + 3, 2 * FAR + 9]
    assert log.segments.base_offsets.tolist() == [0, FAR + 3, 2 * FAR + 9, 3 * FAR]
    assert offsets_of(log) == EVERYTHING and log.readers.replaced_to == 3 * FAR
    assert log.segments.created_ms[0] == pytest.approx(time.time() * 1000, abs=60_000)
    assert not [path for path in log_files(tmp_path) if path.endswith((".swap", ".cleaned"))]
    with pytest.raises(LogLoadError, match="only permitted for segments with overflow") as caught:
        log.split_overflowed_segment(0)
    assert caught.value.kafka_name == "IllegalArgumentException"
    log.close()
    assert offsets_of(opened(tmp_path / "t-0")) == EVERYTHING


def log_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "t-0").iterdir())


def test_readers_meanwhile(tmp_path: Path) -> None:
    """A reader of a replaced segment continues in the new ones."""
    log = overflowed(tmp_path / "t-0")
    before = log.read(0, 1).records
    log.split_overflowed_segment(0)
    assert log.read(0, 1).records == before == at(0)
    assert log.read(FAR, 1).records == at(FAR + 3)


def test_a_crash_at_every_step(tmp_path: Path) -> None:
    """Whatever step was the last, the next load has every batch once, in old segments or new."""
    step, whole = 0, 0
    while True:
        path = tmp_path / f"{step}" / "t-0"
        log = overflowed(path)
        if not dies(log, step, partial(log.split_overflowed_segment, 0)):
            break
        log.close_handlers()
        again = opened(path)
        assert offsets_of(again) == EVERYTHING, step
        whole += len(again.segments) == 4
        again.close()
        shutil.rmtree(path.parent)
        step += 1
    assert step > 20 and 0 < whole < step  # some were undone, and some completed


def dies(log: UnifiedLog, step: int, work: Callable[[], object]) -> bool:
    """Works with a disk that is gone at one of its changes, and stays so; whether it came to that.
    """
    disk: Any = log.disk
    left = step

    def dying(real: Any) -> Any:
        def change(*args: Any, **how: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Dead
            left -= 1
            return real(*args, **how)
        return change

    for name in CHANGES:
        setattr(disk, name, dying(getattr(disk, name)))
    try:
        work()
    except Dead:
        return True
    return False


def test_an_append_after_a_split_at_the_load_counts_the_bytes_before_it(tmp_path: Path) -> None:
    """Kafka continues with the segments that it wrote, and with what LogSegment.append counted."""
    path = tmp_path / "t-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(b"".join(map(at, [0, FAR, FAR + 1, FAR + 2])))
    (path / f"{0:020d}.index").touch()
    (path / f"{0:020d}.timeindex").touch()
    size = len(batch())
    time = MockTime(current_time_ms=NOW)
    log = UnifiedLog.create(
        path, LogConfig.from_properties({"index.interval.bytes": str(2 * size)}), time=time,
        scheduler=time.scheduler, clean_shutdown=False)
    assert log.segments.base_offsets.tolist() == [0, FAR]
    index = path / f"{FAR:020d}.index"
    for _ in range(2):
        log.append_as_leader(batch(), 0)
    log.close()
    assert index.read_bytes() == struct.pack(">ii", 3, 3 * size)
