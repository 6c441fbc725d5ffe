"""The main promise: every golden partition reads back exactly what a consumer got."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seglog
from tests.oracle import log as oracle
from tests.support import golden as golden_data
from tests.support import reading

ISOLATIONS = ("read_uncommitted", "read_committed")
OLD = [f"old-v{magic}-{codec}-0" for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")]


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("name, partition", golden_data.real_partitions())
def test_a_partition_gives_its_truth(golden: Path, name: str, partition: str, isolation: str,
                                     threads: int) -> None:
    truth = golden / "real" / "truth" / name
    start, end = json.loads((truth / "watermarks.json").read_text())[partition]
    with seglog.PartitionLog.open(golden / "real" / name / partition,
                                  log_start_offset=start) as log:
        assert log.log_start_offset == start
        # The controller's log grew until the broker's end, which was after the consumers'.
        assert log.log_end_offset == end or partition == "__cluster_metadata-0"
        rows = reading.read_rows(log, start, end, isolation=isolation, threads=threads)
    assert rows == golden_data.read_truth(truth / f"{partition}.jsonl", isolation)


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_a_data_directory_gives_its_truths(golden: Path, name: str) -> None:
    """Through the front door: start offsets come from the checkpoint, ends from the log."""
    truth = golden / "real" / "truth" / name
    marks = json.loads((truth / "watermarks.json").read_text())
    with seglog.open_data_dir(golden / "real" / name) as found:
        assert found.had_clean_shutdown == (name == "clean")
        for partition, (start, end) in marks.items():
            topic, _, number = partition.rpartition("-")
            log = found.logs[seglog.TopicPartition(topic, int(number))]
            assert (log.log_start_offset, log.log_end_offset) == (start, end), partition
            for isolation in ISOLATIONS:
                assert reading.read_rows(log, isolation=isolation) == \
                    golden_data.read_truth(truth / f"{partition}.jsonl", isolation), partition


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("name", [*OLD, "old-mixed-0"])
def test_old_formats_give_their_truth(golden: Path, name: str, threads: int) -> None:
    with seglog.PartitionLog.open(golden / "old" / name) as log:
        for isolation in ISOLATIONS:
            assert reading.read_rows(log, isolation=isolation, threads=threads) == \
                golden_data.read_truth(golden / "old" / "truth" / f"{name}.jsonl")


@pytest.mark.parametrize("name, partition", golden_data.real_partitions())
def test_every_column_is_the_oracles(golden: Path, name: str, partition: str) -> None:
    """Control records and the facts of batches, which no consumer sees."""
    folder = golden / "real" / name / partition
    expected = oracle.read(folder)
    with seglog.PartitionLog.open(folder) as log:
        rows = reading.read_rows(log, columns=reading.ALL_COLUMNS, include_control=True)
        start = log.log_start_offset
    assert rows == [row for row in expected.rows if row["offset"] >= start]


def test_loaded_state_is_kafkas(golden: Path) -> None:
    """Offsets, segments and epochs of clean directories, as Kafka's loader has them."""
    recorded = json.loads((golden / "real" / "loaded.json").read_text())["clean"]
    assert len(recorded) > 15
    for partition, state in recorded.items():
        if "error" in state or partition.endswith("-delete"):
            continue
        with seglog.PartitionLog.open(golden / "real" / "clean" / partition,
                                      log_start_offset=state["log_start_offset"]) as log:
            assert log.log_end_offset == state["log_end_offset"], partition
            assert [segment.base_offset for segment in log.segments] == \
                [segment["base_offset"] for segment in state["segments"]]
            assert [[entry.epoch, entry.start_offset] for entry in log.leader_epochs] == \
                state["leader_epochs"]
