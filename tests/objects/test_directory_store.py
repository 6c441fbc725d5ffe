"""A local directory as a store, while another process changes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seglog.objects import directory_store
from seglog.objects.directory_store import DirectoryStore
from seglog.objects.store import StoreError


def test_a_file_that_is_deleted_while_it_is_listed(tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are still listed: a list that ended there would hide segments."""
    for name in ("a.log", "b.log", "c.log"):
        (tmp_path / name).write_bytes(b"1")
    scandir = os.scandir

    @contextmanager
    def deleting(path: str) -> Iterator[list[os.DirEntry[str]]]:
        with scandir(path) as entries:
            found = list(entries)
        (tmp_path / "b.log").unlink()
        yield found

    monkeypatch.setattr(directory_store.os, "scandir", deleting)
    objects, prefixes = DirectoryStore(tmp_path).list("")
    assert [one.key for one in objects] == ["a.log", "c.log"] and prefixes == []


def test_a_written_object_is_durable_with_its_directories(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tier deletes local segments after it: a power cut may not take a new directory away."""
    synced = list[str]()
    monkeypatch.setattr(directory_store, "_sync_directory",
                        lambda path: synced.append(os.path.relpath(path, tmp_path)))
    store = DirectoryStore(tmp_path / "tier")
    store.write("orders-0/00.log", b"1")
    assert synced == [".", "tier", "tier/orders-0"]
    store.write("orders-0/01.log", b"1")
    assert synced[3:] == ["tier/orders-0"]
    # An event says that a segment is deleted: nothing would delete an object that came back.
    store.delete("orders-0/01.log")
    assert synced[4:] == ["tier/orders-0"]
    store.delete("orders-0/01.log")
    assert len(synced) == 5
    with pytest.raises(StoreError):
        store.write("orders-0/00.log/02.log", b"1")
