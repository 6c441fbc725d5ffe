"""Which log is cleaned next, and when none may be: the cases of Kafka's LogCleanerManagerTest."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog.cleaner.cleaning_states import ABORTED, IN_PROGRESS, paused
from seglog.errors import IllegalStateError, LogCleaningAbortedError, LogCleaningError
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.model import TopicPartition
from tests.cleaner.support import NOW, append, roll
from tests.cleaner.world import KEY, World
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.waiting import wait_for

@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# ---- the choice ----------------------------------------------------------------------------------


def test_the_dirtiest_first(world: World) -> None:
    for name, clean in (("a-0", 2), ("b-0", 1), ("c-0", 0)):
        log = world.log(name)
        world.manager.update_checkpoints(log.parent_dir, add=(log.topic_partition, clean))
    found, stats = world.manager.grab_filthiest_compacted_log(NOW)
    assert found is not None and str(found.topic_partition) == "c-0"
    assert stats.cleanable_partitions == 2  # a-0: a third is not above a half
    assert world.manager.dirtiest_log_cleanable_ratio == 1.0
    assert world.manager.time_of_last_run_ms == NOW
    assert world.grabbed() == "b-0"
    assert world.grabbed() is None  # those two are in progress
    world.done("c-0", 3)
    world.done("b-0", 1)  # it failed
    assert world.grabbed() == "b-0"
    assert world.checkpoint() == {TopicPartition("a", 0): 2, TopicPartition("b", 0): 1,
                                  TopicPartition("c", 0): 3}


@pytest.mark.parametrize("ratio, is_due", [(.66, True), (2 / 3, False), (1, False), (0, True)])
def test_the_ratio_must_be_above_the_minimum(world: World, ratio: float, is_due: bool) -> None:
    log = world.log(min_cleanable_dirty_ratio=ratio)
    world.manager.update_checkpoints(log.parent_dir, add=(KEY, 1))
    assert (world.grabbed() is not None) == is_due


def test_a_record_that_is_overdue(world: World) -> None:
    world.log(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=1000, segment_ms=10**9)
    assert world.grabbed(NOW + 1000) is None
    found, stats = world.manager.grab_filthiest_compacted_log(NOW + 1005)
    assert found is not None and found.needs_compaction_now
    assert (stats.delayed_partitions, stats.max_compaction_delay_ms) == (1, 5)


@pytest.mark.parametrize("truncate", [
    UnifiedLog.truncate_to, UnifiedLog.truncate_fully_and_start_at])
def test_the_age_of_a_segment_that_a_truncation_replaced(
        world: World, truncate: Callable[[UnifiedLog, int], object]) -> None:
    """The new segment has the base offset and the size of the old one, and younger records."""
    log = world.log(dirty=1, max_compaction_lag_ms=1000, segment_ms=10**9)

    def delay_ms() -> int:
        found, stats = world.manager.grab_filthiest_compacted_log(NOW + 1500)
        assert found is not None
        world.done("t-0", 0)
        return stats.max_compaction_delay_ms

    assert delay_ms() == 500
    size = log.size
    truncate(log, 0)
    log.append_as_leader(v2.encode(Batch(
        0, 0, [Record(0, NOW + 1400, b"key 0", bytes(100))], base_timestamp=NOW + 1400,
        max_timestamp=NOW + 1400)), 0)
    roll(log)
    assert log.segments.base_offsets.tolist() == [0, 1] and log.size == size
    assert delay_ms() == 0


def test_min_compaction_lag(world: World) -> None:
    world.log(min_compaction_lag_ms=1000)
    assert world.grabbed(NOW + 999) is None
    assert world.grabbed(NOW + 1000) == "t-0"


def test_what_is_no_candidate(world: World) -> None:
    world.log("plain-0", cleanup_policy="delete")
    world.log("empty-0", dirty=0)
    moving = world.log("moving-0")
    world.logs.moving.add(moving.topic_partition)
    world.log("uncleanable-0")
    world.manager.mark_partition_uncleanable(
        str(world.home / "one"), TopicPartition("uncleanable", 0))
    world.log("paused-0")
    world.manager.abort_and_pause_cleaning(TopicPartition("paused", 0))
    world.log("closed-0").close()
    world.log("no line-0")
    assert world.grabbed() is None
    world.logs.moving.clear()
    assert world.grabbed() == "moving-0"


def test_a_checkpoint_outside_of_the_log(world: World) -> None:
    log = world.log()
    world.manager.update_checkpoints(log.parent_dir, add=(KEY, 99))
    found, _ = world.manager.grab_filthiest_compacted_log(NOW)
    assert found is not None and found.first_dirty_offset == 0
    assert world.checkpoint() == {KEY: 0}  # at once, not when the round is over
    world.done("t-0", 3)
    log.maybe_increment_log_start_offset(3, StartOffsetReason.CLIENT_RECORD_DELETION)
    log.delete_old_segments()
    world.manager.update_checkpoints(log.parent_dir, add=(KEY, 1))
    append(log, [(b"k", b"v")])
    roll(log)
    found, _ = world.manager.grab_filthiest_compacted_log(NOW)
    assert found is not None and found.first_dirty_offset == 3
    assert world.checkpoint() == {KEY: 3}


def test_a_log_that_cannot_be_measured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.log()

    def fails(_: UnifiedLog) -> int:
        raise RuntimeError("no")

    monkeypatch.setattr(UnifiedLog, "last_stable_offset", property(fails))
    with pytest.raises(LogCleaningError, match="^Failed to calculate log cleaning stats for "
                                               "partition t-0$") as caught:
        world.grabbed()
    assert caught.value.log is log and world.manager.cleaning_state(KEY) is None


# ---- states --------------------------------------------------------------------------------------


def test_pauses_count(world: World) -> None:
    manager = world.manager
    world.log()
    for count in (1, 2, 3):
        manager.abort_and_pause_cleaning(KEY)
        assert manager.cleaning_state(KEY) == paused(count)
    manager.abort_cleaning(KEY)
    for count in (2, 1):
        manager.resume_cleaning([KEY])
        assert manager.cleaning_state(KEY) == paused(count) and world.grabbed() is None
    manager.resume_cleaning([KEY])
    with pytest.raises(IllegalStateError, match="cannot be resumed since it is not paused"):
        manager.resume_cleaning([KEY])
    assert world.grabbed() == "t-0"
    with pytest.raises(IllegalStateError, match="it is in LogCleaningInProgress state"):
        manager.resume_cleaning([KEY])


def test_a_round_is_aborted(world: World) -> None:
    manager, log = world.manager, world.log()
    assert world.grabbed() == "t-0" and manager.cleaning_state(KEY) == IN_PROGRESS
    manager.check_cleaning_aborted(KEY)
    waiting = threading.Thread(target=manager.abort_and_pause_cleaning, args=(KEY,))
    waiting.start()
    wait_for(lambda: manager.cleaning_state(KEY) == ABORTED)
    with pytest.raises(LogCleaningAbortedError):
        manager.check_cleaning_aborted(KEY)
    assert waiting.is_alive()
    world.done("t-0", 3)
    waiting.join(120)
    assert manager.cleaning_state(KEY) == paused(1)
    assert not Path(log.parent_dir, "cleaner-offset-checkpoint").exists()  # it counts as not done
    with pytest.raises(IllegalStateError, match=r"cannot be in LogCleaningPaused\{pausedCount=1\}"):
        world.done("t-0", 3)
    manager.resume_cleaning([KEY])
    with pytest.raises(IllegalStateError, match="State for partition t-0 should exist"):
        world.done("t-0", 3)


def test_an_interrupted_wait_for_a_round_leaves_no_pause(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No caller would resume the partition."""
    manager = world.manager
    world.log()
    assert world.grabbed() == "t-0"

    def interrupted(timeout: float) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(manager._changed, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        manager.abort_and_pause_cleaning(KEY)
    world.done("t-0", 3)
    assert manager.cleaning_state(KEY) is None


def test_retention_and_rounds_exclude_each_other(world: World) -> None:
    manager, log = world.manager, world.log()
    plain = world.log("plain-0", cleanup_policy="delete")
    with contextlib.closing(manager.deletable_logs()) as found:
        assert next(found) is log and world.grabbed() is None
        assert list(manager.deletable_logs()) == []
    pairs = list(world.logs.of.items())
    with manager.paused_for_retention(pairs) as some:
        assert [one for _, one in some] == [plain]
        with manager.paused_for_retention(pairs) as others:
            assert others == []
        plain.update_config(log.config)  # it becomes a compacted one meanwhile
        assert world.grabbed() == "t-0" and world.grabbed() is None
    world.done("t-0", 3)
    assert world.grabbed() == "plain-0"


def test_a_round_on_demand_waits_for_another(world: World) -> None:
    manager, log = world.manager, world.log()
    assert world.grabbed() == "t-0"
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(manager.grab(log, NOW)))
    waiting.start()
    time.sleep(.05)
    assert not found
    world.done("t-0", 1)
    waiting.join(120)
    assert found[0].first_dirty_offset == 1 and manager.cleaning_state(KEY) == IN_PROGRESS
    world.done("t-0", 3)
    assert manager.grab(log, NOW) is None and manager.cleaning_state(KEY) is None


