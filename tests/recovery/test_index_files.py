"""Transaction indexes as a loader changes them, on both disks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.model import AbortedTxn
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.index_files import TxnIndexFile
from seglog.recovery.overlay import OverlayDisk
from seglog.storage.txn_entries import encode_entries

NAME = "00000000000000000000.txnindex"
OLD, NEW = AbortedTxn(7, 0, 4, 5), AbortedTxn(8, 2, 9, 10)


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
@pytest.mark.parametrize(("is_left_over", "added", "kept", "known"), [
    (False, [], [], 0), (False, [NEW], [NEW], 1),
    (True, [], [OLD], 0), (True, [NEW], [OLD, NEW], 2),
])
def test_what_a_recovery_leaves_in_it(
        tmp_path: Path, disk_of: Callable[[str], Disk], is_left_over: bool,
        added: list[AbortedTxn], kept: list[AbortedTxn], known: int) -> None:
    (tmp_path / NAME).write_bytes(encode_entries([OLD]))
    disk = disk_of(str(tmp_path))
    index = TxnIndexFile(disk, NAME)
    index.is_left_over = is_left_over
    index.truncate_to(0 if is_left_over else 9)
    assert index.entries == len(list(index.read())) == (0 if is_left_over else 1)
    index.replace(added, sync=True)
    assert disk.read(NAME, 0, 1000) == encode_entries(kept)
    assert index.entries == len(list(index.read())) == known
    # Once it is the segment's own, a second recovery begins it anew.
    index.replace([], sync=False)
    assert disk.size(NAME) == (len(encode_entries([OLD])) if is_left_over and not added else 0)
