"""A shutdown that a KeyboardInterrupt ends: the process can start another manager."""

from __future__ import annotations

from pathlib import Path

import pytest

import seglog
from seglog.errors import KafkaStorageError, LogManagerStateError
from seglog.manager import manager as managers
from seglog.manager.background_checks import BackgroundChecks
from seglog.manager.loading import LogLoading
from seglog.manager.offset_checkpoints import Checkpoints
from seglog.manager.tasks import BackgroundTasks
from seglog.model import TopicPartition
from tests.manager.records import fill
from tests.manager.support import make_dir

A0 = TopicPartition("a", 0)


@pytest.mark.parametrize(("owner", "step"), [
    (BackgroundTasks, "stop"), (BackgroundChecks, "close"), (Checkpoints, "high_watermarks"),
    (managers, "close_logs")])
def test_an_interrupted_shutdown_releases_the_directories(
        tmp_path: Path, owner: object, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_dir(tmp_path / "k", ["a-0"])
    manager = seglog.LogManager(root)
    manager.startup()
    log = manager.get_log(A0)
    assert log is not None
    fill(log, 1)
    end = log.log_end_offset

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupts:
        interrupts.setattr(owner, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.shutdown()
    assert not (root / ".lock").exists() and not (root / ".kafka_cleanshutdown").exists()
    with pytest.raises(KafkaStorageError):  # another process may write there now
        fill(log, 1)
    assert manager._state.table.is_sealed, "and no other log is opened there"
    manager.shutdown()
    with seglog.LogManager(root) as after:
        found = after.get_log(A0)
        assert found is not None and found.log_end_offset == end
    assert (root / ".kafka_cleanshutdown").exists()


def test_a_shutdown_right_after_the_load_ends_the_start(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = seglog.LogManager(make_dir(tmp_path / "k", ["a-0"]))
    run = LogLoading.run

    def late(loading: LogLoading) -> None:
        run(loading)
        manager.shutdown()

    monkeypatch.setattr(LogLoading, "run", late)
    with pytest.raises(LogManagerStateError, match="is closed, not starting"):
        manager.startup()
    assert not manager.is_running and manager._handler is None
