"""Batches that stop a recovery although every CRC is right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import seglog
from seglog._native.batch import scan_file
from seglog.config import LogConfig
from seglog.errors import LogLoadError
from seglog.model import AbortedTxn, TopicPartition
from seglog.recovery.open_log import load_log
from seglog.recovery.producer_folding import fold_batches
from seglog.recovery.scans import Extent, SegmentScans
from seglog.recovery.segment_recovery import RecoveryFailure, recover_extent
from seglog.storage.paths import snapshot_name
from seglog.storage.producer_state import ProducerState, encode_snapshot
from seglog.storage.txn_entries import encode_entries
from tests.oracle import batch as oracle
from tests.recovery.test_log_loader import inputs, load, written


def data(offset: int, producer_id: int, transactional: bool) -> oracle.Batch:
    return oracle.Batch(offset, 0, [oracle.Record(offset, 1000, b"k", b"v")], base_timestamp=1000,
                        max_timestamp=1000, producer_id=producer_id, producer_epoch=0,
                        base_sequence=0, is_transactional=transactional)


def control(offset: int, producer_id: int, key: bytes | None, value: bytes | None) -> oracle.Batch:
    return oracle.Batch(offset, 0, [oracle.Record(offset, 1000, key, value)], base_timestamp=1000,
                        max_timestamp=1000, producer_id=producer_id, producer_epoch=0,
                        is_transactional=True, is_control=True)


BEGUN = [data(0, 7, True), data(1, 8, False)]


@pytest.mark.parametrize(("batches", "kafka_error", "offset", "message"), [
    ([*BEGUN, data(2, 7, False)], "InvalidTxnStateException", 2,
     "Expected transactional write from producer 7 at offset (offset=2, segment=[-1:-1]) in "
     "partition t-0"),
    ([*BEGUN, control(2, 7, b"\0\0\0\2", bytes(6))], "IllegalArgumentException", 2,
     "Invalid control record type for end transaction marker LEADER_CHANGE"),
    ([control(0, 7, bytes(4), None)], "NullPointerException", 0, None),
    ([control(0, 7, bytes(4), bytes(5))], "BufferUnderflowException", 0, None),
    ([control(0, 7, None, bytes(6))], "NullPointerException", 0, None),
    ([*BEGUN, control(2, 7, bytes(4), bytes(6)), data(3, 7, False)], None, 4, None),
])
def test_what_stops_a_recovery(tmp_path: Path, batches: list[oracle.Batch],
                               kafka_error: str | None, offset: int, message: str | None) -> None:
    (tmp_path / "t-0").mkdir()
    encoded = [oracle.encode(batch) for batch in batches]
    (tmp_path / "t-0" / "00000000000000000000.log").write_bytes(b"".join(encoded))
    with seglog.open_data_dir(tmp_path, level="verify") as found:
        report, = found.report.partitions
    assert report.kafka_error == kafka_error
    if kafka_error is None:
        assert report.log_end_offset == offset
        return
    fatal, = [one for one in report.findings if one.code == "log-unloadable"]
    assert fatal.position == sum(map(len, encoded[:offset]))
    assert message is None or fatal.message == message


@pytest.mark.parametrize(("last", "is_refused"), [(None, False), (0, False), (1, True), (2, True)])
def test_the_entries_of_a_transaction_index_end_ever_later(
        tmp_path: Path, last: int | None, is_refused: bool) -> None:
    """TransactionIndex.append: above the last entry's last offset."""
    path, begun = tmp_path / f"{0:020d}.log", oracle.encode(data(0, 7, True))
    path.write_bytes(begun + oracle.encode(control(1, 7, bytes(4), bytes(6))))
    with open(path, "rb") as file:
        batches = scan_file(file.fileno(), 0, path.stat().st_size).batches
        folded = fold_batches(
            ProducerState(TopicPartition("t", 0), 0), batches, file.fileno(), str(path),
            last=None if last is None else AbortedTxn(9, 0, last, last), txn_index="index")
    assert folded.aborted == ([] if is_refused else [AbortedTxn(7, 0, 1, 2)])
    assert folded.failed_at == (len(begun) if is_refused else -1)
    assert not is_refused or folded.failure is not None and folded.failure.message == (
        "The last offset of appended transactions must increase sequentially, but 1 is not greater "
        f"than current last offset {last} of index index")


