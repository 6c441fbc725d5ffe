"""A manager and its log cleaner: what truncations, moves, deletions and failures do to both."""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cleaner.cleaning_states import ABORTED, IN_PROGRESS
from seglog.cleaner.log_cleaner import CleanerThread
from seglog.config import BrokerConfig, LogConfig
from seglog.errors import (
    ConfigError, IllegalStateError, KafkaStorageError, LogCleaningAbortedError,
    UnknownTopicOrPartitionError,
)
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.manager.configs import TopicConfigs
from seglog.manager.log_cleaning import _ServedLogs
from seglog.manager.moves import MoveState
from seglog.model import TopicPartition
from tests.cleaner.support import append, leftovers, records, roll
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


def test_a_truncation_lowers_the_checkpoint(roots: list[Path]) -> None:
    """Also without threads."""
    with manager_of(roots[0], scheduled=False) as manager:
        log = new_log(manager, roots[0])
        assert len(manager.compact(T0, threads=2)) == 1
        assert entries(roots[0] / CLEANER) == {T0: 6}
        append(log, [(b"c", b"v")])
        manager.truncate_to({T0: 6})  # in the active segment: the cleaned ones stay
        assert entries(roots[0] / CLEANER) == {T0: 6}
        manager.truncate_to({T0: 5})
        assert entries(roots[0] / CLEANER) == {T0: log.active.base_offset}
        manager.truncate_fully_and_start_at(T0, 0)
        assert entries(roots[0] / CLEANER) == {T0: 0}


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
        assert entries(roots[0] / CLEANER) == {}
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
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.compact(T0)
        with pytest.raises(KafkaStorageError):
            manager._state.cleaning.compact(log)
        deleted = manager.async_delete(other)
        for _ in ("gone", "created again"):
            with pytest.raises(UnknownTopicOrPartitionError, match="t-1 was deleted"):
                manager._state.cleaning.compact(deleted)
            manager.get_or_create_log(other, is_new=True)


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


def test_lines_of_logs_that_failed_to_load_stay(roots: list[Path]) -> None:
    with manager_of(roots[0], scheduled=False) as manager:
        new_log(manager, roots[0])
        new_log(manager, roots[0], TopicPartition("t", 1))
        manager.compact(T0)
        manager.compact(TopicPartition("t", 1))
    for path in (roots[0] / "t-1").glob("*.log"):
        path.unlink()
        path.mkdir()
    broken: list[str] = []
    manager = seglog.LogManager(
        roots[0], topic_configs={"t": LogConfig().override(COMPACT)},
        on_load_error=lambda path, error: broken.append(path))
    with manager:
        assert len(broken) == 1
        log = manager.get_log(T0)
        assert log is not None
        append(log, [(b"x", b"y")])
        roll(log)
        manager.compact(T0)
        assert entries(roots[0] / CLEANER) == {T0: 7, TopicPartition("t", 1): 6}


def test_settings_at_run_time(roots: list[Path]) -> None:
    before = set(threading.enumerate())
    with manager_of(roots[0]) as manager:
        with pytest.raises(ConfigError, match="Cannot update these configs dynamically: log.dirs"):
            manager.reconfigure_cleaner({"log.dirs": "/x"})
        with pytest.raises(ConfigError, match="more than double"):
            manager.reconfigure_cleaner({"log.cleaner.threads": "3"})
        manager.reconfigure_cleaner({"log.cleaner.threads": "2",
                                     "log.cleaner.io.max.bytes.per.second": "1e9"})
        assert cleaners_since(before) == {
            "kafka-log-cleaner-thread-0", "kafka-log-cleaner-thread-1"}
        new_log(manager, roots[0])
        wait_for(cleaned(roots[0], 6))


