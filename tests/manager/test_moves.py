"""Moving a partition to another data directory while it is written."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import seglog
from seglog.config import LogConfig
from seglog.errors import (
    DuplicatePartitionError, IllegalStateError, InvalidReplicaAssignmentError, InvalidTopicError,
    KafkaStorageError, LogDirNotFoundError, UnknownTopicOrPartitionError,
)
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.moves import FutureLogMover, MoveState
from seglog.model import TopicPartition
from tests.manager.moving import N0, begin, current, manager_of, new_log
from tests.manager.records import batch, fill, payload
from tests.manager.support import directories, entries, make_dir
from tests.support.waiting import wait_for

RECOVERY, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / name, []) for name in ("k1", "k2", "k3")]


def test_a_move(roots: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    manager, clock = manager_of(roots)
    with caplog.at_level(logging.INFO), manager:
        source = new_log(manager, roots[0])
        source.append_as_leader(batch(producer_id=9, sequence=0), 0)
        source.update_high_watermark(source.log_end_offset - 2)
        source.flush(True)
        manager.checkpoint_log_recovery_offsets()
        end, bytes_ = source.log_end_offset, payload(source)
        mover = begin(manager, roots[1])
        assert directories(roots[1]) == ["new-0-future"]
        gauges = manager.metrics.snapshot()
        name = "kafka.log:type=Log,name=LogEndOffset,topic=new,partition=0"
        assert (gauges[name]["Value"], gauges[f"{name},is-future=true"]["Value"]) == (end, 0)
        assert mover.step(max_bytes=1_000) is MoveState.COPYING
        assert mover.run() is MoveState.PROMOTED is mover.step()
        moved = current(manager)
        assert moved is not source and moved.parent_dir == str(roots[1])
        assert payload(moved) == bytes_ and moved.log_end_offset == end
        assert moved.high_watermark == end - 2 and moved.recovery_point == end
        assert [one.producer_id for one in moved.producers.entries] == [9]
        assert moved.topic_id == source.topic_id and manager.get_log(N0, is_future=True) is None
        assert directories(roots[0]) == ["new-0-delete"] and directories(roots[1]) == ["new-0"]
        assert entries(roots[0] / RECOVERY) == {} and entries(roots[1] / RECOVERY) == {N0: end}
        gauges = manager.metrics.snapshot()
        assert gauges[name]["Value"] == end and f"{name},is-future=true" not in gauges
        assert "The current replica is successfully replaced with the future replica for new-0" in \
            caplog.messages
        # Holders of the old one can read and flush it, but changes would be lost.
        assert source.read(0, 1_000).records == bytes_[:len(source.read(0, 1_000).records)]
        source.flush(True)
        with pytest.raises(KafkaStorageError, match=f"The log of new-0 was moved to {roots[1]}"):
            fill(source, 1)
        for truncate in (lambda: source.truncate_to(1),
                         lambda: source.truncate_fully_and_start_at(end)):
            with pytest.raises(KafkaStorageError, match="The log of new-0 was moved to"):
                truncate()
        assert manager.is_log_dir_online(roots[0])
        fill(moved, 3)
        assert manager.metrics.snapshot()[name]["Value"] == end + 9, "a gauge of the new log"
        clock.sleep(40_000)
        assert directories(roots[0]) == []
    with manager_of(roots)[0] as manager:
        again = current(manager)
        assert again.log_end_offset == end + 9 and again.parent_dir == str(roots[1])


def test_what_cannot_be_moved(roots: list[Path], tmp_path: Path) -> None:
    manager, _ = manager_of(roots)
    with manager:
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.alter_replica_log_dir(N0, roots[2])
        log = manager.get_or_create_log(N0)
        assert log.parent_dir == str(roots[2]), "the directory was remembered"
        assert manager.alter_replica_log_dir(N0, roots[2]) is None
        with pytest.raises(LogDirNotFoundError):
            manager.alter_replica_log_dir(N0, tmp_path / "nowhere")
        manager.update_cordoned_log_dirs([roots[1]])
        with pytest.raises(InvalidReplicaAssignmentError, match=f"^Log directory {roots[1]} is "
                                                                "cordoned$"):
            manager.alter_replica_log_dir(N0, roots[1])
        manager.update_cordoned_log_dirs([])
        long = TopicPartition("t" * 230, 0)
        manager.get_or_create_log(long)
        with pytest.raises(InvalidTopicError, match="^The topic name is too long.$"):
            manager.alter_replica_log_dir(long, roots[0])
        # 255 bytes with the number, the unique id and `-future`.
        for length, topic in ((213, "u" * 213), (214, "v" * 214)):
            key = TopicPartition(topic, 0)
            manager.maybe_update_preferred_log_dir(key, roots[0])
            manager.get_or_create_log(key)
            if length == 213:
                assert manager.alter_replica_log_dir(key, roots[2]) is not None
                continue
            with pytest.raises(InvalidTopicError):
                manager.alter_replica_log_dir(key, roots[2])
        assert manager.resume_move(N0) is None
        with pytest.raises(KafkaStorageError, match="^The future replica for new-0 is offline$"):
            manager.replace_current_with_future_log(N0)
        with pytest.raises(KafkaStorageError, match="^The current replica for x-0 is offline$"):
            manager.replace_current_with_future_log(TopicPartition("x", 0))
        manager.handle_log_dir_failure(roots[0])
        wait_for(lambda: not manager.is_log_dir_online(roots[0]))
        with pytest.raises(KafkaStorageError, match=f"^Log directory {roots[0]} is offline$"):
            manager.alter_replica_log_dir(N0, roots[0])
        with pytest.raises(KafkaStorageError, match="^Can not create log for new-0 because log "
                                                    f"directories {roots[0]} are offline$"):
            manager.alter_replica_log_dir(N0, roots[1])  # it may be there


def test_a_move_that_is_asked_for_again_goes_on_unless_it_has_another_target(
        roots: list[Path]) -> None:
    """ReplicaManager.alterReplicaLogDirs."""
    with manager_of(roots)[0] as manager:
        new_log(manager, roots[0])
        begin(manager, roots[1]).step(1_000)
        future = manager.get_log(N0, is_future=True)
        begin(manager, roots[1])
        assert manager.get_log(N0, is_future=True) is future
        assert manager.alter_replica_log_dir(N0, roots[0]) is None
        assert manager.get_log(N0, is_future=True) is None, "it is to stay where it is"


@pytest.mark.parametrize("max_bytes", [5_000, 1 << 20])
def test_while_somebody_writes(roots: list[Path], max_bytes: int) -> None:
    with seglog.LogManager(roots, log_config=LogConfig(internal_segment_bytes=50_000)) as manager:
        new_log(manager, roots[0], 5)
        stop, wrote, errors = threading.Event(), [15], []

        def write() -> None:
            """Gets the log again when it has moved, as a producer asks for its leader again."""
            log = current(manager)
            while not stop.is_set():
                try:
                    info = log.append_as_leader(batch(1), 0)
                except KafkaStorageError as error:
                    errors.append(str(error))
                    log = current(manager)
                    continue
                assert info.first_offset == wrote[0]
                wrote[0] += 1
                time.sleep(0.0005)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for root in (1, 2, 0, 1):
                more = wrote[0] + 50
                while wrote[0] < more:
                    time.sleep(0.001)
                mover = begin(manager, roots[root])
                while mover.step(max_bytes) is MoveState.COPYING:
                    pass
                assert mover.state is MoveState.PROMOTED
                assert current(manager).parent_dir == str(roots[root])
        finally:
            stop.set()
            writer.join()
        log = current(manager)
        assert log.log_end_offset == wrote[0] and set(errors) <= {
            f"The log of new-0 was moved to {root}" for root in roots}
        position, offsets = 0, []
        while position < log.log_end_offset:
            records = log.read(position, 1).records
            offsets.append(int.from_bytes(records[:8], "big"))
            position = offsets[-1] + 1 + int.from_bytes(records[23:27], "big")
        assert offsets == [*range(0, 15, 3), *range(15, wrote[0])], "nothing twice, no hole"


@pytest.mark.parametrize("start", [31, 89])
def test_a_start_in_the_middle_of_a_batch(roots: list[Path], start: int) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
        log.delete_old_segments()
        begin(manager, roots[1]).run()
        moved, first = current(manager), start - start % 3
        assert moved.log_start_offset == start and moved.log_end_offset == 90
        # The whole batch is there, as it was in the other directory.
        assert int(moved.segments.base_offsets[0]) == first
        assert int.from_bytes(moved.read(start, 1).records[:8], "big") == first
        # At once: the records before it would be back after a crash.
        assert entries(roots[1] / STARTS) == {N0: start}


def test_the_start_moves_on_meanwhile(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        log.update_high_watermark(log.log_end_offset)
        mover = begin(manager, roots[1])
        mover.step(500)
        log.maybe_increment_log_start_offset(60, StartOffsetReason.CLIENT_RECORD_DELETION)
        log.delete_old_segments()
        assert mover.run() is MoveState.PROMOTED
        assert (current(manager).log_start_offset, current(manager).log_end_offset) == (60, 90)


def test_the_start_moves_on_right_before_a_read(roots: list[Path],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        log.update_high_watermark(log.log_end_offset)
        read = log.read

        def late(*args: Any, **options: Any) -> Any:
            if log.maybe_increment_log_start_offset(60, StartOffsetReason.CLIENT_RECORD_DELETION):
                log.delete_old_segments()
            return read(*args, **options)

        monkeypatch.setattr(log, "read", late)
        assert begin(manager, roots[1]).run() is MoveState.PROMOTED
        moved = current(manager)
        assert (moved.log_start_offset, moved.log_end_offset) == (60, 90)
        assert payload(moved) == payload(log)


def test_the_start_passes_the_copy_right_before_the_last_read(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy does not end below it: its offsets would be given again."""
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        future: Any = manager.get_log(N0, is_future=True)
        read, flush = log.read, future.flush

        def late(*args: Any, **options: Any) -> Any:
            log.maybe_increment_log_start_offset(93, StartOffsetReason.CLIENT_RECORD_DELETION)
            return read(*args, **options)

        def flushed(include_end: bool) -> None:
            flush(include_end)
            if log.log_end_offset == 90:
                log.update_high_watermark(fill(log, 1))
                monkeypatch.setattr(log, "read", late)

        monkeypatch.setattr(future, "flush", flushed)
        assert mover.run() is MoveState.PROMOTED
        assert (current(manager).log_start_offset, current(manager).log_end_offset) == (93, 93)


