"""A damaged index costs speed, never an answer: all answers are those of a log without indexes."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seglog.arrow import DecodeOptions, decode_range
from seglog.storage import segment, stream
from seglog.model import MAX_TIMESTAMP
from seglog.storage.partition_log import PartitionLog
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import LogConfig
from tests.support.effort import examples
from tests.support.reading import rows_of

NUMBERS = st.one_of(
    st.sampled_from([0, 1, -1, -2, 2**31 - 1, -2**31, 4096, 2**30]), st.integers(-2**31, 2**31 - 1),
    st.integers(0, 40_000))
STAMPS = st.one_of(st.sampled_from([0, -1, 2**63 - 1, -2**63]), st.integers(-2**63, 2**63 - 1),
                   st.integers(4_000_000_000_000, 4_000_000_200_000))
OFFSET_ENTRIES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=40).map(
    lambda entries: b"".join(struct.pack(">ii", *entry) for entry in entries))
TIME_ENTRIES = st.lists(st.tuples(STAMPS, NUMBERS), max_size=40).map(
    lambda entries: b"".join(struct.pack(">qi", *entry) for entry in entries))
#: What to make of the bytes of an index.
CHANGES = st.sampled_from([
    lambda data, width: data[::-1], lambda data, width: bytes(len(data)),
    lambda data, width: b"\xff" * len(data), lambda data, width: data + bytes(4096),
    lambda data, width: data + data, lambda data, width: data[width:],
    lambda data, width: data[:-3], lambda data, width: b"",
    lambda data, width: data[len(data) // width // 2 * width:] + data[:len(data) // width // 2
                                                                      * width],
    lambda data, width: b"".join(data[at:at + width - 4] + struct.pack(
        ">I", -struct.unpack_from(">i", data, at + width - 4)[0] & 2**32 - 1)
        for at in range(0, len(data) // width * width, width))])


@pytest.fixture(autouse=True)
def small_logs_use_indexes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "INDEX_BYTES_MIN", 0)
    monkeypatch.setattr(stream, "RANGE_BYTES", 2000)
    monkeypatch.setattr("seglog.storage.partition_log.RANGE_BYTES", 2000)


def logs(tmp: Path, golden: Path | None) -> Iterator[Path]:
    config = LogConfig(segment_bytes=30_000, index_interval_bytes=400)
    for seed, magics in enumerate([(2,), (0, 1, 2), (1,)]):
        path = tmp / str(seed) / "topic-0"
        build_log(path, seed, Shape(batches=50, magics=magics, config=config))
        yield path
    if golden is not None:
        for name in ("plain-none-0", "txn-0", "compacted-0"):
            if (golden / "real" / "clean" / name).is_dir():
                shutil.copytree(golden / "real" / "clean" / name, tmp / name)
                yield tmp / name


def answers(path: Path, seed: int) -> dict[str, Any]:
    """What a log says, asked in many ways; the same questions for the same seed."""
    rnd, log = random.Random(seed), PartitionLog.open(path)
    first, last = log.log_start_offset, log.log_end_offset
    found: dict[str, Any] = {"end": last, "stable": log.last_stable_offset}
    for isolation in ("read_uncommitted", "read_committed"):
        found[isolation] = [row for columns in log.to_arrow(
            isolation=isolation, threads=rnd.choice([0, 2])) for row in rows_of(columns)]
    for number in range(4):
        start = rnd.randint(first, last)
        end = rnd.randint(start, last)
        found[f"rows {number}"] = [row["offset"] for columns in log.to_arrow(start, end)
                                   for row in rows_of(columns)]
        ranges = log.ranges(rnd.choice([1, 700, 5000]), start, end)
        for one, other in zip(ranges, ranges[1:], strict=False):
            assert one.file < other.file or (one.file == other.file and one.end == other.start)
        options = DecodeOptions(("offset",))
        found[f"ranges {number}"] = [offset for planned in ranges
                                     for columns in decode_range(planned, options)
                                     for offset in columns.to_pylists()["offset"]]
        assert found[f"ranges {number}"] == found[f"rows {number}"]
        found[f"fetch {number}"] = log.fetch(start, 500).records
        found[f"headers {number}"] = [batch.position for batch in log.batches(start, end)]
        stamp = rnd.choice([rnd.randint(0, 2**62), 4_000_000_000_000 + rnd.randint(0, 60_000),
                            1_700_000_000_000])
        found[f"time {number}"] = log.offset_for_timestamp(stamp)
    found["latest"] = log.offset_for_timestamp(MAX_TIMESTAMP)
    log.close()
    return found


@pytest.fixture(scope="module")
def truths(tmp_path_factory: pytest.TempPathFactory, golden: Path) -> list[tuple[Path, Any]]:
    made = []
    for path in logs(tmp_path_factory.mktemp("logs"), golden):
        indexes = {file.name: file.read_bytes() for file in path.iterdir()
                   if file.suffix in (".index", ".timeindex")}
        # An empty index cannot be wrong; without the file Kafka would rebuild more.
        for name in indexes:
            (path / name).write_bytes(b"")
        truth = {seed: answers(path, seed) for seed in range(3)}
        made.append((path, indexes, truth))
    return made  # type: ignore[return-value]


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_answer_is_that_of_a_log_without_indexes(truths: Any, data: st.DataObject) -> None:
    path, indexes, truth = data.draw(st.sampled_from(truths))
    how = data.draw(st.sampled_from(["garbage", "changed", "bits"]))
    for name, true in sorted(indexes.items()):
        width = 8 if name.endswith(".index") else 12
        if how == "garbage":
            raw = data.draw(OFFSET_ENTRIES if width == 8 else TIME_ENTRIES)
        elif how == "changed":
            raw = data.draw(CHANGES)(true, width)
        else:
            rnd, changed = data.draw(st.randoms(use_true_random=False)), bytearray(true)
            for _ in range(rnd.randint(1, 8) if changed else 0):
                changed[rnd.randrange(len(changed))] ^= 1 << rnd.randrange(8)
            raw = bytes(changed)
        (path / name).write_bytes(raw)
    seed = data.draw(st.sampled_from(sorted(truth)))
    assert answers(path, seed) == truth[seed]


def test_an_entry_with_a_negative_position_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "topic-0"
    build_log(path, 1, Shape(batches=60, config=LogConfig(index_interval_bytes=300)))
    truth = answers(path, 1)
    for index in path.glob("*.index"):
        raw = index.read_bytes()
        entries = list(struct.iter_unpack(">ii", raw))
        index.write_bytes(b"".join(struct.pack(">ii", offset, -position if n % 2 else position)
                                   for n, (offset, position) in enumerate(entries)))
    assert answers(path, 1) == truth