def test_a_cleaner_that_is_off(roots: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    with caplog.at_level(logging.WARNING), manager_of(
            roots[0], log_cleaner_enable="false") as manager:
        new_log(manager, roots[0])
        assert not cleaners_since(before)
        assert len(manager.compact(T0)) == 1
    assert not caplog.messages
    with caplog.at_level(logging.WARNING), manager_of(roots[0], log_cleaner_enable="false"):
        pass
    assert caplog.messages == [
        "1 topics are compacted (cleanup.policy=compact), but no cleaner runs: the manager has no "
        "scheduler, or log.cleaner.enable is false: t"]


def test_a_start_without_tasks_names_the_topics_that_stay_as_they_are(
        roots: list[Path], caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch) -> None:
    with manager_of(roots[0], scheduled=False) as manager:
        new_log(manager, roots[0])
    with caplog.at_level(logging.WARNING), manager_of(roots[0], scheduled=False) as manager:
        assert len(caplog.messages) == 1 and "no cleaner runs" in caplog.text
        manager._tasks.start(is_quiet=True)
        assert len(caplog.messages) == 1
        for count, named in ((5, "t0, t1, t2, t3, t4"), (6, "t0, t1, t2, t3, t4, ...")):
            monkeypatch.setattr(_ServedLogs, "compacted_partitions", lambda logs, count=count: [
                TopicPartition(f"t{number // 2}", number % 2) for number in range(2 * count)])
            manager._tasks.start()
            assert caplog.messages[-1].startswith(f"{count} topics are compacted")
            assert caplog.messages[-1].endswith(f"is false: {named}")


def test_new_settings_start_no_cleaner(roots: list[Path]) -> None:
    """A manager without a scheduler has none; its rounds on demand take the settings."""
    with manager_of(roots[0], scheduled=False) as manager:
        manager.reconfigure_cleaner({
            "log.cleaner.threads": "2", "log.cleaner.io.max.bytes.per.second": "9"})
        cleaner = manager._state.cleaning.cleaner
        assert cleaner.config.threads == 2 and not cleaner.threads
        assert cleaner.throttler.desired_rate == 9
    with manager_of(roots[0]) as manager:
        cleaner = manager._state.cleaning.cleaner
        assert len(cleaner.threads) == 1
    manager._state.cleaning.reconfigure({"log.cleaner.threads": "2"})
    assert not cleaner.threads, "it has ended"


def test_settings_that_leave_a_log_compacted_end_no_round(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """LogManager.updateTopicConfig; a future log has no round that could end."""
    with manager_of(*roots, scheduled=False) as manager:
        new_log(manager, roots[0], segments=0)
        assert manager.alter_replica_log_dir(T0, roots[1]) is not None
        ended: list[TopicPartition] = []
        monkeypatch.setattr(manager._state.cleaning.cleaner.manager, "abort_cleaning",
                            ended.append)
        manager.update_topic_config("t", {**COMPACT, "segment.ms": "5000"})
        assert not ended
        manager.update_topic_config("t", {"cleanup.policy": "delete"})
        assert ended == [T0]
        manager.update_topic_config("t", {"cleanup.policy": "delete", "segment.ms": "5000"})
        assert ended == [T0]


# ---- races ---------------------------------------------------------------------------------------


def meanwhile(call: Callable[[], object]) -> threading.Thread:
    """Another thread makes the call, which may have to wait for the caller."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(.5)
    return thread


def test_a_roll_and_a_round_during_a_truncation(roots: list[Path],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """What is truncated was in the active segment when the truncation began. A round that saw it
    closed removed the older records of its keys."""
    with manager_of(roots[0], scheduled=False) as manager:
        log = new_log(manager, roots[0])
        append(log, [(b"a", b"kept"), (b"b0", b"truncated")])
        log.update_high_watermark(8)
        truncate, threads = UnifiedLog.truncate_to, list[threading.Thread]()

        def roll_and_compact() -> None:
            roll(log)
            manager.compact(T0)

        def compact_and_truncate(self: UnifiedLog, offset: int) -> bool:
            monkeypatch.undo()
            threads.append(meanwhile(roll_and_compact))
            return truncate(self, offset)

        monkeypatch.setattr(UnifiedLog, "truncate_to", compact_and_truncate)
        manager.truncate_to({T0: 6})
        threads[0].join(PATIENCE)
        assert b"b0" in [one.key for one in records(log)]
        assert entries(roots[0] / CLEANER)[T0] <= log.log_end_offset == 6


@pytest.mark.parametrize("how", ["compacted", "not compacted", "emptied"])
def test_a_checkpoint_is_lowered_before_a_truncation(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A crash between the two would leave it above records that were never cleaned. Their
    tombstones would go before the records that they delete, which would be back."""
    with manager_of(roots[0], scheduled=False) as manager:
        log = new_log(manager, roots[0])
        manager.compact(T0)
        if how == "not compacted":  # now; it may be again
            manager.update_topic_config("t", {"cleanup.policy": "delete", "retention.ms": "-1"})
        seen = []
        for name in ("truncate_to", "truncate_fully_and_start_at"):
            real: Any = getattr(UnifiedLog, name)

            def truncate(self: UnifiedLog, *args: Any, real: Any = real) -> Any:
                seen.append(entries(roots[0] / CLEANER))
                return real(self, *args)

            monkeypatch.setattr(UnifiedLog, name, truncate)
        if how == "emptied":
            manager.truncate_fully_and_start_at(T0, 1)
        else:
            manager.truncate_to({T0: 5})
        base = log.active.base_offset
        assert seen == [{T0: base}] and entries(roots[0] / CLEANER) == {T0: base} and base < 5


def test_deleted_records_stay_deleted(roots: list[Path]) -> None:
    """Of a topic that is truncated while it is not compacted."""
    with manager_of(roots[0], scheduled=False) as manager:
        log = new_log(manager, roots[0])
        manager.compact(T0)
        manager.update_topic_config("t", {"cleanup.policy": "delete", "retention.ms": "-1"})
        manager.truncate_to({T0: 4})
        append(log, [(b"b0", None)])
        manager.update_topic_config("t", COMPACT | {"delete.retention.ms": "0"})
        for _ in range(3):
            append(log, [(b"c", b"v")])
            append(log, [(b"d", b"v")])
            roll(log)
            manager.compact(T0)
        assert b"b0" not in [one.key for one in records(log) if one.value is not None]


def test_a_log_that_is_created_again_is_neither_clean_nor_uncleanable(roots: list[Path]) -> None:
    (roots[0] / CLEANER).write_text("0\n1\nt 0 3\n")  # the log's directory was deleted by hand
    with manager_of(roots[0], scheduled=False) as manager:
        new_log(manager, roots[0])
        assert T0 not in entries(roots[0] / CLEANER)
        cleaner = manager._state.cleaning.cleaner.manager
        cleaner.mark_partition_uncleanable(str(roots[0]), T0)
        manager.async_delete(T0)
        new_log(manager, roots[0])
        assert not cleaner.uncleanable_partitions(str(roots[0]))


def test_settings_that_change_while_a_log_gets_them(roots: list[Path],
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the newer ones in the end."""
    with manager_of(roots[0], scheduled=False) as manager:
        log, of = new_log(manager, roots[0]), TopicConfigs.of
        manager.update_topic_config("t", COMPACT)
        log.update_config(LogConfig())

        def old(self: TopicConfigs, topic: str) -> LogConfig:
            found = of(self, topic)
            monkeypatch.undo()
            manager.update_topic_config("t", COMPACT | {"segment.bytes": "2000000"})
            return found

        monkeypatch.setattr(TopicConfigs, "of", old)
        manager._state.configs.serve(log)
        assert log.config is manager.topic_config("t") and log.config.segment_size == 2_000_000