@pytest.mark.parametrize("target", [0, 20, 30, 31, 88])
@pytest.mark.parametrize("again", [0, 5, 60])
def test_the_current_log_is_truncated_meanwhile(roots: list[Path], target: int,
                                                again: int) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        mover.step(3_000)
        manager.truncate_to({N0: target, TopicPartition("none", 0): 5})
        assert entries(roots[0] / RECOVERY)[N0] <= target
        fill(log, again, value=b"other")  # no epoch tells of it
        bytes_, end = payload(log), log.log_end_offset
        mover.run()
        assert payload(current(manager)) == bytes_
        # Behind a batch that went whole, offsets may be left without records.
        assert current(manager).log_end_offset in (end, target - target % 3)


def test_the_current_log_begins_anew_meanwhile(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        mover.step(3_000)
        log.flush(True)
        manager.checkpoint_log_recovery_offsets()
        manager.truncate_fully_and_start_at(N0, 400)
        manager.truncate_fully_and_start_at(N0, 50)
        assert entries(roots[0] / RECOVERY)[N0] <= 50, "what comes there is not flushed"
        manager.truncate_fully_and_start_at(N0, 500)
        fill(log, 4)
        mover.run()
        moved = current(manager)
        assert (moved.log_start_offset, moved.log_end_offset) == (500, 512)
        assert payload(moved) == payload(log)


def test_a_future_log_can_be_truncated_too(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        mover.step(3_000)
        manager.truncate_to({N0: 3}, is_future=True)
        future = manager.get_log(N0, is_future=True)
        assert future is not None and future.log_end_offset == 3 and log.log_end_offset == 90
        manager.truncate_fully_and_start_at(N0, 0, is_future=True)
        assert future.log_end_offset == 0
        mover.run()
        assert payload(current(manager)) == payload(log)


def test_a_step_copies_at_least_one_batch(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        new_log(manager, roots[0], 3)
        mover, future = begin(manager, roots[1]), manager.get_log(N0, is_future=True)
        assert future is not None
        for copied in (3, 6):
            assert mover.step(max_bytes=1) is MoveState.COPYING
            assert future.log_end_offset == copied
        assert mover.step(max_bytes=1) is MoveState.PROMOTED and current(manager) is future


def test_another_destination_cancels_a_move(roots: list[Path]) -> None:
    manager, clock = manager_of(roots)
    with manager:
        new_log(manager, roots[0])
        first = begin(manager, roots[1])
        first.step(1_000)
        second = begin(manager, roots[2])
        assert directories(roots[1]) == ["new-0-delete"]
        assert directories(roots[2]) == ["new-0-future"]
        assert second.run() is MoveState.PROMOTED and first.run() is MoveState.CANCELLED
        clock.sleep(40_000)
        assert [directories(root) for root in roots] == [[], [], ["new-0"]]


def test_a_future_log_that_goes_cancels_the_move(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        mover.step(1_000)
        manager.async_delete(N0, is_future=True)
        assert mover.run() is MoveState.CANCELLED and current(manager) is log
        mover = begin(manager, roots[1])
        mover.step(1_000)
        manager.handle_log_dir_failure(roots[1])
        wait_for(lambda: not manager.is_log_dir_online(roots[1]))
        assert mover.run() is MoveState.CANCELLED and current(manager) is log
        fill(log, 1)


def test_a_future_log_that_goes_before_the_end_of_a_move(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover, future = begin(manager, roots[1]), manager.get_log(N0, is_future=True)
        assert future is not None
        promote = mover._moves.promote_if_caught_up
        assert not promote(log, future, lambda: False)
        manager.async_delete(N0, is_future=True)
        assert not promote(log, future, lambda: True)
        assert current(manager) is log


@pytest.mark.parametrize("same_topic", [True, False])
def test_abandoned_future_logs(roots: list[Path], same_topic: bool,
                               caplog: pytest.LogCaptureFixture) -> None:
    manager, _ = manager_of(roots)
    with caplog.at_level(logging.INFO), manager:
        log = new_log(manager, roots[0])
        topic_id = log.topic_id
        assert topic_id is not None
        begin(manager, roots[1]).step(4_000)
        future = manager.get_log(N0, is_future=True)
        assert future is not None
        asked: list[tuple[TopicPartition, uuid.UUID]] = []

        def assigned(key: TopicPartition, topic: uuid.UUID) -> uuid.UUID | None:
            asked.append((key, topic))
            return manager.directory_id(roots[wanted])

        for wanted in (0, 2):
            manager.recover_abandoned_future_logs(assigned)
            assert current(manager) is log
        wanted = 1
        if not same_topic:
            log._metadata.topic_id = uuid.uuid4()
        watermark = future.high_watermark
        log.update_high_watermark(log.log_end_offset)
        manager.recover_abandoned_future_logs(assigned)
        assert current(manager) is future and not manager.future_logs
        assert asked == [(N0, topic_id)] * 3
        assert future.high_watermark == watermark < log.high_watermark
        assert future.recovery_point == future.log_end_offset == entries(roots[1] / RECOVERY)[N0]
        assert directories(roots[0]) == (["new-0-delete"] if same_topic else ["new-0"])
        assert "Successfully recovered abandoned future log for new-0" in caplog.messages


def test_an_abandoned_future_log_after_one_that_stays(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        keys = [N0, TopicPartition("new", 1)]
        for key in keys:
            manager.maybe_update_preferred_log_dir(key, roots[0])
            manager.get_or_create_log(key, topic_id=uuid.UUID(int=77 << 64))
            manager.alter_replica_log_dir(key, roots[1])
        manager.recover_abandoned_future_logs(
            lambda key, _: manager.directory_id(roots[key.partition]))
        assert [*manager.future_logs] == [N0]


def test_a_future_log_without_a_topic_id(roots: list[Path]) -> None:
    manager, _ = manager_of(roots)
    with manager:
        manager.maybe_update_preferred_log_dir(N0, roots[0])
        manager.get_or_create_log(N0)
        begin(manager, roots[1])
        with pytest.raises(IllegalStateError, match="does not have a topic ID"):
            manager.recover_abandoned_future_logs(lambda key, topic: None)


def test_a_directory_that_fails_between_the_renames(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    manager, _ = manager_of(roots)
    rename = os.rename

    def broken(source: str, target: str) -> None:
        if str(target).endswith("-delete"):
            raise OSError(5, "Input/output error", source)
        rename(source, target)

    with manager:
        log = new_log(manager, roots[0])
        bytes_ = payload(log)
        mover = begin(manager, roots[1])
        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", broken)
            with pytest.raises(KafkaStorageError, match="Error while renaming dir for new-0"):
                mover.run()
        assert mover.state is MoveState.PROMOTED and mover.run() is MoveState.PROMOTED
        moved = current(manager)
        assert moved.parent_dir == str(roots[1]) and payload(moved) == bytes_ and log.is_closed
        assert not any("type=Log," in name for name in manager.metrics.snapshot())
        wait_for(lambda: not manager.is_log_dir_online(roots[0]))
        fill(moved, 1)
    assert directories(roots[0]) == ["new-0"] == directories(roots[1])
    with pytest.raises(DuplicatePartitionError, match="log directory failure happened while broker "
                                                      "was replacing current replica"):
        manager_of(roots)[0].__enter__()


@pytest.mark.parametrize("goes", [False, True])
def test_a_step_that_fails_can_be_made_again(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch, goes: bool) -> None:
    """As long as the future log is there."""
    manager, _ = manager_of(roots)

    def broken(log: UnifiedLog, *args: object) -> None:
        if goes:  # another thread deletes it, or its directory fails
            manager._state.table.remove(N0, is_future=True)
        raise KafkaStorageError("of the test")

    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        with monkeypatch.context() as patch:
            patch.setattr(UnifiedLog, "flush", broken)
            if goes:
                assert mover.run() is MoveState.CANCELLED
            else:
                with pytest.raises(KafkaStorageError, match="^of the test$"):
                    mover.run()
                assert mover.state is MoveState.COPYING
        assert current(manager) is log
        assert mover.run() is (MoveState.CANCELLED if goes else MoveState.PROMOTED)


def test_a_round_gains_something_if_it_halves_what_is_missing() -> None:
    """A round ends where the current log ended when it began."""
    nothing: Any = None
    mover = FutureLogMover(nothing, TopicPartition("t", 0))

    def gains_nothing(end: int, copied: int) -> bool:
        logs: list[Any] = [SimpleNamespace(log_end_offset=offset) for offset in (end, copied)]
        return mover._gains_nothing(*logs)

    assert not gains_nothing(100, 0)  # the first round: up to 100, of which 100 are missing
    assert not gains_nothing(120, 99)
    assert not gains_nothing(150, 100)  # 50 are missing
    assert not gains_nothing(170, 149)
    assert gains_nothing(176, 150)  # 26, more than half of them
    assert not gains_nothing(189, 176)  # 13
    assert not gains_nothing(195, 189)  # 6
