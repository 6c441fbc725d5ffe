"""Moves to another data directory that go on after a restart, a power cut or a truncation."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import seglog
from seglog.errors import (
    DuplicatePartitionError, KafkaStorageError, UnexpectedAppendOffsetError,
)
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager.moves import FutureLogMover, MoveState
from seglog.manager.table import LogTable
from seglog.model import TopicPartition
from seglog.recovery.disk import RealDisk
from tests.cleaner.support import append, records, roll
from tests.manager.compacting import COMPACT, T0, manager_of as compacting
from tests.manager.moving import N0, begin, current, manager_of, new_log
from tests.manager.records import batch, fill, payload
from tests.manager.support import break_load, directories, input_output_error, make_dir


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [make_dir(tmp_path / name, []) for name in ("k1", "k2")]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_move_goes_on_after_a_restart(roots: list[Path], is_deleted: bool) -> None:
    """Records that the copy has may be deleted in its source then."""
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover, future = begin(manager, roots[1]), manager.get_log(N0, is_future=True)
        assert future is not None
        while future.number_of_segments == 1:
            mover.step(1_000)
        copied, bytes_ = future.log_end_offset, payload(log)
        assert 0 < copied < 90
    manager, _ = manager_of(roots)
    with manager:
        found = manager.get_log(N0, is_future=True)
        assert found is not None and found.log_end_offset == copied
        if is_deleted:
            log = current(manager)
            log.update_high_watermark(log.log_end_offset)
            log.maybe_increment_log_start_offset(copied - 1,
                                                 StartOffsetReason.CLIENT_RECORD_DELETION)
        mover = manager.resume_move(N0)
        assert mover is not None
        assert [mover.step(1 << 20) for _ in range(100)][-1] is MoveState.PROMOTED
        assert payload(current(manager)) == bytes_
        assert current(manager).log_start_offset == (copied - 1 if is_deleted else 0)


@pytest.mark.parametrize("resumes", [
    seglog.LogManager.resume_move,
    lambda manager, key: manager.alter_replica_log_dir(key, manager.log_dirs[1])])
def test_a_copy_gets_the_topic_id_that_a_crash_left_out(
        roots: list[Path], resumes: Callable[[seglog.LogManager, TopicPartition], FutureLogMover]
        ) -> None:
    """A broker takes a log without one for stray."""
    manager, _ = manager_of(roots)
    with manager:
        topic_id = new_log(manager, roots[0]).topic_id
        begin(manager, roots[1])
        future = manager.get_log(N0, is_future=True)
        assert future is not None
    Path(future.path, "partition.metadata").unlink()
    manager, _ = manager_of(roots)
    with manager:
        assert resumes(manager, N0).run() is MoveState.PROMOTED
        assert current(manager).topic_id == topic_id
    manager, _ = manager_of(roots)
    with manager:
        assert current(manager).topic_id == topic_id


@pytest.mark.parametrize("row", [0, 1])
def test_a_move_goes_on_after_a_power_cut(roots: list[Path], row: int) -> None:
    """A segment of the copy was not durable although a later one was: the copy is not complete."""
    manager, _ = manager_of(roots)
    with manager:
        log = new_log(manager, roots[0])
        mover = begin(manager, roots[1])
        for _ in range(12):
            mover.step(500)
        future = manager.get_log(N0, is_future=True)
        assert future is not None and len(future.segments) > 2
        bases, bytes_ = future.segments.base_offsets.tolist(), payload(log)
    os.truncate(Path(future.path, f"{bases[row]:020d}.log"), 0)
    (roots[1] / ".kafka_cleanshutdown").unlink()
    (roots[1] / "recovery-point-offset-checkpoint").unlink()
    manager, _ = manager_of(roots)
    with manager:
        found = manager.get_log(N0, is_future=True)
        assert found is not None and found.segments.base_offsets.tolist() == bases
        resumed = manager.resume_move(N0)
        assert resumed is not None and resumed.run() is MoveState.PROMOTED
        assert payload(current(manager)) == bytes_


def started_copy(manager: seglog.LogManager, roots: list[Path]
                 ) -> tuple[UnifiedLog, UnifiedLog, FutureLogMover]:
    """A log of three batches, and its future log with the same three."""
    source = new_log(manager, roots[0], 0)
    mover = begin(manager, roots[1])
    future = manager.get_log(N0, is_future=True)
    assert future is not None
    fill(source, 3)
    future.append_as_follower(source.read(0, 10_000, "log_end").records, 1 << 30)
    assert payload(future) == payload(source)
    return source, future, mover


def test_a_copy_of_records_that_the_source_has_no_more(roots: list[Path]) -> None:
    """Above them neither log has records, up to the offset of a truncation."""
    manager, _ = manager_of(roots)
    with manager:
        source, future, mover = started_copy(manager, roots)
        second, third = source.log_end_offset // 3, source.log_end_offset // 3 * 2
        source.truncate_to(second)
        fill(source, 2, value=b"w" * 100)
        source.truncate_to(third + 1)
        bytes_ = payload(source)
        assert bytes_ != payload(future)[:len(bytes_)]
        assert mover.run() is MoveState.PROMOTED
        assert payload(current(manager)) == bytes_


@pytest.mark.parametrize(("start", "end"), [(0, 6), (10, 10)])
def test_only_the_batch_that_holds_its_start_begins_a_copy_anew(roots: list[Path], start: int,
                                                                end: int) -> None:
    """Partition.doAppendRecordsToFollowerOrFutureReplica: not one in a copy that has records, nor
    one that ends before the start."""
    manager, _ = manager_of(roots)
    with manager:
        new_log(manager, roots[0])
        mover, future = begin(manager, roots[1]), manager.get_log(N0, is_future=True)
        assert future is not None
        future.truncate_fully_and_start_at(start)
        fill(future, (end - start) // 3)
        assert (future.log_start_offset, future.log_end_offset) == (start, end)
        four_to_six = (4).to_bytes(8, "big") + batch()[8:]
        with pytest.raises(UnexpectedAppendOffsetError):
            mover._append(future, four_to_six, end)
        assert (future.log_start_offset, future.log_end_offset) == (start, end)


def test_a_copy_of_which_the_source_has_deleted_all(roots: list[Path]) -> None:
    """The source begins inside a batch, where the copy has others."""
    manager, _ = manager_of(roots)
    with manager:
        source, _, mover = started_copy(manager, roots)
        second = source.log_end_offset // 3
        source.truncate_to(second)
        source.append_as_leader(batch(second * 2), 0)
        source.update_high_watermark(source.log_end_offset)
        source.maybe_increment_log_start_offset(second + 1,
                                                StartOffsetReason.CLIENT_RECORD_DELETION)
        bytes_ = payload(source)
        assert mover.run() is MoveState.PROMOTED
        moved = current(manager)
        assert moved.log_start_offset == second + 1 and bytes_.endswith(payload(moved))


def test_a_copy_that_ends_where_its_source_begins_is_dropped(roots: list[Path]) -> None:
    """It has nothing that may be read, and would take room until the next retention."""
    manager, _ = manager_of(roots)
    with manager:
        source, future, mover = started_copy(manager, roots)
        start = future.log_end_offset
        source.update_high_watermark(source.log_end_offset)
        source.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
        assert mover.run() is MoveState.PROMOTED
        assert int(current(manager).segments.base_offsets[0]) == start


def test_a_copy_without_records_is_durable_before_its_source_may_go(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of its segment says where the log ends."""
    manager, _ = manager_of(roots)
    with manager:
        new_log(manager, roots[0])
        begin(manager, roots[1])
        future, synced = manager.get_log(N0, is_future=True), list[str]()
        assert future is not None
        future.truncate_fully_and_start_at(90)
        with monkeypatch.context() as patch:
            patch.setattr(RealDisk, "open_for_sync", lambda disk, names: synced.extend(names) or [])
            manager.replace_current_with_future_log(N0)
        assert f"{90:020d}.log" in synced


