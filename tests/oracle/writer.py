"""Writes one partition directory as a broker would: segments, indexes, snapshots, epochs."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from pathlib import Path

from tests.oracle import batch as v2
from tests.oracle import files, legacy
from tests.oracle.batch import Batch, Row
from tests.oracle.files import AbortedTransaction, ProducerEntry


@dataclass(frozen=True)
class LogConfig:
    """The settings that decide where segments end and what their indexes hold."""

    segment_bytes: int = 16384
    index_interval_bytes: int = 512
    segment_index_bytes: int = 16384

    def as_kafka(self) -> dict[str, str]:
        return {"internal.segment.bytes": str(self.segment_bytes),
                "index.interval.bytes": str(self.index_interval_bytes),
                "segment.index.bytes": str(self.segment_index_bytes)}


@dataclass
class Placed:
    """One entry of the log and where it stands."""

    segment: int
    position: int
    size: int
    magic: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    rows: list[Row]


@dataclass
class Segment:
    """A segment in the making; index entries by Kafka's rule (LogSegment.append)."""

    base_offset: int
    data: bytearray = field(default_factory=bytearray)
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    since_last_entry: int = 0
    max_timestamp: tuple[int, int] = (-1, -1)

    def append(self, raw: bytes, last_offset: int, timestamp: int, interval: int) -> int:
        position = len(self.data)
        if timestamp > self.max_timestamp[0]:
            self.max_timestamp = (timestamp, last_offset)
        if self.since_last_entry > interval:
            self.offsets.append((last_offset, position))
            self.append_time()
            self.since_last_entry = 0
        self.data += raw
        self.since_last_entry += len(raw)
        return position

    def append_time(self) -> None:
        last = self.times[-1][0] if self.times else -1
        if self.max_timestamp[0] > last:
            self.times.append(self.max_timestamp)


@dataclass
class Producers:
    """Who wrote what last, as far as snapshots and transactions need it (ProducerStateEntry)."""

    entries: dict[int, ProducerEntry] = field(default_factory=dict)
    #: producer id to first offset of its open transaction
    open: dict[int, int] = field(default_factory=dict)

    def _entry(self, producer_id: int, epoch: int) -> ProducerEntry:
        known = self.entries.get(producer_id)
        if known is None or known.producer_epoch != epoch:
            coordinator = known.coordinator_epoch if known else -1
            return ProducerEntry(producer_id, epoch, -1, -1, 0, -1, coordinator, -1)
        return known

    def apply(self, batch: Batch) -> AbortedTransaction | None:
        """Takes a batch in; the transaction that it aborts, if it does."""
        if batch.producer_id < 0:
            return None
        kind = v2.marker_kind(batch)
        if batch.is_control and kind is None:
            return None
        known = self._entry(batch.producer_id, batch.producer_epoch)
        aborted = None
        if kind is None:
            if batch.is_transactional:
                self.open.setdefault(batch.producer_id, batch.base_offset)
            sequence = -1 if batch.base_sequence < 0 else \
                v2.add_sequence(batch.base_sequence, batch.last_offset_delta)
            self.entries[batch.producer_id] = ProducerEntry(
                batch.producer_id, batch.producer_epoch, sequence, batch.last_offset,
                batch.last_offset_delta, batch.max_timestamp, known.coordinator_epoch, -1)
        else:
            coordinator = int.from_bytes((batch.records[0].value or b"")[2:6], "big", signed=True)
            first = self.open.pop(batch.producer_id, None)
            if first is not None and kind == v2.ABORT:
                stable = min(self.open.values(), default=batch.last_offset + 1)
                aborted = AbortedTransaction(batch.producer_id, first, batch.last_offset, stable)
            self.entries[batch.producer_id] = ProducerEntry(
                batch.producer_id, batch.producer_epoch, known.last_sequence, known.last_offset,
                known.offset_delta, batch.records[0].timestamp, coordinator, -1)
        return aborted

    def snapshot(self) -> bytes:
        return files.encode_snapshot([
            ProducerEntry(e.producer_id, e.producer_epoch, e.last_sequence, e.last_offset,
                          e.offset_delta, e.last_timestamp, e.coordinator_epoch,
                          self.open.get(e.producer_id, -1))
            for e in self.entries.values()])


