"""A manager keeps the checkpoint of its log cleaner true: nothing counts as clean that is not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.config import LogConfig
from seglog.log.unified_log import UnifiedLog
from seglog.model import TopicPartition
from tests.cleaner.support import append, records, roll
from tests.manager.compacting import CLEANER, COMPACT, T0, manager_of, new_log
from tests.manager.compacting import roots as roots  # the fixture
from tests.manager.support import entries
from tests.support.waiting import PATIENCE


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


def test_a_truncation_below_all_segments_leaves_nothing_clean(roots: list[Path]) -> None:
    """The log begins anew at the offset."""
    with manager_of(roots[0], scheduled=False) as manager:
        log = new_log(manager, roots[0], segments=0)
        manager.truncate_fully_and_start_at(T0, 5)
        for _ in range(2):
            append(log, [(b"a", b"v")])
            roll(log)
        manager.compact(T0)
        assert entries(roots[0] / CLEANER) == {T0: 7}
        manager.truncate_to({T0: 0})
        assert log.log_end_offset == 0
        assert entries(roots[0] / CLEANER) == {T0: 0}


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


def test_a_log_is_not_emptied_at_an_offset_that_is_none(roots: list[Path]) -> None:
    with manager_of(roots[0], scheduled=False) as manager:
        log = new_log(manager, roots[0])
        manager.compact(T0)
        end = log.log_end_offset
        with pytest.raises(ValueError, match="offset"):
            manager.truncate_fully_and_start_at(T0, -2)
        assert entries(roots[0] / CLEANER) == {T0: 6} and log.log_end_offset == end


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
