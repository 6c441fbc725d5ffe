"""Reads of a log that is written to: bounds, limits, many segments, few descriptors, and damage.
What Kafka answers to the same questions is in test_read_kafka.py."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seglog._native.batch import scan
from seglog._native.fetch import LogOffsetMetadata
from seglog.config import LogConfig
from seglog.errors import (
    CorruptRecordError, IllegalArgumentError, InvalidRecordError, KafkaStorageError,
    OffsetOutOfRangeError,
)
from seglog.log import readers
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.read import LogReads
from seglog.log.scheduler import MockTime
from seglog.model import MAX_TIMESTAMP, TimestampOffset
from seglog.log.unified_log import UnifiedLog
from seglog.storage.markers import ControlType
from tests.log.test_fast_path import open_log
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.compression import compress
from tests.support.held import open_files
from tests.support.waiting import wait_for

NOW = 1_700_000_000_000
END, HIGH, COMMITTED = ("log_end", "read_uncommitted",
                        "read_committed")
Make = Callable[..., UnifiedLog]


def batch(count: int = 1, size: int = 50, *, timestamp: int = NOW, producer: int | None = None,
          sequence: int = 0) -> bytes:
    whose = {} if producer is None else {"producer_id": producer, "producer_epoch": 0,
                                         "base_sequence": sequence, "is_transactional": True}
    builder = RecordBatchBuilder(**whose)
    for n in range(count):
        builder.append(timestamp + n, None, bytes(size))
    return builder.build()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """`make(segment_bytes=...)`: an empty log."""
    opened: list[UnifiedLog] = []

    def create(**settings: str) -> UnifiedLog:
        clock = MockTime(current_time_ms=NOW)
        config = LogConfig.from_properties({"internal.segment.bytes": "5000",
                                            "index.interval.bytes": "500", **settings})
        opened.append(UnifiedLog.create(tmp_path / f"t-{len(opened)}", config,
                                        scheduler=clock.scheduler, time=clock))
        return opened[-1]

    yield create
    for log in opened:
        log.close_handlers()


def test_reads_take_no_lock(make: Make) -> None:
    """A thread that appends or rolls holds it for as long as its disk takes. Only the first read
    after a roll takes it."""
    log = make()
    for _ in range(3):
        log.append_as_leader(batch(3), 0)
        log.roll()

    def ask() -> list[bytes]:
        return [bytes(log.read(offset, 1000, isolation=END).records) for offset in (0, 4, 8)]

    before: list[bytes] = ask()
    under_lock: list[bytes] = []
    with log.lock:
        reader = threading.Thread(target=lambda: under_lock.extend(ask()), daemon=True)
        reader.start()
        reader.join(60)
        assert under_lock == before


def test_a_read_of_an_open_segment_takes_the_short_way(
        make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As nearly all do."""
    log = make()
    for _ in range(2):
        log.append_as_leader(batch(3), 0)
        log.roll()
        log.append_as_leader(batch(3), 0)
    log.update_high_watermark(log.log_end_offset)
    before = [log.read(offset, 1000, isolation).records for offset in range(12)
              for isolation in (END, HIGH)]
    monkeypatch.setattr(LogReads, "_read_any", None)
    assert before == [log.read(offset, 1000, isolation).records for offset in range(12)
                      for isolation in (END, HIGH)]


