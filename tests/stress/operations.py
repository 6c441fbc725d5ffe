"""Everything that threads may do to one log, each with what it may answer."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count, islice

from seglog._native.columns import RecordColumns
from seglog.arrow import COLUMNS
from seglog.config import LogConfig
from seglog.errors import (
    CorruptDataError, IllegalArgumentError, InconsistentTopicIdError, KafkaStorageError,
    OffsetOutOfRangeError, OutOfOrderSequenceError, RemoteStorageError,
    UnknownTopicOrPartitionError,
)
from seglog.log.append_info import AppendOrigin
from seglog.log.batch_builder import end_transaction_marker
from seglog.log.log_dir_failures import CLOSED
from seglog.storage.isolation import ISOLATIONS
from seglog.log.following import RangeTail, SpanTail
from seglog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.partition_log import PartitionLog
from seglog.storage.markers import ControlType
from seglog.storage.paths import FileKind, FileState, file_name
from seglog.storage.stream import DecodeOptions, Plan, RecordBatchStream
from tests.stress.truth import ABORTED, COMMITTED, PLAIN, Truth, Value, Writer, batch_of

_READ_COLUMNS = ("offset", "value")
#: Values of this size make a segment of a few KiB soon.
_PRODUCERS = count()
_SIZES = (30, 30, 100, 400)


class Subject:
    """One log under test, by what gives it (a manager may give another one each time)."""

    def __init__(self, log: Callable[[], UnifiedLog], config: LogConfig, *, cuts: bool,
                 codec: str | int = 0, comes_again: bool = False) -> None:
        self.log, self.config, self.cuts, self.codec = log, config, cuts, codec
        #: Whether it is deleted, and created again under its name.
        self.comes_again = comes_again
        #: Its remote storage, for readers beside the writer.
        self.remote: str | None = None
        self.truth = Truth()
        self._cutting = threading.Lock()

    @property
    def loses(self) -> bool:
        """Whether acknowledged records may go."""
        return self.cuts or self.comes_again

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Appends of a log that loses records wait for that; the others for nothing."""
        if not self.loses:
            yield
        else:
            with self._cutting:
                yield


