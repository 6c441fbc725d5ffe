"""The threads that check the segments of new leaders."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seglog
from seglog.config import LoadConfig
from seglog.manager import sanity
from seglog.manager.background_checks import BackgroundChecks
from seglog.model import TopicPartition
from tests.manager.support import make_dir
from tests.support.waiting import wait_for


def test_more_threads_check_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, meeting = make_dir(tmp_path / "two", ["a-0", "b-0"], batches=200), threading.Barrier(2)
    with seglog.LogManager([root]):
        pass
    check = sanity.check_segments

    def together(*args: Any, **options: Any) -> Any:
        meeting.wait(10)
        return check(*args, **options)

    one = LoadConfig(sanity_check_all_logs_enabled=False, num_recovery_threads_per_data_dir=1)
    with seglog.LogManager([root], config=one) as manager:
        monkeypatch.setattr(sanity, "check_segments", together)
        futures = manager.on_become_leader([TopicPartition("a", 0), TopicPartition("b", 0)])
        assert len(futures) == 2
        manager.resize_recovery_thread_pool(2)
        for future in futures:
            future.result(120)
    assert not meeting.broken


def test_a_close_begins_no_check_of_another_log() -> None:
    checked: list[int] = []
    waits: list[Future[None]] = []
    begun = threading.Event()

    def check(number: int) -> None:
        checked.append(number)
        begun.set()
        wait_for(lambda: bool(waits) and waits[0].cancelled())

    def log(number: int) -> Any:
        return SimpleNamespace(path=f"/d/t-{number}", deferred_checks=SimpleNamespace(
            remaining=1, ensure_all=partial(check, number)))

    checks = BackgroundChecks()
    first = checks.submit(log(0), 1)
    second = checks.submit(log(1), 1)
    assert first is not None and second is not None and begun.wait(60)
    waits.append(second)
    checks.close()
    assert first.done() and second.cancelled() and checked == [0]
    assert checks.submit(log(2), 1) is None
