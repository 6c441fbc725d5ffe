"""Which snapshots of a load are durable at its end."""

from __future__ import annotations

from pathlib import Path

from seglog.recovery.disk import RealDisk
from seglog.recovery.snapshot_files import SnapshotNames, Snapshots
from seglog.storage.paths import snapshot_name


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


def test_nothing_is_remembered_of_a_snapshot_that_is_gone(tmp_path: Path) -> None:
    """The next one of its offset is a file of its own."""
    disk, names, codes = Synced(str(tmp_path)), SnapshotNames(), list[str]()
    snapshots = Snapshots(disk, names, names, lambda found: codes.append(found.code))
    for sync in (False, True):
        snapshots.adopt_content(10, b"wrong", sync=sync)
        assert snapshots.newest(0) == (0, []), "which deletes it"
    snapshots.adopt_content(10, b"new", sync=True)
    snapshots.sync()
    assert not disk.synced
    assert codes == ["snapshot-corrupt"] * 2