class Actor:
    """One thread: its writer and its producer."""

    def __init__(self, seed: str) -> None:
        self.random, self.writer = random.Random(seed), Writer()
        #: Its id and next sequence in each subject, by id().
        self._producers: dict[int, tuple[int, int]] = {}

    # ---- writing

    def append(self, it: Subject) -> None:
        values = self.writer.values(self.random.choice([1, 1, 2, 5]))
        data = batch_of(values, self.random.choice(_SIZES), it.codec)
        with it.writing(), not_moved():
            log = it.log()
            info = log.append_as_leader(data, 0)
            assert info.last_offset - info.first_offset + 1 == len(values)
            it.truth.appended(info.first_offset, values)
            log.maybe_increment_high_watermark(log.log_end_offset_metadata)

    def append_each(self, it: Subject) -> None:
        batches = [self.writer.values(self.random.choice([1, 3])) for _ in range(4)]
        size = self.random.choice(_SIZES)
        with it.writing(), not_moved():
            log = it.log()
            with log.lock:  # several appends without others in between
                info = log.append_each_as_leader(
                    b"".join(batch_of(one, size, it.codec) for one in batches), 0)
            it.truth.appended(info.first_offset, [value for one in batches for value in one])
            log.maybe_increment_high_watermark(log.log_end_offset_metadata)

    def transaction(self, it: Subject) -> None:
        if it.cuts:
            return
        producer, sequence = self._producers.get(id(it)) or (next(_PRODUCERS), 0)
        is_abort = self.random.random() < .5
        self._producers.pop(id(it), None)
        # A log that was moved knows of a producer only what the records say that are left of it.
        with it.writing(), not_moved(), suppress(OutOfOrderSequenceError):
            log = it.log()
            with log.lock:  # one log from the first batch to the marker
                for _ in range(self.random.choice([1, 2, 6])):
                    values = self.writer.values(2, ABORTED if is_abort else COMMITTED)
                    guard = log.maybe_start_transaction_verification(producer, sequence, 0, False)
                    info = log.append_as_leader(batch_of(
                        values, self.random.choice(_SIZES), it.codec, producer_id=producer,
                        producer_epoch=0, base_sequence=sequence, is_transactional=True), 0,
                        verification_guard=guard)
                    sequence += len(values)
                    it.truth.appended(info.first_offset, values)
                how = ControlType.ABORT if is_abort else ControlType.COMMIT
                log.append_as_leader(
                    end_transaction_marker(producer, 0, how, timestamp=log.now_ms()), 0,
                    origin=AppendOrigin.COORDINATOR, transaction_version=0)
                self._producers[id(it)] = producer, sequence
                log.maybe_increment_high_watermark(log.log_end_offset_metadata)

    # ---- reading

    def fetch(self, it: Subject) -> None:
        log, isolation = it.log(), self.random.choice(ISOLATIONS)
        offset = self.random.randint(log.log_start_offset, max(log.log_end_offset,
                                                               log.log_start_offset))
        with may_be_gone(it):
            for _ in range(5):
                found = log.read(offset, self.random.choice([1, 500, 5000, 100_000]), isolation)
                if not found.records or it.codec:
                    break
                offset = it.truth.saw_batches(found.records, offset)

    def stream(self, it: Subject) -> None:
        """What `EmbeddedLog.read` does: all that there is, with the committed or without."""
        # Before the end is looked up: what comes after a truncation need not be read.
        cuts = it.truth.cuts
        log, committed = it.log(), self.random.random() < .5
        isolation = "read_committed" if committed else "log_end"
        with may_be_gone(it):
            start = first_local(log)
            stop = log.last_stable_offset if committed else log.log_end_offset
            tail = RangeTail(log, start, isolation=isolation, stop_offset=max(start, stop),
                             timeout=0.0)
            self._saw(it, decoded(tail), start, stop, committed,
                      lambda: it.truth.cuts == cuts and not cuts & 1 and not log.is_closed)

    def _saw(self, it: Subject, rows: Iterator[tuple[int, Value]], start: int, stop: int,
             committed: bool, has_all: Callable[[], bool]) -> None:
        last = start - 1
        for offset, value in rows:
            assert last < offset < stop, f"{offset} after {last}, before {stop}"
            assert not (committed and value.kind == ABORTED), f"{value} was aborted"
            last = offset
            it.truth.saw(offset, value)
        missing = [offset for offset, value in it.truth.snapshot().items()
                   if last < offset < stop and value.kind == PLAIN]
        # A tail also ends where its log does: moved elsewhere, and deleted here.
        if has_all():
            assert not missing, f"{missing[:3]} were not read, the last was {last} before {stop}"

    def follow(self, it: Subject) -> None:
        log = it.log()
        with may_be_gone(it), SpanTail(log, first_local(log), timeout=.05,
                                       max_bytes=5000) as tail:
            for _ in range(200):
                span = next(tail, None)
                if span is None:
                    break
                if not it.codec:
                    assert it.truth.saw_batches(span.records, span.start_offset) \
                        == span.next_offset

    def look_up_times(self, it: Subject) -> None:
        log = it.log()
        with may_be_gone(it):
            latest = log.offset_for_timestamp(LATEST_TIMESTAMP)
            assert latest is not None and latest.offset >= 0
            log.offset_for_timestamp(EARLIEST_TIMESTAMP)
            for wanted in (MAX_TIMESTAMP, log.now_ms() - self.random.randrange(3000), 0):
                found = log.offset_for_timestamp(wanted)
                if found is not None:
                    assert found.timestamp >= wanted
                    at = it.truth.now.get(found.offset)
                    assert at is None or it.loses or at.timestamp == found.timestamp

    def look_from_outside(self, it: Subject) -> None:
        """A reader that knows nothing of the writer, as beside a broker."""
        isolation = self.random.choice(("read_committed", "read_uncommitted"))
        with outside(it):
            with PartitionLog.open(it.log().path, remote=it.remote) as reader:
                repr(reader.segments.size)
                with suppress(OffsetOutOfRangeError):
                    self._outside(it, reader.to_arrow(
                        columns=list(_READ_COLUMNS), isolation=isolation,
                        threads=self.random.choice([0, 2])), isolation)
                for wanted in (MAX_TIMESTAMP, 0):
                    reader.offset_for_timestamp(wanted)
                repr((reader.last_stable_offset, reader.open_transactions, reader.leader_epochs))
                reader.refresh()

    def _outside(self, it: Subject, batches: Iterable[RecordColumns], isolation: str) -> None:
        last = -1
        for batch in batches:
            lists = batch.to_pylists()
            for offset, data in zip(lists["offset"], lists["value"], strict=True):
                assert offset > last
                last, value = offset, Value.decode(data)
                assert isolation != "read_committed" or value.kind != ABORTED, value
                it.truth.saw(offset, value)

    def follow_from_outside(self, it: Subject) -> None:
        """As `look_from_outside`, for a while."""
        isolation = self.random.choice(("read_committed", "read_uncommitted"))
        with outside(it), suppress(OffsetOutOfRangeError):
            with PartitionLog.open(it.log().path) as reader:
                start = self.random.choice([None, reader.log_start_offset])
                with reader.follow(start, columns=list(_READ_COLUMNS), isolation=isolation,
                                   timeout=.1) as follower:
                    self._outside(it, islice(follower, 20), isolation)

    def ask(self, it: Subject) -> None:
        """What monitors ask."""
        log = it.log()
        with may_be_gone(it):
            start, end, high, stable = log.fetch_offset_snapshot()
            assert it.loses or (start >= 0 and stable.message_offset <= high.message_offset
                               <= end.message_offset)
            log.active_producers()
            log.last_records_of_active_producers()
            log.has_late_transaction(log.now_ms())
            assert log.size >= 0 and log.number_of_segments >= 0
            log.end_offset_for_epoch(0)
            log.collect_aborted_transactions(log.log_start_offset, log.log_end_offset)
            if log.stats is not None:
                log.stats.registry.snapshot()

    # ---- deleting and changing

    def delete_before(self, it: Subject) -> None:
        log = it.log()
        with may_be_gone(it):
            to = max(log.high_watermark - self.random.choice([0, 20, 100]), 0)
            it.truth.may_start_at = max(it.truth.may_start_at, to)
            log.maybe_increment_log_start_offset(to, StartOffsetReason.CLIENT_RECORD_DELETION)
            log.delete_old_segments()

    def retain(self, it: Subject) -> None:
        it.truth.may_retain |= it.config.retention_bytes >= 0
        with may_be_gone(it):
            it.log().delete_old_segments()

    def roll(self, it: Subject) -> None:
        with not_moved():
            it.log().roll()

    def flush(self, it: Subject) -> None:
        with not_moved():
            it.log().flush(self.random.random() < .5)

    def snapshot(self, it: Subject) -> None:
        with not_moved():
            it.log().take_producer_snapshot()
            it.log().remove_expired_producers(it.log().now_ms())

    def truncate(self, it: Subject) -> None:
        if not it.cuts:
            return
        with it.writing(), not_moved():
            log, truth = it.log(), it.truth
            if not truth.boundaries:
                return
            to = max(self.random.choice(truth.boundaries[-20:]), log.log_start_offset)
            whole = self.random.random() < .2
            truth.cuts += 1
            try:
                if whole:
                    to = log.log_end_offset
                    log.truncate_fully_and_start_at(to)
                    truth.may_start_at = max(truth.may_start_at, to)
                    truth.truncated(0)
                else:
                    log.truncate_to(to)
                    truth.truncated(to)
            finally:
                truth.cuts += 1

    def replace(self, it: Subject) -> None:
        """One or two sealed segments by a copy of them, as compaction does."""
        with may_be_gone(it):
            log = it.log()
            with log.lock:
                log.check_open()
                bases = log.segments.base_offsets.tolist()
                if len(bases) < 4:
                    return
                at = self.random.randrange(len(bases) - 2)
                old = bases[at:at + self.random.choice([1, 2])]
                names = [os.path.join(log.path, file_name(base, FileKind.LOG)) for base in old]
                with open(names[0] + FileState.CLEANED.value, "wb") as into:
                    for name in names:
                        with open(name, "rb") as source:
                            shutil.copyfileobj(source, into)
                made = SegmentFiles(log.disk, old[0], log.config, FileState.CLEANED)
                aborted = [_aborted(entry) for base in old
                           for _, entry in log.segments.get(base).txn_index.read()]
                made.txn_index.append(aborted)
                log.replace_segments([made], old)

    def configure(self, it: Subject) -> None:
        config = it.config.override({
            "internal.segment.bytes": str(self.random.choice([7000, 20_000])),
            "index.interval.bytes": str(self.random.choice([1, 200, 4096])),
            "flush.messages": str(self.random.choice([1, 50, 2**62])),
            "file.delete.delay.ms": str(self.random.choice([0, 0, 20, 60_000]))})
        it.log().update_config(config)


