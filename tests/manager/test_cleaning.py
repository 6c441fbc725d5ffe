"""A manager and its log cleaner: what truncations, moves, deletions and failures do to both."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.cleaning_states import IN_PROGRESS
from seglog.errors import (
    IllegalStateError, KafkaStorageError, LogCleaningAbortedError,
    UnknownTopicOrPartitionError,
)
from seglog.manager import clean_loading
from seglog.manager.moves import MoveState
from seglog.model import TopicPartition
from tests.cleaner.support import append, leftovers, records, roll
from tests.manager.compacting import (
    CLEANER, COMPACT, Held, P0, T0, cleaned, cleaners_since, manager_of, new_log, started,
)
from tests.manager.compacting import roots as roots  # the fixture
from tests.manager.support import entries
from tests.support.waiting import wait_for


def test_it_compacts_by_itself(roots: list[Path]) -> None:
    before = set(threading.enumerate())
    with manager_of(roots[0]) as manager:
        log = new_log(manager, roots[0])
        plain = new_log(manager, roots[0], P0)
        wait_for(cleaned(roots[0], 6))
        assert [one.offset for one in records(log)] == [1, 3, 4, 5]
        assert len(records(plain)) == 6
        names = [str(name) for name, _ in manager.metrics]
        assert "kafka.log:type=LogCleaner,name=DeadThreadCount" in names
    assert not cleaners_since(before)
    with manager_of(roots[0], scheduled=False) as manager:
        assert entries(roots[0] / CLEANER) == {T0: 6}
        assert [one.offset for one in records(manager.get_log(T0) or log)] == [1, 3, 4, 5]


def test_a_log_that_does_not_open(roots: list[Path], monkeypatch: pytest.MonkeyPatch,
                                  caplog: pytest.LogCaptureFixture) -> None:
    """Too many open files do not end the cleaner's thread; the log tells of them."""
    with manager_of(roots[0], scheduled=False) as manager:
        new_log(manager, roots[0])
    real, calls = clean_loading.load_unified_log, 0

    def opened(path: str, *args: Any, **how: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls <= 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return real(path, *args, **how)

    monkeypatch.setattr(clean_loading, "load_unified_log", opened)
    with manager_of(roots[0]) as manager:
        cleaner = manager._state.cleaning.cleaner
        wait_for(lambda: cleaned(roots[0], 6)() or cleaner.dead_thread_count > 0)
        assert calls > 2 and not cleaner.dead_thread_count and manager.is_log_dir_online(roots[0])
    assert any(text.startswith("t-0 is not compacted now: it cannot be opened: ")
               and os.strerror(errno.EMFILE) in text for text in caplog.messages)


def test_a_truncation_ends_a_round(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0]) as manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        with held:
            manager.truncate_to({T0: 2})
        assert log.log_end_offset == 2  # what is left is cleaned at once
        append(log, [(b"new", b"v")])
        roll(log)
        wait_for(cleaned(roots[0], 3))
        assert [one.key for one in records(log)] == [b"a", b"b0", b"new"] and not leftovers(log)


def test_a_deletion_ends_a_round(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0]) as manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        with held:
            assert manager.async_delete(T0) is log
        assert log.path.endswith("-delete") and not leftovers(log)
        again = new_log(manager, roots[0], segments=1)
        wait_for(cleaned(roots[0], 2))
        assert again is not log
        manager.async_delete(T0)
        assert entries(roots[0] / CLEANER) == {}


def test_a_move_takes_the_checkpoint_along(roots: list[Path]) -> None:
    with manager_of(*roots) as manager:
        new_log(manager, roots[0])
        wait_for(cleaned(roots[0], 6))
        mover = manager.alter_replica_log_dir(T0, roots[1])
        assert mover is not None
        log = manager.get_log(T0)
        assert log is not None
        append(log, [(b"a", b"later")])
        roll(log)
        time.sleep(.05)
        assert entries(roots[0] / CLEANER) == {T0: 6}  # not cleaned during the move
        while mover.step() is MoveState.COPYING:
            pass
        assert (entries(roots[0] / CLEANER), entries(roots[1] / CLEANER)) == ({}, {T0: 6})
        moved = manager.get_log(T0)
        assert moved is not None and str(roots[1]) in moved.path
        roll(moved)
        wait_for(cleaned(roots[1], 7))
        assert [one.offset for one in records(moved)] == [1, 3, 5, 6]


def test_a_move_ends_a_round(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(*roots) as manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        with held:
            assert manager.alter_replica_log_dir(T0, roots[1]) is not None
        assert len(records(log)) == 6 and not leftovers(log)
        time.sleep(.05)
        assert not cleaned(roots[0], 6)()
        manager.async_delete(T0, is_future=True)  # the move is cancelled
        wait_for(cleaned(roots[0], 6))


def test_another_policy_ends_a_round(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0]) as manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        with held:
            manager.update_topic_config("t", {"cleanup.policy": "delete", "retention.ms": "-1"})
        assert len(records(log)) == 6 and not leftovers(log)
        with pytest.raises(IllegalStateError, match="t-0 is not compacted"):
            manager.compact(T0)
        manager.update_topic_config("t", COMPACT)
        wait_for(cleaned(roots[0], 6))


def test_a_shutdown_ends_a_round(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    manager = manager_of(roots[0])
    with manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        held.__enter__()
    assert (roots[0] / ".kafka_cleanshutdown").exists()
    assert not leftovers(log) and len(records(log)) == 6


def test_a_directory_fails(roots: list[Path]) -> None:
    failed = threading.Event()
    manager = manager_of(*roots)
    with manager:
        log = new_log(manager, roots[0])
        wait_for(cleaned(roots[0], 6))
        before = (roots[0] / CLEANER).read_bytes()
        other = TopicPartition("t", 1)
        new_log(manager, roots[1], other)
        manager.handle_log_dir_failure(roots[0], OSError(errno.EIO, "gone"))
        wait_for(lambda: manager.get_log(T0) is None)
        wait_for(cleaned(roots[1], 6, other))
        assert (roots[0] / CLEANER).read_bytes() == before and not failed.is_set()
        assert manager._state.cleaning.cleaner.manager.all_cleaner_checkpoints() == {other: 6}
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.compact(T0)
        with pytest.raises(KafkaStorageError):
            manager._state.cleaning.compact(log)
        deleted = manager.async_delete(other)
        for _ in ("gone", "created again"):
            with pytest.raises(UnknownTopicOrPartitionError, match="t-1 was deleted"):
                manager._state.cleaning.compact(deleted)
            manager.get_or_create_log(other, is_new=True)


def test_compact_now_waits_and_is_ended(roots: list[Path],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0], scheduled=False) as manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        thread, errors = started(lambda: manager.compact(T0))
        with held:
            cleaner = manager._state.cleaning.cleaner
            assert cleaner.manager.cleaning_state(T0) == IN_PROGRESS
            manager.truncate_fully_and_start_at(T0, 0)
        thread.join(120)
        assert [type(one) for one in errors] == [LogCleaningAbortedError]
        assert log.log_end_offset == 0 and manager.compact(T0) == []


def test_a_shutdown_ends_compact_now(roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0], scheduled=False) as manager:
        held = Held(monkeypatch, manager)
        log = new_log(manager, roots[0])
        thread, errors = started(lambda: manager._state.cleaning.compact(log))
        held.__enter__()
    # The directory is another's now: the round was over before.
    assert not thread.is_alive() or not leftovers(log)
    thread.join(120)
    assert [type(one) for one in errors] == [LogCleaningAbortedError]
    assert len(records(log)) == 6 and (roots[0] / ".kafka_cleanshutdown").exists()