@dataclass
class BuiltLog:
    """A written partition and all that is true of it."""

    path: Path
    config: LogConfig
    entries: list[Placed]
    segments: list[int]
    aborted: list[AbortedTransaction]
    open_transactions: dict[int, int]
    leader_epochs: list[tuple[int, int]]
    log_start_offset: int
    log_end_offset: int
    clean: bool

    @property
    def last_stable_offset(self) -> int:
        return min(self.open_transactions.values(), default=self.log_end_offset)

    def rows(self, start: int | None = None, end: int | None = None, *,
             isolation: str = "read_uncommitted", control: bool = False) -> list[Row]:
        """The rows of [start, end), as a reader with that isolation gets them."""
        lowest = self.log_start_offset if start is None else start
        highest = self.log_end_offset if end is None else end
        if isolation == "read_committed":
            highest = min(highest, self.last_stable_offset)
        found = [row for entry in self.entries for row in entry.rows
                 if lowest <= row["offset"] < highest and (control or not row["is_control"])]
        if isolation == "read_uncommitted":
            return found
        return [row for row in found if not self._is_aborted(row)]

    def _is_aborted(self, row: Row) -> bool:
        return row["is_transactional"] and not row["is_control"] and any(
            t.producer_id == row["producer_id"] and t.first_offset <= row["offset"] <= t.last_offset
            for t in self.aborted)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after `timestamp`: Kafka's answer."""
        for entry in self.entries:
            if entry.max_timestamp < timestamp:
                continue
            for row in entry.rows:
                if row["timestamp"] >= timestamp and row["offset"] >= self.log_start_offset:
                    return row["timestamp"], row["offset"]
        return None

    def recovery_point(self) -> int:
        return self.log_end_offset if self.clean else self.segments[-1]