def test_a_segment_is_read_with_its_index_after_a_restart(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", index_interval_bytes="0")
    for _ in range(3):
        log.append_as_leader(batch(), 0)
    log.roll()
    log.close()
    log = open_log(tmp_path / "t-0")
    entries = (tmp_path / "t-0" / f"{0:020}.index").stat().st_size // 8
    assert log.readers.segment(log.readers.view(), 0).entries == entries > 0
    log.close()


def test_every_offset_of_many_segments(make: Make) -> None:
    """Against a list of the batches that were appended."""
    log, rng = make(), random.Random(1)
    wanted: list[tuple[int, int]] = []  # first and next offset
    for _ in range(300):
        count = rng.choice([1, 2, 7])
        info = log.append_as_leader(batch(count, rng.choice([10, 100, 600])), 0)
        wanted.append((info.first_offset, info.last_offset + 1))
    assert log.number_of_segments > 10
    for first, next_offset in wanted:
        for offset in {first, next_offset - 1}:
            found = log.read(offset, 1)
            rows = scan(found.records).batches
            assert [(int(rows["base_offset"][0]), int(rows["last_offset"][0]) + 1)] == [
                (first, next_offset)]
            assert len(rows) == 1 and not found.first_entry_incomplete
            assert found.fetch_offset_metadata.message_offset == first
    whole, offset = b"", 0
    while offset < log.log_end_offset:
        found = log.read(offset, 3000)
        rows = scan(found.records).batches
        assert int(rows["base_offset"][0]) == offset
        whole += found.records[:int(rows["size"].sum())]
        offset = int(rows["last_offset"][-1]) + 1
    files = sorted(Path(log.path).glob("*.log"))
    assert whole == b"".join(path.read_bytes() for path in files)


def test_bounds_and_limits(make: Make) -> None:
    log = make()
    for _ in range(3):
        log.append_as_leader(batch(2), 0)
    size = len(batch(2))
    log.update_high_watermark(4)
    assert len(log.read(0, 10**6, END).records) == 3 * size
    assert len(log.read(0, 10**6, HIGH).records) == len(log.read(0, 10**6, COMMITTED).records) \
        == 2 * size
    cut = log.read(2, size + 5, END, False)
    assert (len(cut.records), cut.first_entry_incomplete) == (size + 5, False)
    cut = log.read(2, 5, END, False)
    assert (len(cut.records), cut.first_entry_incomplete) == (5, True)
    assert log.read(3, 0, END, False).records == b""
    at_end = log.read(6, 100, END)
    assert at_end.records == b""
    assert at_end.fetch_offset_metadata == LogOffsetMetadata(6, 0, 3 * size)
    behind = log.read(5, 100, HIGH)
    assert behind.records == b""
    assert behind.fetch_offset_metadata == LogOffsetMetadata(4, 0, 2 * size)
    assert log.read(0, 1, END).aborted_transactions is None
    assert log.read(0, 1, COMMITTED).aborted_transactions == []
    with pytest.raises(OffsetOutOfRangeError, match="we only have log segments upto 6"):
        log.read(7, 1)
    with pytest.raises(OffsetOutOfRangeError, match="starting from offset: 0"):
        log.read(-1, 1)
    with pytest.raises(IllegalArgumentError, match="Invalid max size -1 for log read"):
        log.read(0, -1)


def test_aborted_transactions_across_segments(make: Make) -> None:
    log = make()
    log.append_as_leader(batch(1, producer=7), 0)
    for _ in range(30):
        log.append_as_leader(batch(1, 400), 0)
    log.append_as_leader(batch(1, producer=9), 0)
    for producer in (7, 9):
        log.append_as_leader(end_transaction_marker(producer, 0, ControlType.ABORT, timestamp=NOW),
                             0, origin=AppendOrigin.COORDINATOR, transaction_version=0)
    log.update_high_watermark(log.log_end_offset)
    assert log.number_of_segments > 2

    def aborted(offset: int, size: int = 10**6) -> list[tuple[int, int]]:
        return [(txn.producer_id, txn.first_offset)
                for txn in log.read(offset, size, COMMITTED).aborted_transactions or ()]

    assert aborted(0) == [(7, 0)]  # the read ends with its segment, before producer 9 begins
    assert aborted(0, 100) == [(7, 0)]  # and this one within its segment
    assert aborted(31) == aborted(32) == [(7, 0), (9, 31)]  # 32 is the marker of the first one
    assert aborted(33) == [(9, 31)]
    every = log.collect_aborted_transactions(0, log.log_end_offset)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset) for txn in every] == [
        (7, 0, 32), (9, 31, 33)]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_read_between_old_messages_ends_at_the_high_watermark(make: Make, magic: int) -> None:
    """The next message is where the bytes for consumers end: no bytes, and no error."""
    log = make()
    for offset in (0, 10, 20):
        log.append_as_follower(legacy.encode(
            legacy.Message(offset, magic, b"k", b"v", NOW if magic else -1)), 0)
    size = log.size // 3
    for high, records in ((10, 0), (20, 1), (21, 2)):
        log.update_high_watermark(high)
        found = log.read(5, 1000, HIGH)
        assert len(found.records) == records * size and not found.first_entry_incomplete
        assert found.fetch_offset_metadata == LogOffsetMetadata(10, 0, size)


