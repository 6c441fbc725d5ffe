"""What a log of a tier alone asks again when it is refreshed, as a follower does all the time."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from seglog.objects.directory_store import DirectoryStore
from seglog.storage.log_store import FileHandle
from seglog.storage.partition_log import PartitionLog
from seglog.tiered import open_bucket
from tests.tiered.conftest import Tiered, read
from tests.tiered.test_tier_damage import NAME, findings


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The objects that are read or opened, by their start offset and kind."""
    found: Counter[str] = Counter()
    read_object, open_file = DirectoryStore.read, FileHandle.__init__

    def note(path: str) -> None:
        name = Path(path)
        found[f"{int(name.name[:20])}{name.suffix}"] += 1

    def counted(store: DirectoryStore, key: str, start: int, end: int) -> Any:
        note(key)
        return read_object(store, key, start, end)

    def opened(handle: FileHandle, path: str) -> None:
        note(path)
        open_file(handle, path)

    monkeypatch.setattr(DirectoryStore, "read", counted)
    monkeypatch.setattr(FileHandle, "__init__", opened)
    return found


def ended(log: PartitionLog) -> int:
    log.refresh()
    return log.log_end_offset


def test_only_objects_that_changed_are_asked_again(tiered_copy: Tiered, asked: Counter[str]
                                                   ) -> None:
    *earlier, last = tiered_copy.objects(NAME)
    content, place = last.read_bytes(), last.with_name("last")
    last.rename(place)
    log = open_bucket(tiered_copy.remote).log("t-gzip", 0)
    assert log.log_end_offset == 187
    assert sum(asked[f"{int(path.name[:20])}.log"] for path in earlier) >= len(earlier)
    asked.clear()
    assert ended(log) == 187
    assert set(asked) <= {"140.log", "140.index"}  # where the log ends
    place.rename(last)
    os.truncate(last, len(content) // 2)
    asked.clear()
    assert 187 < ended(log) < 234
    assert set(asked) <= {"187.log", "187.index", "187.leader_epoch_checkpoint"}
    last.write_bytes(content)
    assert ended(log) == 234
    assert read(log) == [row for row in tiered_copy.rows(NAME, "read_uncommitted")
                         if row.offset < 234]


def test_a_problem_is_found_again(tiered_copy: Tiered, asked: Counter[str]) -> None:
    path = tiered_copy.objects(NAME, ".leader_epoch_checkpoint")[0]
    path.write_bytes(b"?")
    log = open_bucket(tiered_copy.remote).log("t-gzip", 0)
    before = findings(log)
    assert [one.object for one in before] and path.name[:43] in str(before[0])
    ended(log)
    assert findings(log) == before
    path.write_bytes(tiered_copy.objects(NAME, ".leader_epoch_checkpoint")[1].read_bytes())
    ended(log)
    assert not findings(log)
