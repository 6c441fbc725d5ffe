"""The segment that is written, and what it knows without its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from seglog._native.batch import scan
from seglog.errors import IllegalArgumentError
from seglog.log import active_segment
from tests.log.test_fast_path import NOW, batch, open_log


def test_the_age_of_a_written_segment_needs_no_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs from the timestamp of its first batch, which the writer notes."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(timestamp=NOW - 50), 0)
    with monkeypatch.context() as patch:
        patch.setattr("seglog.log.active_segment.opened_log", None)
        for _ in range(2):
            assert log.active.time_waited_for_roll(NOW, NOW + 7) == 57
    log.close()
    again = open_log(tmp_path / "t-0")
    assert again.active.time_waited_for_roll(NOW, NOW + 7) == 57
    again.close()


@pytest.mark.parametrize("room", [0, -1])
def test_a_segment_ends_at_2_gib(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """FileRecords.append."""
    log = open_log(tmp_path / "t-0")
    data = batch(timestamp=NOW)
    log.append_as_leader(data, 0)
    more = log.active.size.to_bytes(8, "big") + data[8:]
    before = log.active.size
    monkeypatch.setattr(active_segment, "_INT32_MAX", before + len(more) + room)
    if room < 0:
        with pytest.raises(IllegalArgumentError, match=f"current file position at {before}$"):
            log.active.append(before, more, scan(more).batches)
    else:
        log.active.append(before, more, scan(more).batches)
    assert log.active.size == before + len(more) * (room == 0)
    log.close()