# ---- checkpoints ---------------------------------------------------------------------------------


def test_lines_of_vanished_partitions_go(world: World) -> None:
    path = world.home / "one" / "cleaner-offset-checkpoint"
    path.write_text("0\n3\ngone 0 7\nkept 1 8\nt 0 1\n")
    log = world.log()
    world.logs.kept.add(TopicPartition("kept", 1))
    world.manager.update_checkpoints(log.parent_dir, add=(KEY, 2))
    assert world.checkpoint() == {TopicPartition("kept", 1): 8, KEY: 2}
    world.manager.update_checkpoints(log.parent_dir, remove=KEY)
    assert world.checkpoint() == {TopicPartition("kept", 1): 8}


def test_a_checkpoint_is_lowered(world: World) -> None:
    log, manager = world.log(), world.manager
    manager.update_checkpoints(log.parent_dir, add=(KEY, 2))
    for offset, expected in ((3, 2), (2, 2), (1, 1)):
        manager.maybe_truncate_checkpoint(log, offset)
        assert world.checkpoint() == {KEY: expected}
    # Also without compaction. (Kafka leaves it: what is appended then would count as clean.)
    log.update_config(log.config.override({"cleanup.policy": "delete"}))
    manager.maybe_truncate_checkpoint(log, 0)
    assert world.checkpoint() == {KEY: 0}


