"""Which wrong indexes a load deletes: those of segments that it does not recover anyway."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from seglog.config import LogConfig
from seglog.model import TopicPartition
from seglog.recovery.directory_load import DirectoryLoad
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.open_log import load_log
from seglog.recovery.partition_plan import LoadLevel, check_partition
from seglog.recovery.wrong_indexes import without_wrong_indexes, wrong_rows
from tests.oracle.batch import Batch, Record, encode
from tests.recovery.test_disks import Ears

BASES = [10, 20, 30]


@pytest.mark.parametrize(("recovery_point", "deleted"), [
    (None, BASES), (0, []), (10, []), (19, []), (20, [10]), (29, [10]), (30, [10, 20]),
    (40, [10, 20])])
def test_wrong_indexes_below_the_recovery_point_are_deleted(
        tmp_path: Path, recovery_point: int | None, deleted: list[int]) -> None:
    for base in BASES:
        (tmp_path / f"{base:020d}.log").write_bytes(encode(Batch(
            base, 0, [Record(base, 1000, b"k", b"v")], base_timestamp=1000, max_timestamp=1000)))
        (tmp_path / f"{base:020d}.index").write_bytes(b"wrong")
        (tmp_path / f"{base:020d}.timeindex").touch()
    plan = check_partition(str(tmp_path), LoadLevel.FULL)
    assert wrong_rows(plan.problems).tolist() == [0, 1, 2]
    after = without_wrong_indexes(plan, recovery_point)
    left = [int(path.stem) for path in sorted(tmp_path.glob("*.index"))]
    assert left == [base for base in BASES if base not in deleted]
    assert (after is plan) == (not deleted)
    # The rows of the others are the same; the deleted ones are missing now.
    assert len(after.problems) == len(plan.problems) + len(deleted)
    assert after.problems["row"].tolist() == sorted(after.problems["row"].tolist())


@pytest.mark.parametrize("level", LoadLevel)
def test_every_level_but_kafkas_deletes_them(
        tmp_path: Path, level: LoadLevel, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka trusts an index that points beyond its log."""
    path, ears, wrong = tmp_path / "t-0", Ears(), struct.pack(">ii", 0, 5000)
    path.mkdir()
    for base in (0, 1):
        (path / f"{base:020d}.log").write_bytes(encode(Batch(
            base, 0, [Record(base, 1000, b"k", b"v")], base_timestamp=1000, max_timestamp=1000)))
        (path / f"{base:020d}.index").write_bytes(wrong * (base == 0))
        (path / f"{base:020d}.timeindex").touch()
    inputs = LoadInputs(TopicPartition("t", 0), True, 0, 0, LogConfig())
    with DirectoryLoad(str(tmp_path), level, ears, 1) as load:
        load.load_log(str(path), inputs, load_log).close()
    trusted = level is LoadLevel.KAFKA
    assert (path / f"{0:020d}.index").read_bytes() == (wrong if trusted else b"")
    assert any("Found a corrupted index file" in line for line in caplog.messages) is not trusted
    assert [one.file for one in ears.found if one.code == "segment-rebuilt"] == (
        [] if trusted else [f"{0:020d}.log"])
