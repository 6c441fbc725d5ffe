"""A manager with a compacted topic, and rounds of its cleaner that a test holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cleaner.cleaning_states import ABORTED
from seglog.cleaner.log_cleaner import CleanerThread
from seglog.config import BrokerConfig, LogConfig
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from tests.cleaner.support import append, roll
from tests.manager.records import NOW_MS
from tests.manager.support import entries, make_dir
from tests.support.held import threads_since
from tests.support.waiting import PATIENCE, wait_for

T0, P0 = TopicPartition("t", 0), TopicPartition("plain", 0)
CLEANER = "cleaner-offset-checkpoint"
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


def manager_of(*roots: Path, scheduled: bool = True, **properties: str) -> seglog.LogManager:
    clock = MockTime(current_time_ms=NOW_MS)
    named = {key.replace("_", "."): value for key, value in properties.items()}
    config = BrokerConfig.from_properties({
        "log.dirs": ",".join(map(str, roots)), "log.cleaner.backoff.ms": "5",
        "log.cleaner.dedupe.buffer.size": "65536", **named})
    return seglog.LogManager(
        config=config, time=clock, scheduler=clock.scheduler if scheduled else None,
        topic_configs={"t": LogConfig().override(COMPACT)})


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / name, []) for name in ("k1", "k2")]


def new_log(manager: seglog.LogManager, root: Path, key: TopicPartition = T0, segments: int = 3
            ) -> UnifiedLog:
    manager.maybe_update_preferred_log_dir(key, root)
    log = manager.get_or_create_log(key, is_new=True)
    for number in range(segments):
        append(log, [(b"a", b"%d" % number), (b"b%d" % number, b"x")])
        roll(log)
    return log


def cleaned(root: Path, offset: int, key: TopicPartition = T0) -> Callable[[], bool]:
    return lambda: (root / CLEANER).exists() and entries(root / CLEANER).get(key) == offset


class Held:
    """A round of the manager's cleaner that stands still in its second pass, until somebody ends
    it, or until the end of the block."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, manager: seglog.LogManager) -> None:
        from seglog.cleaner.record_filter import RecordFilter
        self.is_there, self.released = threading.Event(), threading.Event()
        self.cleaner = manager._state.cleaning.cleaner
        real: Any = RecordFilter.filter

        def filtered(*args: Any, **options: Any) -> Any:
            self.is_there.set()
            wait_for(self.is_ended)
            return real(*args, **options)

        monkeypatch.setattr(RecordFilter, "filter", filtered)

    def is_ended(self) -> bool:
        """Whether the round of this thread, which stands still, is to end."""
        thread, state = threading.current_thread(), self.cleaner.manager.cleaning_state(T0)
        stops = thread._ends.is_set() if isinstance(thread, CleanerThread) else self.cleaner._ends
        return self.released.is_set() or stops or state == ABORTED

    def __enter__(self) -> Held:
        assert self.is_there.wait(PATIENCE)
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()


def cleaners_since(before: set[threading.Thread]) -> set[str]:
    """The names of the cleaners' threads that began since."""
    return {one.name for one in threads_since(before) if one.name.startswith("kafka-log-cleaner")}


def started(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that makes the call, and what the call raises there."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors
