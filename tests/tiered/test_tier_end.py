"""The ends of the log of a tier alone: a first or last segment that is lost is no end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import KafkaStorageError
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import AivenWriter, LayoutStorageManager, RemoteTree, open_bucket
from seglog.tiered.restore import restore
from seglog.tiered.tier_check import check_partition
from tests.tiered.conftest import Tiered, read
from tests.tiered.test_storage_manager import announced, data_of
from tests.tiered.test_tier_damage import NAME, announce, skipped


def alone(tiered: Tiered) -> PartitionLog:
    """With the metadata topic."""
    return open_bucket(tiered.remote, metadata=tiered.data).log("t-gzip", 0)


def grow(path: Path) -> None:
    """It has its first batch twice, so that its announced bytes do not end with its end."""
    content = path.read_bytes()
    path.write_bytes(content[:int.from_bytes(content[8:12]) + 12] + content)


@pytest.mark.parametrize("harm", [Path.unlink, grow, lambda path: os.truncate(path, 100)],
                         ids=["absent", "longer", "cut"])
def test_the_log_of_a_tier_alone_does_not_end_before_a_lost_last_segment(
        tiered_copy: Tiered, harm: Callable[[Path], object]) -> None:
    harm(tiered_copy.objects(NAME)[-1])
    log = alone(tiered_copy)
    with pytest.raises(KafkaStorageError, match="187 to 233") as caught:
        read(log)
    assert caught.value.code == "remote_gap"
    offsets, gaps = skipped(log)
    assert offsets == [row.offset for row in tiered_copy.rows(NAME, "read_uncommitted")
                       if row.offset < 187]
    assert [gap.kind for gap in gaps] == ["remote_gap"]
    assert not check_partition(log).is_sound
    with pytest.raises(KafkaStorageError, match="not restored"):
        restore(log, tiered_copy.root / "restored")


def test_nothing_of_a_tier_alone_is_usable(tiered_copy: Tiered) -> None:
    for path in tiered_copy.objects(NAME):
        grow(path)
    log = alone(tiered_copy)
    with pytest.raises(KafkaStorageError, match="0 to 233"):
        read(log)
    assert [gap.kind for gap in skipped(log)[1]] == ["remote_gap"]


def test_a_lost_last_segment_of_another_log_is_no_loss(tiered_copy: Tiered) -> None:
    """An unclean election took its offsets: the new leader's end before it."""
    *_, newest, lost = tiered_copy.objects(NAME)
    lost.unlink()
    announce(tiered_copy, newest, segment_leader_epochs=((1, 140),))
    assert read(alone(tiered_copy)) == [
        row for row in tiered_copy.rows(NAME, "read_uncommitted") if row.offset < 187]
    announce(tiered_copy, lost, segment_leader_epochs=((2, 187),))
    with pytest.raises(KafkaStorageError, match="187 to 233"):
        read(alone(tiered_copy))


def test_a_lost_first_segment_of_another_log_is_no_loss(tiered_copy: Tiered) -> None:
    """As for the last one: the log has no records of its epoch."""
    lost, *others = tiered_copy.objects(NAME)
    lost.unlink()
    with pytest.raises(KafkaStorageError, match="0 to 45"):
        read(alone(tiered_copy))
    announce(tiered_copy, lost, segment_leader_epochs=((1, 0),))
    announce(tiered_copy, others[-1], segment_leader_epochs=((2, 187),))
    log = alone(tiered_copy)
    assert log.log_start_offset == 46
    assert read(log) == [row for row in tiered_copy.rows(NAME, "read_uncommitted")
                         if 46 <= row.offset < 234]


def test_a_last_manifest_that_cannot_be_read_is_not_the_end(tiered: Tiered, tmp_path: Path
                                                            ) -> None:
    manager = LayoutStorageManager(RemoteTree(tmp_path), AivenWriter())
    for metadata in announced(tiered, NAME):
        manager.copy_log_segment_data(metadata, data_of(tiered, metadata))
    *_, last = sorted(tmp_path.rglob("*.rsm-manifest"))
    last.write_bytes(b"{")
    log = open_bucket(tmp_path).log("t-gzip", 0)
    with pytest.raises(KafkaStorageError, match="manifest is not JSON") as caught:
        read(log)
    assert caught.value.code == "remote_gap"
    assert skipped(log)[0][-1] == 186
    with pytest.raises(KafkaStorageError, match="not restored"):
        restore(log, tmp_path / "restored")
