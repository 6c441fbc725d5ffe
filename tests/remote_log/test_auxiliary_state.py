"""A log whose disk was lost continues after its remote segments."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.errors import (
    CorruptDataError, IllegalArgumentError, IllegalStateError, OutOfOrderSequenceError,
    RemoteResourceNotFoundError, RemoteStorageError,
)
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.tiered import RemoteLogSegmentState
from tests.remote_log.support import NOW_MS, update
from tests.remote_log.tiering import BATCH_VALUE, KEY, Make, Tiering, contents
from tests.remote_log.tiering import make as make  # the fixture

PRODUCER = 77


def produce(tiering: Tiering, sequence: int, epoch: int = 0) -> None:
    """One record of an idempotent producer."""
    builder = RecordBatchBuilder(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
    builder.append(NOW_MS + tiering.log.log_end_offset, None, BATCH_VALUE)
    tiering.log.append_as_leader(builder.build(), epoch)
    tiering.log.update_high_watermark(tiering.log.log_end_offset)


@pytest.fixture
def lost(make: Make, tmp_path: Path) -> tuple[Tiering, list[bytes], int]:
    """A follower's empty log, what the lost one held, and where its remote segments end."""
    one = make()
    for number in range(18):
        produce(one, number, epoch=number // 7)
    one.copy()
    held, end = contents(one), one.bases()[-1]
    one.close()
    shutil.rmtree(tmp_path / "data" / "orders-0")
    for path in (tmp_path / "data").glob("*-checkpoint"):
        path.unlink()
    return make(is_leader=False), held, end


def test_it_continues(lost: tuple[Tiering, list[bytes], int], make: Make) -> None:
    one, held, end = lost
    assert one.log.log_end_offset == 0 < end
    assert one.tiering.start_at_remote_end(KEY) == end
    log = one.log
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset,
            log.high_watermark) == (0, end, end, end)
    assert [(entry.epoch, entry.start_offset) for entry in log.leader_epochs] == [
        (0, 0), (1, 7), (2, 14)][:1 + (end - 1) // 7]
    one.tiering.on_leadership_change([KEY])
    assert contents(one) == held[:end]
    with pytest.raises(OutOfOrderSequenceError):
        produce(one, end + 5, epoch=3)
    for number in range(end, end + 12):
        produce(one, number, epoch=3)
    before = len(one.segments())
    one.copy()
    assert len(one.segments()) > before
    found = [(segment.start_offset, segment.end_offset) for segment in one.segments()]
    assert [start for start, _ in found[1:]] == [last + 1 for _, last in found[:-1]]
    assert len(contents(one)) == end + 12
    one.close()
    again = make()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (0, end + 12)
    assert contents(again)[:end] == held[:end]
    produce(again, end + 12, epoch=4)


def test_segments_whose_deletion_began_are_left_out(lost: tuple[Tiering, list[bytes], int]) -> None:
    """Nothing moves the start over them any more, and reads do not find them."""
    one, held, end = lost
    first, second = one.segments()[:2]
    one.tiering.metadata.update_remote_log_segment_metadata(update(
        first, RemoteLogSegmentState.DELETE_SEGMENT_STARTED)).result()
    assert one.tiering.start_at_remote_end(KEY) == end
    assert one.log.log_start_offset == second.start_offset
    one.tiering.on_leadership_change([KEY])
    one.copy()
    assert contents(one, one.log.log_start_offset) == held[second.start_offset:end]


def test_it_continues_where_the_leader_says(lost: tuple[Tiering, list[bytes], int]) -> None:
    one, _, end = lost
    first = one.segments()[0]
    assert one.tiering.start_at_remote_end(KEY, leader=(0, 2), log_start_offset=1) == \
        first.end_offset + 1 < end
    assert (one.log.log_start_offset, one.log.log_end_offset) == (1, first.end_offset + 1)
    assert one.tiering.start_at_remote_end(KEY) == end
    assert one.log.log_start_offset == 1
    with pytest.raises(RemoteStorageError, match="offset 2 of epoch 9"):
        one.tiering.start_at_remote_end(KEY, leader=(9, 2))
    for tags in ({}, {"topic": "orders"}):
        assert one.gauge("BuildRemoteLogAuxStateRequestsPerSec", **tags) == 3
        assert one.gauge("BuildRemoteLogAuxStateErrorsPerSec", **tags) == 1
    produce(one, end, epoch=5)
    with pytest.raises(IllegalStateError, match="not lost"):
        one.tiering.start_at_remote_end(KEY)
    assert one.log.log_end_offset == end + 1


@pytest.mark.parametrize(("suffix", "change", "error"), [
    (".snapshot", Path.unlink, RemoteResourceNotFoundError),
    (".snapshot", lambda path: path.write_bytes(path.read_bytes()[:-1]), CorruptDataError),
    (".leader_epoch_checkpoint", lambda path: path.write_text("0\n1\nx y\n"), CorruptDataError)])
def test_what_is_damaged_changes_nothing(lost: tuple[Tiering, list[bytes], int], suffix: str,
                                         change: Callable[[Path], object], error: type[Exception]
                                         ) -> None:
    one, _, _ = lost
    produce(one, 0)
    change(one.storage.path(one.segments()[-1], suffix))
    with pytest.raises(error):
        one.tiering.start_at_remote_end(KEY)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 1)


def test_a_start_after_the_end_is_refused(lost: tuple[Tiering, list[bytes], int]) -> None:
    one, _, end = lost
    with pytest.raises(IllegalArgumentError, match=f"after {end}, where the log continues"):
        one.tiering.start_at_remote_end(KEY, log_start_offset=end + 1)
    assert (one.log.log_start_offset, one.log.log_end_offset) == (0, 0)
    assert one.tiering.start_at_remote_end(KEY, log_start_offset=end) == end
    assert (one.log.log_start_offset, one.log.log_end_offset) == (end, end)


def test_nothing_is_there(make: Make) -> None:
    one = make(is_leader=False)
    with pytest.raises(RemoteStorageError, match="metadata was not found"):
        one.tiering.start_at_remote_end(KEY)