def test_an_entry_of_a_transaction_index_ends_after_the_one_before_it(tmp_path: Path) -> None:
    """Not only after the first of its chunk."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(map(oracle.encode, (
        *(data(producer, producer, True) for producer in (1, 2, 3)),
        *(control(offset, producer, bytes(4), bytes(6))
          for offset, producer in ((5, 1), (9, 2), (7, 3)))))))
    with open(path, "rb") as file:
        batches = scan_file(file.fileno(), 0, path.stat().st_size).batches
        folded = fold_batches(ProducerState(TopicPartition("t", 0), 0), batches, file.fileno(),
                              str(path), txn_index="index")
    assert [one.last_offset for one in folded.aborted] == [5, 9]
    assert folded.failed_at == int(batches["position"][5])


@pytest.mark.parametrize(("last", "accepted"), [(9, False), (10, True), (11, True)])
def test_kafka_accepts_entries_that_do_not_rise_from_the_base_offset_on(
        tmp_path: Path, last: int, accepted: bool) -> None:
    """TransactionIndex.sanityCheck compares each with the base offset alone."""
    path = tmp_path / "t-0"
    path.mkdir()
    (path / f"{10:020d}.log").write_bytes(oracle.encode(data(10, 7, False)))
    (path / f"{10:020d}.txnindex").write_bytes(encode_entries(
        [AbortedTxn(7, 10, 12, 13), AbortedTxn(8, 9, last, 13)]))
    with seglog.open_data_dir(tmp_path, level="full") as found:
        [told] = [one for one in found.report.findings if one.file == f"{10:020d}.txnindex"]
    assert told.found == last
    assert (told.action == "none") == accepted


def test_records_are_stable_up_to_the_batch_of_an_open_transaction(tmp_path: Path) -> None:
    path = written(tmp_path / "t-0", {0: b"".join(map(oracle.encode, (
        data(0, 8, False), data(1, 7, True), data(2, 8, True))))})
    log = load(path)
    assert (log.log_end_offset, log.first_unstable_offset) == (3, 1)
    log.close()


def test_a_transaction_is_unstable_until_its_marker_is_replicated(tmp_path: Path) -> None:
    """ProducerStateManager.onHighWatermarkUpdated."""
    path = written(tmp_path / "t-0", {0: b"".join(map(oracle.encode, (
        data(0, 7, True), control(1, 7, bytes(4), bytes(6)))))})
    (path / snapshot_name(0)).write_bytes(encode_snapshot([]))  # so the log is read
    log = load_log(str(path), inputs(clean=True))
    for offset, unstable in ((1, 0), (2, None)):
        log.update_high_watermark(offset)
        assert log.first_unstable_offset == unstable
    log.close()


def test_an_open_transaction_is_unstable_from_the_batch_in_which_the_log_starts(
        tmp_path: Path) -> None:
    """LogSegment.read, which UnifiedLog.maybeIncrementFirstUnstableOffset asks."""
    records = [oracle.Record(offset, 1000, b"k", b"v") for offset in (1, 2, 3)]
    path = written(tmp_path / "t-0", {0: oracle.encode(data(0, 8, False)) + oracle.encode(replace(
        data(1, 7, True), last_offset_delta=2, records=records)), 4: oracle.encode(
            data(4, 8, False))})
    log = load_log(str(path), replace(inputs(), log_start_offset=2))
    assert (log.log_start_offset, log.log_end_offset, log.first_unstable_offset) == (2, 5, 1)
    assert 0 not in [one.base_offset for one in log.segments.held]
    log.close()


def test_the_epochs_of_a_recovery_that_is_abandoned_stay(tmp_path: Path) -> None:
    """LogSegment.recover assigns each as it goes."""
    path = written(tmp_path / "t-0", {0: b"".join(oracle.encode(
        replace(one, partition_leader_epoch=5)) for one in [*BEGUN, data(2, 7, False)])})
    with pytest.raises(LogLoadError):
        load(path)
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n1\n5 0\n"


@pytest.mark.parametrize("offset", [-1, -5])
def test_no_epoch_begins_below_0(tmp_path: Path, offset: int) -> None:
    """EpochEntry of LeaderEpochFileCache.assign; of a segment with a name such as `-5.log`."""
    path = tmp_path / "log"
    path.write_bytes(b"".join(oracle.encode(replace(
        data(base, 7, False), partition_leader_epoch=5)) for base in (offset, offset + 1)))
    with pytest.raises(RecoveryFailure) as caught:
        recover_extent(offset, Extent(str(path), 0, path.stat().st_size), LogConfig(),
                       ProducerState(TopicPartition("t", 0), 0))
    assert "Received invalid partition leader epoch entry" in caught.value.message
    assert caught.value.recovery.batch_count == 1


def test_a_recovery_ends_at_the_same_batch_however_it_is_read(tmp_path: Path) -> None:
    """In one chunk, or with a chunk for each batch: nothing after the refused one counts."""
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(map(oracle.encode, (
        *BEGUN, data(2, 7, False), data(3, 9, False)))))
    extent, found = Extent(str(path), 0, path.stat().st_size), []
    for scans in (SegmentScans(), SegmentScans(chunk_bytes=1)):
        with pytest.raises(RecoveryFailure) as caught:
            recover_extent(0, extent, LogConfig(), ProducerState(TopicPartition("t", 0), 0),
                           scans=scans)
        found.append(caught.value.recovery)
    assert found[0] == found[1] and found[0].batch_count == 3