def _aborted(entry: tuple[int, int, int, int, int]) -> object:
    from seglog.model import AbortedTxn

    return AbortedTxn(*entry[1:])


def decoded(tail: RangeTail) -> Iterator[tuple[int, Value]]:
    """(offset, value) of the records of a tail."""
    assert set(_READ_COLUMNS) <= set(COLUMNS)
    plan = Plan(tail, tail.opened, tail.check_unchanged)
    with RecordBatchStream(lambda: plan, DecodeOptions(_READ_COLUMNS)) as stream:
        for batch in stream:
            lists = batch.to_pylists()
            yield from zip(lists["offset"], map(Value.decode, lists["value"]), strict=True)


def first_local(log: UnifiedLog) -> int:
    """The first offset that the log can read itself."""
    return max(log.log_start_offset, log.local_log_start_offset) if log.remote_log_enabled \
        else log.log_start_offset


@contextmanager
def outside(it: Subject) -> Iterator[None]:
    """What a reader beside the writer may meet: a file that went, or changed, while it was looked
    at."""
    try:
        yield
    except KafkaStorageError:
        pass
    except CorruptDataError:
        if not it.loses:
            raise
    except InconsistentTopicIdError:
        if not it.comes_again:
            raise
    except IllegalArgumentError:  # several topics of the name in remote storage
        if not it.comes_again or it.remote is None:
            raise


@contextmanager
def not_moved() -> Iterator[None]:
    """A log that was moved to another directory, or deleted, refuses what would change it."""
    try:
        yield
    except KafkaStorageError as error:
        if error.code != CLOSED:
            raise


@contextmanager
def may_be_gone(it: Subject) -> Iterator[None]:
    """And its readers may find that what they were to read was deleted or truncated."""
    try:
        with not_moved():
            yield
    except OffsetOutOfRangeError:
        pass
    except (RemoteStorageError, UnknownTopicOrPartitionError):
        if not it.comes_again:
            raise