def test_where_a_moved_log_starts_is_durable_before_its_source_may_go(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut right after the new log has its name: an operator keeps one of the two."""
    manager, _ = manager_of(roots)
    kept = roots[1].with_name("kept")
    with manager:
        source = new_log(manager, roots[0])
        start = source.log_end_offset // 2 + 1
        source.update_high_watermark(source.log_end_offset)
        source.maybe_increment_log_start_offset(start, StartOffsetReason.CLIENT_RECORD_DELETION)
        promote = LogTable.promote

        def cut(table: LogTable, log: UnifiedLog) -> None:
            shutil.copytree(roots[1], kept)
            promote(table, log)

        monkeypatch.setattr(LogTable, "promote", cut)
        assert begin(manager, roots[1]).run() is MoveState.PROMOTED
    with manager_of([kept])[0] as manager:
        assert current(manager).log_start_offset == start


@pytest.mark.parametrize("resume", [
    lambda manager, root: manager.resume_move(T0),
    lambda manager, root: manager.alter_replica_log_dir(T0, root)])
def test_a_copy_whose_source_was_compacted_while_it_was_away(
        roots: list[Path], resume: Callable[[seglog.LogManager, Path], FutureLogMover]) -> None:
    """It has records that the source has not any more, and tombstones for them. If it counted as
    clean, the tombstones would go first, and the deleted records would be back."""
    settings = COMPACT | {"delete.retention.ms": "0"}

    def started(*roots: Path) -> seglog.LogManager:
        manager = compacting(*roots, scheduled=False)
        manager.update_topic_config("t", settings)
        return manager

    with started(*roots) as manager:
        manager.maybe_update_preferred_log_dir(T0, roots[0])
        log = manager.get_or_create_log(T0, is_new=True)
        for rows in ([(b"k", b"v")], [(b"k", None)], [(b"last", b"v")]):
            append(log, rows)
        roll(log)
        append(log, [(b"not copied yet", b"v")])
        mover = manager.alter_replica_log_dir(T0, roots[1])
        assert mover is not None
        for _ in range(3):
            assert mover.step(1) is MoveState.COPYING
    with started(roots[0]) as manager:  # the other directory is away
        assert len(manager.compact(T0)) == 1
    with started(*roots) as manager:
        assert resume(manager, roots[1]).run() is MoveState.PROMOTED
        log = manager.get_log(T0) or log
        assert str(roots[1]) in log.path
        for _ in range(3):
            append(log, [(b"c", b"v")])
            roll(log)
            manager.compact(T0)
        assert b"k" not in [one.key for one in records(log) if one.value is not None]


def test_a_copy_that_is_told_to_replace_its_source_gets_its_high_watermark(roots: list[Path]
                                                                           ) -> None:
    """LogManager.replaceCurrentWithFutureLog."""
    manager, _ = manager_of(roots)
    with manager:
        source, future, _ = started_copy(manager, roots)
        source.update_high_watermark(future.log_end_offset - 1)
        assert future.high_watermark < source.high_watermark
        manager.replace_current_with_future_log(N0)
        assert current(manager) is future
        assert future.high_watermark == future.log_end_offset - 1


KILLED = """
import os, sys, uuid
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, {here!r})
from tests.manager import moving as moves
roots, die_at = [Path(path) for path in sys.argv[2:]], int(sys.argv[1])
manager, _ = moves.manager_of(roots)
manager.startup()
log = moves.new_log(manager, roots[0], 20)
log.flush(True)
manager.checkpoint_log_recovery_offsets()
mover = moves.begin(manager, roots[1])
calls, rename = [0], os.rename
def counted(*args, **how):
    calls[0] += 1
    if calls[0] == die_at:
        os.kill(os.getpid(), 9)
    rename(*args, **how)
