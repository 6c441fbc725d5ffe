"""Batch queries of damaged logs: an error, never records that are silently missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog.errors import CorruptRecordError
from seglog.spark.counts import _count
from seglog.spark.plan import plan_partitions
from seglog.spark.read_options import parse_options
from seglog.spark.source_reader import SeglogReader
from seglog.storage.stream import DecodeOptions
from tests.oracle.batch import Batch, Record
from tests.oracle.writer import LogConfig, LogWriter
from tests.support.damage import poke

COUNT = 5


def write(path: Path, config: LogConfig) -> list[Path]:
    """A log of small batches; its files."""
    writer = LogWriter(path, config)
    for offset in range(COUNT):
        writer.append(Batch(offset, 0, [Record(offset, 5, None, b"v")], base_timestamp=5,
                            max_timestamp=5))
    writer.close()
    return sorted(path.glob("*.log"))


def read(data: Path, **options: str) -> list[int]:
    given = parse_options({"path": str(data), **options})
    reader = SeglogReader(given, ("offset",))
    return [offset for task in plan_partitions(given) for batch in reader.read(task)
            for offset in batch.column(0).to_pylist()]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("damaged", [0, 2, COUNT - 1])
def test_damage_is_never_the_end(tmp_path: Path, isolation: str, damaged: int) -> None:
    data, (file,) = tmp_path, write(tmp_path / "t-0", LogConfig())
    size = file.stat().st_size // COUNT
    poke(file, (damaged + 1) * size - 2, b"x")
    options = {"kafka.isolation.level": isolation}
    with pytest.raises(CorruptRecordError) as told:
        read(data, **options)
    assert told.value.position == damaged * size
    assert read(data, **options, failOnDataLoss="false") == [
        offset for offset in range(COUNT) if offset != damaged]


@pytest.mark.parametrize("rest", [b"", bytes(100)], ids=["torn", "zeros"])
def test_a_segment_that_is_not_whole_is_lost_data(tmp_path: Path, rest: bytes) -> None:
    """A consumer could not pass its end either, if it is not the last one."""
    file, *_ = write(tmp_path / "t-0", LogConfig(segment_bytes=150))
    content = file.read_bytes()
    size = len(content) // 2
    file.write_bytes(content[:size] + (rest or content[size:-1]))
    given = parse_options({"path": str(tmp_path)})
    for act in (lambda: read(tmp_path),
                lambda: [_count(task, DecodeOptions(), given.storage, False)
                         for task in plan_partitions(given)]):
        with pytest.raises(CorruptRecordError, match=f"byte {size} are no whole batch") as told:
            act()
        assert "failOnDataLoss" in str(told.value) and told.value.position == size
    assert read(tmp_path, failOnDataLoss="false") == [0, 2, 3, 4]
    file.write_bytes(content)
    assert read(tmp_path) == list(range(COUNT))