def test_few_descriptors_for_many_segments(make: Make, tmp_path: Path,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_shared", readers._OpenSegments(5))
    logs = [make(**{"internal.segment.bytes": "200"}) for _ in range(2)]
    for log in logs:
        for _ in range(40):
            log.append_as_leader(batch(1, 100), 0)
        assert log.number_of_segments == 40
    before = len(open_files(tmp_path))
    for offset in random.Random(2).choices(range(40), k=300):
        for log in logs:
            assert len(log.read(offset, 1).records) == len(batch(1, 100))
    held = len(open_files(tmp_path)) - before
    assert 0 < held <= 2 * 5
    assert sum(len(log.readers.current_view.opened) for log in logs) <= 5


def test_readers_beside_rolls_and_retention(make: Make) -> None:
    """A read always returns a batch with the requested offset."""
    log = make(**{"retention.bytes": "20000", "file.delete.delay.ms": "0"})
    log.append_as_leader(batch(2, 300), 0)
    problems: list[BaseException] = []
    found: list[int] = []
    done = threading.Event()

    def read() -> None:
        rng = random.Random()
        while not done.is_set():
            offset = rng.randrange(log.log_start_offset, log.log_end_offset)
            try:
                rows = scan(log.read(offset, 1).records).batches
                assert int(rows["base_offset"][0]) <= offset <= int(rows["last_offset"][0])
                found.append(offset)
            except OffsetOutOfRangeError:
                pass
            except BaseException as error:
                problems.append(error)
                return

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(600):
            log.append_as_leader(batch(2, 300), 0)
            log.update_high_watermark(log.log_end_offset)
            if number % 20 == 0:
                log.delete_old_segments()
        wait_for(lambda: found or problems)
    finally:
        done.set()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive()
    assert not problems, problems
    assert log.log_start_offset > 0


def test_files_that_others_damage(make: Make) -> None:
    log = make(**{"internal.segment.bytes": "100000", "index.interval.bytes": "100000"})
    for _ in range(20):
        log.append_as_leader(batch(1, 500), 0)
    size = len(batch(1, 500))
    path = Path(log.path) / f"{0:020d}.log"
    whole = path.read_bytes()
    path.write_bytes(whole[:10 * size + 8] + b"\0\0\0\5" + whole[10 * size + 12:])
    with pytest.raises(CorruptRecordError, match="length 5"):
        log.read(15, 1)
    assert len(log.read(3, 1).records) == size
    path.write_bytes(whole[:5 * size])  # shorter than the log knows
    with pytest.raises(KafkaStorageError):
        log.read(10, 1)
    with pytest.raises(KafkaStorageError, match="offline"):  # as in Kafka from then on
        log.read(0, 1)


def test_offsets_by_timestamp(make: Make) -> None:
    log = make()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_for_timestamp(MAX_TIMESTAMP) is None
    assert log.offset_for_timestamp(-1) == TimestampOffset(-1, 0, None)
    times = [NOW + 10 * n for n in range(100)]
    for n, time in enumerate(times):
        log.append_as_leader(batch(1, 300, timestamp=time), 3 if n < 50 else 4)
    assert log.number_of_segments > 3
    for time in (NOW - 5, NOW, NOW + 1, NOW + 333, NOW + 990):
        row = next(n for n, known in enumerate(times) if known >= time)
        assert log.offset_for_timestamp(time) == TimestampOffset(times[row], row,
                                                                  3 if row < 50 else 4)
    # Behind the largest timestamp of all no segment is asked.
    assert log.offset_for_timestamp(NOW + 991) is None
    assert log.offset_for_timestamp(MAX_TIMESTAMP) == TimestampOffset(NOW + 990, 99, 4)
    assert log.offset_for_timestamp(-1) == TimestampOffset(-1, 100, 4)
    assert log.offset_for_timestamp(-2) == TimestampOffset(-1, 0, 3)
    assert log.offset_for_timestamp(-4) == TimestampOffset(-1, 0, 3)
    assert log.offset_for_timestamp(-5) == TimestampOffset(-1, -1, -1)
    assert log.offset_for_timestamp(-6) == TimestampOffset(-1, -1, -1)


def test_timestamps_and_epochs_that_batches_do_not_have(tmp_path: Path) -> None:
    """UnifiedLog.fetchOffsetByTimestamp."""
    for data, largest in (
            (legacy.encode(legacy.Message(0, 0, b"k", b"v")), None),
            (batch()[:12] + b"\xff" * 4 + batch()[16:], TimestampOffset(NOW, 0, None)),
            (batch()[:12] + bytes(4) + batch()[16:], TimestampOffset(NOW, 0, 0))):
        path = tmp_path / str(largest) / "t-0"
        path.mkdir(parents=True)
        (path / f"{0:020d}.log").write_bytes(data)
        log = open_log(path)
        assert log.offset_for_timestamp(MAX_TIMESTAMP) == largest
        log.close_handlers()


def test_a_magic_that_no_format_has_ends_a_search_by_time(tmp_path: Path) -> None:
    """RecordBatch.maxTimestamp."""
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(batch(), 0)
    path = Path(log.path) / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:16] + b"\xff" + path.read_bytes()[17:])
    with pytest.raises(IllegalArgumentError, match="Invalid magic value -1"):
        log.offset_for_timestamp(NOW)
    log.close_handlers()