os.rename = os.replace = counted
mover.run()
sys.exit(calls[0])
"""


def killed_move(roots: list[Path], die_at: int) -> int:
    """The end of a process that moves new-0 from k1 to k2, killed at the n-th rename of a file
    or directory."""
    here = str(Path(__file__).resolve().parents[2])
    return subprocess.run([sys.executable, "-c", KILLED.format(here=here), str(die_at),
                           *map(str, roots)], check=False, timeout=600).returncode


@pytest.mark.judge
def test_killed_at_any_rename(tmp_path: Path) -> None:
    """The partition is whole afterwards in one directory, or, between the two renames, in two."""
    renames = killed_move([make_dir(tmp_path / "whole" / name, []) for name in ("k1", "k2")], 0)
    assert renames >= 2
    duplicates = 0
    for die_at in sorted({1, renames, *random.Random(5).sample(range(1, renames + 1),
                                                                min(renames, 6))}):
        roots = [make_dir(tmp_path / f"{die_at}" / name, []) for name in ("k1", "k2")]
        assert killed_move(roots, die_at) == -9
        try:
            with manager_of(roots)[0] as manager:
                log = current(manager)
                assert log.log_end_offset == 60 and len(payload(log)) == log.size
                mover = manager.resume_move(N0)
                if mover is not None:
                    mover.run()
                    assert current(manager).log_end_offset == 60
        except DuplicatePartitionError:
            assert directories(roots[0]) == ["new-0"] == directories(roots[1])
            duplicates += 1
    assert duplicates >= 1


def test_a_copy_that_did_not_load_gets_no_other_beside_it(
        roots: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No later start would know which of them to take."""
    manager, _ = manager_of(roots)
    with manager:
        new_log(manager, roots[0])
        begin(manager, roots[1]).step(1_000)
        future = manager.get_log(N0, is_future=True)
        assert future is not None
    with monkeypatch.context() as patch:
        break_load(patch, Path(future.path).name, input_output_error)
        manager, _ = manager_of(roots, on_load_error=lambda path, error: None)
        with manager, pytest.raises(KafkaStorageError, match=f"its log in {roots[1]} did not load"):
            begin(manager, roots[1])
    manager, _ = manager_of(roots)
    with manager:
        assert manager.resume_move(N0) is not None