def test_a_line_and_a_mark_move_along(world: World) -> None:
    manager, (one, two) = world.manager, (path.path for path in world.dirs)
    world.log()
    manager.update_checkpoints(one, add=(KEY, 2))
    manager.mark_partition_uncleanable(one, KEY)
    manager.alter_checkpoint_dir(KEY, one, two)
    assert (world.checkpoint("one"), world.checkpoint("two")) == ({}, {KEY: 2})
    assert manager.uncleanable_partitions(one) == frozenset()
    assert manager.uncleanable_partitions(two) == {KEY}
    assert manager.uncleanable_bytes(two, NOW) > 0
    del world.logs.of[KEY]
    manager.maintain_uncleanable_partitions()
    assert manager.uncleanable_partitions(two) == frozenset()


def test_a_directory_that_failed_is_left_alone(world: World) -> None:
    log = world.log()
    world.manager.handle_log_dir_failure(log.parent_dir)
    world.manager.update_checkpoints(log.parent_dir, add=(KEY, 2))
    assert not Path(log.parent_dir, "cleaner-offset-checkpoint").exists()
    assert world.manager.all_cleaner_checkpoints() == {}


@pytest.mark.parametrize("content, is_offline", [
    ("0\n1\nt 0 x\n", False), ("0\n1\nt 0\n", True), ("9\n0\n", True)])
def test_a_checkpoint_that_cannot_be_read(world: World, content: str, is_offline: bool) -> None:
    """It counts as empty. (Invalid numbers end Kafka's thread; an invalid line takes its directory
    offline, as here.)"""
    log = world.log()
    path = world.home / "one" / "cleaner-offset-checkpoint"
    path.write_text(content)
    assert world.grabbed() == "t-0"
    world.done("t-0", 3)
    assert world.manager.all_cleaner_checkpoints() == ({} if is_offline else {KEY: 3})
    assert (path.read_text() == content) == is_offline
    assert world.channel.has_offline_log_dir(log.parent_dir) == is_offline
    assert log.log_end_offset == 3
