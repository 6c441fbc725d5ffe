"""Every golden partition reads back exactly what a consumer got, by both ways of reading."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog.storage.partition_log import PartitionLog
from tests.oracle.batch import Row
from tests.oracle.log import Entry, entries
from tests.support.golden import read_truth, real_partitions
from tests.support.reading import read_rows

OLD = [f"old-v{magic}-{codec}-0" for magic in (0, 1) for codec in
       ("none", "gzip", "snappy", "lz4")] + ["old-mixed-0"]
PARTITIONS = [(f"real/{kind}", f"real/truth/{kind}", name) for kind, name in real_partitions()] + [
    ("old", "old/truth", name) for name in OLD]
ISOLATIONS = ["read_uncommitted", "read_committed"]


@pytest.fixture(params=PARTITIONS, ids=lambda param: f"{param[0]}/{param[2]}")
def partition(request: pytest.FixtureRequest, golden: Path) -> tuple[PartitionLog, Path]:
    kind, truth, name = request.param
    return PartitionLog.open(golden / kind / name), golden / truth / f"{name}.jsonl"


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("threads", [0, 2])
def test_to_arrow_gives_the_truth(partition: tuple[PartitionLog, Path], isolation: Any,
                                  threads: int) -> None:
    log, truth = partition
    assert read_rows(log, isolation=isolation, threads=threads) == read_truth(truth, isolation)
    assert log.gaps == ()


@functools.cache
def _rows(magic: int, data: bytes) -> list[Row]:
    """A batch's rows: each way of fetching gets the same batches."""
    return Entry(0, 0, len(data), magic, data).rows()


def fetched(log: PartitionLog, isolation: Any, max_bytes: int) -> Iterator[dict[str, Any]]:
    """A consumer: fetch, decode with the oracle, drop what a consumer drops."""
    offset = log.log_start_offset
    aborted: set[tuple[int, int, int, int]] = set()
    while (found := log.fetch(offset, max_bytes, isolation)).records:
        aborted |= set(found.aborted_transactions or ())
        for entry in entries(found.records + bytes(18)):
            for row in _rows(entry.magic, entry.data):
                hidden = row["is_transactional"] and any(
                    row["producer_id"] == producer and first <= row["offset"] <= last
                    for producer, first, last, _ in aborted)
                if offset <= row["offset"] and not row["is_control"] and not hidden:
                    yield row
        assert found.next_offset > offset
        offset = found.next_offset


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("max_bytes", [0, 20_000])
def test_fetches_give_the_truth(partition: tuple[PartitionLog, Path], isolation: Any,
                                max_bytes: int) -> None:
    log, truth = partition
    names = ("offset", "timestamp", "timestamp_type", "key", "value")
    got = [{name: row[name] for name in names} for row in fetched(log, isolation, max_bytes)]
    assert got == [{name: row[name] for name in names} for row in read_truth(truth, isolation)]


@pytest.mark.parametrize("kind", ["clean", "unclean"])
def test_offsets_are_those_of_kafkas_loader(golden: Path, kind: str) -> None:
    loaded = json.loads((golden / "real/loaded.json").read_text())[kind]
    assert len(loaded) > 15
    for name, state in loaded.items():
        # Of a directory that waits for deletion Kafka's loader does not ask how far it goes.
        if "error" in state or name.endswith("-delete"):
            continue
        log = PartitionLog.open(golden / "real" / kind / name)
        assert log.log_start_offset == state["log_start_offset"], name
        assert log.log_end_offset == state["log_end_offset"], name
        assert len(log.segments) == len(state["segments"]), name