class LogWriter:
    """Appends entries to a partition directory; `close` writes it all and says what is true."""

    def __init__(self, path: Path, config: LogConfig, base_offset: int = 0) -> None:
        self.path, self.config = path, config
        self.segments = [Segment(base_offset)]
        self.entries: list[Placed] = []
        self.producers = Producers()
        self.snapshots: dict[int, bytes] = {}
        self.aborted: list[AbortedTransaction] = []
        self.leader_epochs: list[tuple[int, int]] = []
        self.next_offset = base_offset

    def append(self, entry: Batch | legacy.Message) -> None:
        """One batch, or one message or wrapper of the old formats, at its own offsets."""
        if isinstance(entry, Batch):
            raw, base, last = v2.encode(entry), entry.base_offset, entry.last_offset
            timestamp, magic = entry.max_timestamp, 2
        else:
            raw, last, timestamp = legacy.encode(entry), entry.offset, entry.timestamp
            base, magic = (entry.inner or [entry])[0].offset, entry.magic
        active = self.segments[-1]
        if active.data and (len(active.data) > self.config.segment_bytes - len(raw)
                            or last - active.base_offset > 2**31 - 1
                            or len(active.offsets) >= self.config.segment_index_bytes // 8
                            or len(active.times) >= self.config.segment_index_bytes // 12 - 1):
            active = self.roll(base)
        position = active.append(raw, last, timestamp, self.config.index_interval_bytes)
        if isinstance(entry, Batch):
            rows = v2.rows(entry, position)
            self._note(entry, active)
        else:
            rows = legacy.rows(entry, position)
            self.leader_epochs.clear()
        self.entries.append(Placed(active.base_offset, position, len(raw), magic, base, last,
                                   timestamp, rows))
        self.next_offset = last + 1

    def _note(self, batch: Batch, active: Segment) -> None:
        aborted = self.producers.apply(batch)
        if aborted:
            active.aborted.append(aborted)
            self.aborted.append(aborted)
        epoch = batch.partition_leader_epoch
        if epoch >= 0 and (not self.leader_epochs or epoch > self.leader_epochs[-1][0]):
            self.leader_epochs.append((epoch, batch.base_offset))

    def roll(self, base_offset: int) -> Segment:
        """A new active segment; the old one gets its last time entry, the state a snapshot."""
        self.segments[-1].append_time()
        self.snapshots[base_offset] = self.producers.snapshot()
        self.segments.append(Segment(base_offset))
        self.next_offset = max(self.next_offset, base_offset)
        return self.segments[-1]

    def close(self, *, clean: bool = True, preallocated: bool = False,
              log_start_offset: int | None = None) -> BuiltLog:
        """Writes every file: trimmed after a clean shutdown, else as a crash leaves them."""
        self.path.mkdir(parents=True)
        # Offsets that compaction took from the end of a log are not taken: its last batch stays.
        last = self.entries[-1].last_offset + 1 if self.entries else 0
        self.next_offset = max(last, self.segments[-1].base_offset)
        if clean:
            self.segments[-1].append_time()
            self.snapshots[self.next_offset] = self.producers.snapshot()
        for segment in self.segments:
            crashed = not clean and segment is self.segments[-1]
            self._write(segment, self.config.segment_index_bytes if crashed else 0,
                        self.config.segment_bytes if crashed and preallocated else 0)
        for offset, raw in self.snapshots.items():
            files.segment_path(self.path, offset, ".snapshot").write_bytes(raw)
        lines = [f"{epoch} {start}" for epoch, start in self.leader_epochs]
        (self.path / "leader-epoch-checkpoint").write_text(files.encode_checkpoint(lines))
        (self.path / "partition.metadata").write_text(
            "version: 0\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w\n")
        first = self.segments[0].base_offset
        return BuiltLog(self.path, self.config, self.entries,
                        [segment.base_offset for segment in self.segments], self.aborted,
                        dict(self.producers.open), self.leader_epochs,
                        first if log_start_offset is None else log_start_offset,
                        self.next_offset, clean)

    def _write(self, segment: Segment, index_size: int, log_size: int) -> None:
        base = segment.base_offset

        def write(suffix: str, data: bytes, size: int) -> None:
            with open(files.segment_path(self.path, base, suffix), "wb") as out:
                out.write(data)
                if size > len(data):
                    out.truncate(size)

        write(".log", bytes(segment.data), log_size)
        write(".index", files.encode_offset_index(segment.offsets, base), index_size // 8 * 8)
        write(".timeindex", files.encode_time_index(segment.times, base), index_size // 12 * 12)
        if segment.aborted:
            write(".txnindex", files.encode_txn_index(segment.aborted), 0)


def placed_at(log: BuiltLog, offset: int) -> Placed | None:
    """The entry that holds `offset`, or the first one above it."""
    where = bisect.bisect_left([entry.last_offset for entry in log.entries], offset)
    return log.entries[where] if where < len(log.entries) else None


def write_data_dir(root: Path, logs: list[BuiltLog], *, clean: bool = True) -> None:
    """The files of a data directory around partitions that stand in it."""

    def checkpoint(name: str, offsets: dict[str, int]) -> None:
        lines = [f"{partition.rpartition('-')[0]} {partition.rpartition('-')[2]} {offset}"
                 for partition, offset in offsets.items()]
        (root / name).write_text(files.encode_checkpoint(lines))

    checkpoint("recovery-point-offset-checkpoint", {
        log.path.name: log.recovery_point() for log in logs})
    checkpoint("log-start-offset-checkpoint", {
        log.path.name: log.log_start_offset for log in logs
        if log.log_start_offset > log.segments[0]})
    checkpoint("replication-offset-checkpoint", {
        log.path.name: log.log_end_offset for log in logs})
    checkpoint("cleaner-offset-checkpoint", {})
    (root / "meta.properties").write_text(
        "#\n#Sat Oct 25 10:00:00 UTC 2025\ncluster.id=l0CdkZGeTjaX9ux5Y2kFIg\nversion=1\n"
        "directory.id=q0n3XIYaR9K1yH5yLkX1Pg\nnode.id=1\n")
    if clean:
        (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":10}')
