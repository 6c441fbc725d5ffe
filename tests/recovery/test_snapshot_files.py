"""Which snapshots of a load stay, and which are durable at its end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seglog.errors import KafkaStorageError
from seglog.recovery import snapshot_files
from seglog.recovery.disk import RealDisk
from seglog.recovery.snapshot_files import SnapshotNames, Snapshots
from seglog.storage.paths import snapshot_name
from seglog.storage.producer_state import encode_snapshot


class Synced(RealDisk):
    """Notes which files are synced."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.synced: list[str] = []

    def sync(self, name: str) -> None:
        """See Disk."""
        self.synced.append(name)
        super().sync(name)


def test_the_newest_of_the_new_ones_are_synced_once(tmp_path: Path) -> None:
    """The snapshots at the bases of the last two segments and at the end of the log."""
    (tmp_path / snapshot_name(40)).write_bytes(b"was here")
    disk, names = Synced(str(tmp_path)), SnapshotNames()
    names.add(40, snapshot_name(40))
    snapshots = Snapshots(disk, names, names, lambda found: None)
    for offset in (10, 20, 30, 50):
        snapshots.adopt_content(offset, b"new", sync=False)
    snapshots.sync()
    assert disk.synced == [snapshot_name(30), snapshot_name(50)]
    snapshots.sync()
    snapshots.adopt_content(60, b"new", sync=True)
    snapshots.sync()
    assert disk.synced == [snapshot_name(30), snapshot_name(50)]


@pytest.mark.parametrize("is_retired", [False, True])
def test_nothing_is_remembered_of_a_snapshot_that_is_gone(
        tmp_path: Path, is_retired: bool) -> None:
    """The next one of its offset is a file of its own."""
    disk, names, codes = Synced(str(tmp_path)), SnapshotNames(), list[str]()
    snapshots = Snapshots(disk, names, names, lambda found: codes.append(found.code))
    snapshots.adopt()
    for sync in (False, True):
        snapshots.adopt_content(10, b"wrong", sync=sync)
        if is_retired:
            for _ in range(2):
                snapshots.verify()  # which tells of it once
            assert snapshots.retire([10])
        else:
            assert snapshots.newest(0) == (0, []), "which deletes it"
    snapshots.adopt_content(10, b"new", sync=True)
    snapshots.sync()
    assert not disk.synced
    assert codes == ["snapshot-corrupt"] * 2


def test_a_snapshot_takes_the_place_of_one_under_another_name() -> None:
    """ProducerStateManager.takeSnapshot."""
    names = SnapshotNames()
    for name in ("7.snapshot", snapshot_name(7), "+7.snapshot"):
        names.add(7, name)
        assert names[7] == name and [*names.offsets] == [7]
    assert names.remove(7) == name and names[7] == snapshot_name(7)


@pytest.mark.parametrize(("offsets", "bases", "kept"), [
    ([0, 10, 30], [0, 50], [0]), ([0, 10, 30], [0, 20], [0, 30]), ([0, 10, 30], [0, 30], [0, 30]),
    ([0, 10, 30], [], [30]), ([0], [], [0])])
def test_a_snapshot_stays_at_the_base_of_a_segment_and_above_all(
        tmp_path: Path, offsets: list[int], bases: list[int], kept: list[int]) -> None:
    """ProducerStateManager.removeStraySnapshots."""
    names = SnapshotNames()
    for offset in offsets:
        names.add(offset, snapshot_name(offset))
    snapshots = Snapshots(RealDisk(str(tmp_path)), names, names, lambda found: None)
    snapshots.remove_stray(np.array(bases, np.int64))
    assert [*snapshots.offsets] == kept
    if len(kept) == 2:
        assert [snapshots.latest_below(offset) for offset in (0, 1, 30, 31)] == [0, 0, 0, 30]


@pytest.mark.parametrize("more", [0, 1])
def test_a_snapshot_may_be_as_large_as_the_limit(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    snapshots = Snapshots(RealDisk(str(tmp_path)), SnapshotNames(), SnapshotNames(),
                          lambda found: None)
    snapshots.adopt_content(10, content := encode_snapshot([]))
    monkeypatch.setattr(snapshot_files, "SNAPSHOT_BYTES_MAX", len(content) - more)
    if more:
        with pytest.raises(KafkaStorageError):
            snapshots.newest(0)
    else:
        assert snapshots.newest(0) == (10, [])


def test_the_snapshot_of_a_removed_segment_is_renamed_and_forgotten(
        tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ProducerStateManager.removeAndMarkSnapshotForDeletion, during a load."""
    names, listed = SnapshotNames(), SnapshotNames()
    for offset in (10, 20):
        listed.add(offset, snapshot_name(offset))
        names.add(offset, snapshot_name(offset))
        (tmp_path / snapshot_name(offset)).touch()
    snapshots = Snapshots(RealDisk(str(tmp_path)), names, listed, lambda found: None)
    with caplog.at_level("INFO"):
        assert snapshots.retire([20, 30]) == [snapshot_name(20) + ".deleted"]
        assert snapshots.retire([20]) == [] == caplog.messages
    assert [*snapshots.offsets] == [10]
    assert {path.name for path in tmp_path.iterdir()} == {
        snapshot_name(10), snapshot_name(20) + ".deleted"}
