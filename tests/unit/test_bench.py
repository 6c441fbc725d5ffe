"""The arithmetic behind the table of `make bench`, and the floors; how fast they are is no test."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from bench import __main__ as command
from bench import data, harness
from bench.floors import Floors
from bench.harness import Against, Compare, Row, Timed
from seglog._native.batch import scan_file
from seglog._native.status import Status
from tests.oracle.wire import crc32c


class Rounds:
    """pytest-benchmark's fixture as far as Compare uses it."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}

    def pedantic(self, run: Callable[[], object], *, setup: Callable[[], None] = lambda: None,
                 rounds: int, warmup_rounds: int = 0) -> object:
        result: object = None
        for _ in range(warmup_rounds + rounds):
            setup()
            result = run()
        return result


def takes(*seconds: float) -> Callable[[], Timed]:
    """Something whose rounds take these seconds; the first one warms up."""
    times: Iterator[float] = iter(seconds)
    return lambda: Timed(next(times), "done")


def test_a_ratio_is_of_medians_and_the_first_round_only_warms_up() -> None:
    benchmark, checked = Rounds(), []
    compare = Compare(benchmark)
    compare("read", takes(99, 2, 1, 8), [
        Against("peer", takes(77, 4, 6, 9), goal=3.0, check=checked.append),
        Against("a part", takes(3), work=5, once=True, goal=1.0),
    ], work=10, unit="records", check=checked.append, rounds=3)
    peer, part = benchmark.extra_info["rows"]
    assert (peer["ours"], peer["other_rate"]) == (5, pytest.approx(10 / 6))
    assert (peer["ratio"], peer["best"], peer["met"]) == (3, 4, True)
    assert (part["other_rate"], part["ratio"]) == (pytest.approx(5 / 3), pytest.approx(3))
    assert checked == ["done"] * 5


def test_a_wrong_result_fails_and_a_slow_one_does_not() -> None:
    def wrong(result: object) -> None:
        raise AssertionError(result)

    with pytest.raises(AssertionError):
        Compare(Rounds())("read", takes(1, 1), [], work=1, unit="GB", check=wrong, rounds=1)
    benchmark = Rounds()
    Compare(benchmark)("read", takes(1, 9), [Against("peer", takes(1, 1), goal=2.0)], work=1,
                       unit="GB", check=lambda result: None, rounds=1)
    assert benchmark.extra_info["rows"][0]["met"] is False


def test_the_table_says_what_was_met() -> None:
    benchmark = Rounds()
    compare = Compare(benchmark)
    compare.add(Row("memory", "B each", 150, "goal", 300, .5, goal=1.0, at_most=True))
    compare.add(Row("read", "records", 2.5e6, "peer", 1e6, 2.5, 2.6, goal=3.0))
    text = command.table(benchmark.extra_info["rows"]).splitlines()
    assert len({len(line) for line in text}) == 1
    assert [cell.strip() for cell in text[2].split("|")[1:-1]] == [
        "memory", "150 B each", "goal: 300 B each", "0.50", "", "<= 1", "yes"]
    assert [cell.strip() for cell in text[3].split("|")[1:-1]] == [
        "read", "2.5M records/s", "peer: 1M records/s", "2.50", "2.60", ">= 3", "NO"]


def test_every_bench_file_is_run() -> None:
    assert set(command.bench_files()) == set(command.ORDER)


@pytest.mark.parametrize("codec", range(5))
def test_a_log_is_what_it_says(tmp_path: Path, codec: int) -> None:
    log = data.write_log(tmp_path, 1000, codec=codec)
    with harness.opened(log.path) as fd:
        scan = scan_file(fd, 0, log.size, strict=True)
    assert scan.status == Status.END
    assert (scan.batch_count, scan.record_count) == (log.batches, log.records)
    assert scan.last_offset == log.last_offset


@pytest.fixture(scope="module")
def floors(tmp_path_factory: pytest.TempPathFactory) -> Floors:
    if shutil.which("cc") is None:
        pytest.skip("cc is missing: the floors are written in C")
    return Floors(tmp_path_factory.mktemp("floors"))


def test_floors_do_what_they_are_the_floor_of(floors: Floors, tmp_path: Path) -> None:
    path, content = tmp_path / "bytes", random.Random(1).randbytes(100_001)
    path.write_bytes(content)
    with harness.opened(path) as fd:
        for size in (len(content), 5000):
            assert floors.crc_pread(fd, size, window=4096) == crc32c(content[:size])
    index = b"".join(struct.pack(">ii", 10 * n, n) for n in range(1, 100))
    targets = np.array([0, 9, 10, 11, 500, 990, 2**31 - 1], np.int64)
    assert floors.bisect(index, targets).tolist() == [0, 0, 10, 10, 500, 990, 990]
    partition = data.write_segments(tmp_path / "root", 20) / "load-0"
    assert floors.load(partition, indexes=False) == floors.load(partition, indexes=True) == 20
    many = data.write_segments(tmp_path / "many", 600, indexed=False, partitions=2)
    both = [many / "load-0", many / "load-1"]
    assert floors.load(both[0], indexes=True, share=0, shares=2) == 344
    assert floors.load(both[0], indexes=True, share=1, shares=2) == 256
    assert floors.load_by_threads(both, 3) == 1200
    with pytest.raises(OSError, match="nowhere"):
        floors.load(tmp_path / "nowhere", indexes=True)


def test_the_floor_of_a_round_finds_the_last_records(floors: Floors, tmp_path: Path) -> None:
    records = [(b"%d" % (number * 7 % 40), b"v" * 100) for number in range(100)]
    with seglog.open(tmp_path / "t-0", batch_bytes=1000) as log:
        for key, value in records:
            log.append(key=key, value=value)
    logs = sorted((tmp_path / "t-0").glob("*.log"))
    keys, written = floors.clean(logs, len(records), 1000)
    assert (keys, written) == (40, 0)
    keys, written = floors.clean(logs, len(records), 1000, tmp_path / "target")
    target = (tmp_path / "target").read_bytes()
    assert keys == target.count(b"v" * 100) == 40
    assert written == len(target)
    with pytest.raises(OSError, match="a round"):
        floors.clean([tmp_path / "nowhere"], 1, 1000)
