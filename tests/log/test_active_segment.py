"""The segment that is written, and what it knows without its file."""

from __future__ import annotations

from pathlib import Path

import pytest

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
