"""The disk that loses its power keeps what was synced, and of the rest it keeps anything."""

from __future__ import annotations

import random
from pathlib import Path

from tests.crash.power import PowerDisk
from tests.faults.box import Call


def images(tmp_path: Path, calls: list[Call], name: str) -> set[bytes | None]:
    """What a file may hold after a cut, over many cuts; None where it is not there."""
    root, found = tmp_path / "root", set[bytes | None]()
    root.mkdir(exist_ok=True)
    for seed in range(60):
        disk, image = PowerDisk(root), tmp_path / f"image-{seed}"
        disk.replay(calls)
        disk.cut(random.Random(seed), image)
        path = image / name
        found.add(path.read_bytes() if path.exists() else None)
    return found


def call(tmp_path: Path, kind: str, name: str, other: str = "", offset: int = 0,
         data: bytes = b"", length: int | None = None) -> Call:
    path = tmp_path / "root" / name if name else tmp_path / "root"
    return Call(kind, str(path), other and str(tmp_path / "root" / other), offset,
                len(data) if length is None else length, data)


def test_what_was_synced_is_there(tmp_path: Path) -> None:
    calls = [call(tmp_path, "create", "a"), call(tmp_path, "write", "a", data=b"one"),
             call(tmp_path, "sync", "a"), call(tmp_path, "sync", "")]
    assert images(tmp_path, calls, "a") == {b"one"}


def test_a_name_is_not_there_before_its_directory_is_synced(tmp_path: Path) -> None:
    calls = [call(tmp_path, "create", "a"), call(tmp_path, "write", "a", data=b"one"),
             call(tmp_path, "sync", "a")]
    assert images(tmp_path, calls, "a") == {None, b"one"}


def test_what_was_not_synced_may_be_torn_zeroed_or_out_of_order(tmp_path: Path) -> None:
    calls = [call(tmp_path, "create", "a"), call(tmp_path, "sync", ""),
             call(tmp_path, "write", "a", data=b"x" * 512),
             call(tmp_path, "write", "a", offset=512, data=b"y" * 512)]
    found = images(tmp_path, calls, "a")
    assert {b"", b"x" * 512 + b"y" * 512, bytes(512) + b"y" * 512, bytes(1024)} <= found
    assert any(one is not None and 0 < len(one) < 512 for one in found), "torn"
    assert None not in found


def test_a_rename_is_old_or_new(tmp_path: Path) -> None:
    calls = [call(tmp_path, "create", "a"), call(tmp_path, "write", "a", data=b"old"),
             call(tmp_path, "sync", "a"), call(tmp_path, "sync", ""),
             call(tmp_path, "create", "b"), call(tmp_path, "write", "b", data=b"new"),
             call(tmp_path, "sync", "b"), call(tmp_path, "rename", "b", "a")]
    assert images(tmp_path, calls, "a") == {b"old", b"new"}


def test_a_cut_undoes_a_truncation_that_was_not_synced(tmp_path: Path) -> None:
    calls = [call(tmp_path, "create", "a"), call(tmp_path, "write", "a", data=b"whole"),
             call(tmp_path, "sync", "a"), call(tmp_path, "sync", ""),
             call(tmp_path, "truncate", "a", length=2)]
    assert images(tmp_path, calls, "a") == {b"whole", b"wh"}
