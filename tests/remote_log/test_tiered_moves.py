"""A partition whose first segments are only in remote storage moves to another data directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from seglog.manager.moves import MoveState
from tests.remote_log.tiering import KEY, Tiering

STEPS = 20


@pytest.fixture
def tiering(tmp_path: Path) -> Iterator[Tiering]:
    made = Tiering(tmp_path, topic={"local.retention.bytes": 1, "retention.bytes": 10**9},
                   data=("data", "other"))
    yield made
    made.close()


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_tiered_log_moves(tiering: Tiering, monkeypatch: pytest.MonkeyPatch,
                            has_snapshot: bool) -> None:
    """Its local segments are copied; the rest stays where it is, and readable."""
    log = tiering.log
    tiering.append(20, epoch=2)
    tiering.append(20, epoch=5)
    tiering.copy()
    log.delete_old_segments()
    tiering.append(7, epoch=5)
    first = log.local_log_start_offset
    assert log.log_start_offset == 0 < first
    if not has_snapshot:
        monkeypatch.setattr(log.producer_manager, "fetch_snapshot", lambda _: None)
    records = [tiering.tiering.read(KEY, offset, 1).records for offset in range(47)]
    epochs = list(log.leader_epochs)
    there = next(one for one in tiering.manager.log_dirs if one != log.parent_dir)
    mover = tiering.manager.alter_replica_log_dir(KEY, there)
    assert mover is not None
    for _ in range(STEPS):
        mover.step()
    assert mover.state is MoveState.PROMOTED
    moved = tiering.manager.get_log(KEY)
    assert moved is not None and moved is not log
    assert (moved.log_start_offset, moved.local_log_start_offset, moved.log_end_offset) == (
        0, first, 47)
    assert list(moved.leader_epochs) == epochs
    assert [tiering.tiering.read(KEY, offset, 1).records for offset in range(47)] == records
    assert moved.high_watermark == 47
    monkeypatch.undo()
    tiering.copy()
    assert moved.highest_offset_in_remote_storage >= log.highest_offset_in_remote_storage > 0