@pytest.mark.parametrize("codec", [0, 1])
def test_a_search_by_time_reads_all_of_a_compressed_batch(tmp_path: Path, codec: int) -> None:
    """Its last record is invalid (DefaultRecordBatch.iterator)."""
    plain = bytearray(v2.encode(v2.Batch(0, 1, [v2.Record(n, NOW + n, None, b"v")
                                                for n in range(2)],
                                         base_timestamp=NOW, max_timestamp=NOW + 1)))
    plain[-1] = 1  # the number of headers: -1
    payload = compress(codec, bytes(plain[61:])) if codec else bytes(plain[61:])
    head = plain[:8] + (49 + len(payload)).to_bytes(4, "big") + plain[12:22] + bytes([codec])
    path = tmp_path / "t-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(head + plain[23:61] + payload)
    (path / f"{0:020d}.index").touch()
    log = open_log(path)
    if codec:
        with pytest.raises(InvalidRecordError, match="headers"):
            log.offset_for_timestamp(NOW)
    else:
        assert log.offset_for_timestamp(NOW) == TimestampOffset(NOW, 0, 0)
    log.close_handlers()


def test_a_closed_log_is_not_read(make: Make) -> None:
    log = make()
    log.append_as_leader(batch(), 0)
    log.read(0, 1)
    log.close()
    with pytest.raises(KafkaStorageError, match="The log of t-0 in .* is closed"):
        log.read(0, 1)


def test_a_fetch_checks_no_crc(make: Make) -> None:
    """Kafka leaves that to the consumer."""
    log = make()
    for _ in range(2):
        log.append_as_leader(batch(), 0)
    log.update_high_watermark(2)
    path = Path(log.path) / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    fetched = log.fetch(0, 10_000)
    assert (bytes(fetched.records), fetched.next_offset) == (bytes(data), 2)


@pytest.mark.parametrize(("target", "codec", "size"), [
    ("producer", 0, 61), ("producer", 1, 61), ("gzip", 1, 61), ("gzip", 0, 0)])
def test_a_batch_without_records_keeps_its_form(make: Make, target: str, codec: int, size: int
                                                ) -> None:
    """LogValidator: no codec decompresses what is empty. One to be compressed leaves nothing."""
    log = make(**{"compression.type": target})
    log.append_as_leader(batch(2), 0)
    before = log.size
    empty = v2.encode(v2.Batch(0, 1, [], codec=codec, base_timestamp=NOW, max_timestamp=NOW))
    log.append_as_leader(empty, 0, origin=AppendOrigin.COORDINATOR)
    assert (log.size - before, log.log_end_offset) == (size, 2)


@pytest.mark.parametrize("magic", [1, 2])
def test_a_read_up_to_the_position_of_its_first_batch(tmp_path: Path, magic: int) -> None:
    """LogSegment.read: nothing fits, and the batch is known to be larger than the limit."""
    path = tmp_path / "t-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(
        legacy.encode(legacy.Message(0, 1, value=b"v", timestamp=NOW)) if magic == 1 else batch())
    log = open_log(path)
    log.maybe_increment_high_watermark(LogOffsetMetadata(1, 0, 0))
    found = log.read(0, 1, "read_uncommitted", False)
    assert (found.records, found.first_entry_incomplete) == (b"", True)


@pytest.mark.parametrize("size", [1, 300])
def test_a_fetch_of_old_messages_returns_at_least_one_whole(tmp_path: Path, size: int) -> None:
    messages = [legacy.encode(legacy.Message(n, 1, value=b"v" * size, timestamp=NOW))
                for n in range(3)]
    path = tmp_path / "t-0"
    path.mkdir()
    (path / f"{0:020d}.log").write_bytes(b"".join(messages))
    log = open_log(path)
    log.update_high_watermark(3)
    nothing = log.read(1, 0, END, False)
    assert not nothing.records and not nothing.first_entry_incomplete, "as in LogSegment.read"
    for limit, whole in ((1, 1), (len(messages[1]), 1), (2 * len(messages[1]), 2)):
        assert bytes(log.fetch(1, limit).records) == b"".join(messages[1:1 + whole])
    log.close()


def test_records_that_a_client_numbered_wrongly_are_all_returned(make: Make) -> None:
    """LogValidator does not look at them. Kafka's consumer leaves out those below its next
    offset."""
    log, offsets = make(), [0, 0, 2, 1]
    records = [v2.Record(offset, NOW, None, b"%d" % n) for n, offset in enumerate(offsets)]
    log.append_as_leader(v2.encode(v2.Batch(0, 3, records, base_timestamp=NOW, max_timestamp=NOW)),
                         0)
    log.update_high_watermark(4)
    assert [(one.offset, one.value) for one in log.records()] == [
        (offset, b"%d" % n) for n, offset in enumerate(offsets)]
