"""A writer that executes seeded steps and reports what each returned: a job of tests/faults."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seglog.config import LogConfig
from seglog.errors import SeglogError
from seglog.log.append_info import AppendOrigin
from seglog.log.scheduler import MockScheduler, MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.log.holes import cut_to_first_hole
from seglog.log.watermarks import StartOffsetReason
from tests.crash.promises import Acknowledgements
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

PARTITION = "t-0"
NOW = 4_000_000_000_000
IDEMPOTENT, TRANSACTIONAL = 1, 2
COMMITTED, ABORTED = "committed", "aborted"


def config_of(seed: int) -> LogConfig:
    """Small segments, sometimes preallocated, sometimes flushed by the log itself."""
    source = random.Random(f"config {seed}")
    return LogConfig.from_properties({
        "internal.segment.bytes": source.choice(["700", "2000", "8000"]),
        "index.interval.bytes": source.choice(["0", "100", "400"]),
        "segment.index.bytes": source.choice(["1500", "4096"]),
        "preallocate": source.choice(["false", "false", "true"]),
        "file.delete.delay.ms": source.choice(["0", "1000"]),
        "flush.messages": source.choice(["9223372036854775807", "9223372036854775807", "7"])})


def open_log(root: Path, seed: int, *, recovery_point: int, log_start_offset: int,
             clean: bool = False) -> tuple[UnifiedLog, MockTime]:
    """The log of a writer, its tasks run by its clock alone."""
    time, config = MockTime(0, NOW), config_of(seed)
    if not clean:
        cut_to_first_hole(str(root / PARTITION), recovery_point, preallocated=config.preallocate)
    log = UnifiedLog.create(
        root / PARTITION, config, scheduler=MockScheduler(time), time=time,
        recovery_point=recovery_point, log_start_offset=log_start_offset, clean_shutdown=clean)
    return log, time


class Writer:
    """Appends to a log, flushes, rolls and truncates it, as `source` has it."""

    def __init__(self, log: UnifiedLog, time: MockTime, root: Path, source: random.Random) -> None:
        self.log, self.time, self.random = log, time, source
        self.say = Acknowledgements(root).say
        self.epoch = max((one.epoch for one in log.leader_epochs), default=0)
        self.say("opened", end=log.log_end_offset, start=log.log_start_offset)

    def work(self, count: int) -> None:
        names = ["append", "produce", "transact", "flush", "roll", "tick", "lead", "truncate",
                 "start", "retain"]
        weights = [8, 6, 5, 3, 1.5, 2, .5, .4, .6, .6]
        for name in self.random.choices(names, weights, k=count):
            getattr(self, name)()

    # ---- appends

    def _records(self, tag: str) -> list[Record]:
        end, size = self.log.log_end_offset, self.random.choice([0, 10, 100])
        return [Record(number, NOW + end + number, b"k",
                       f"{end + number} {tag} {self.random.getrandbits(32):08x}".encode()
                       + b"." * size)
                for number in range(self.random.randint(1, 4))]

    def _append(self, batch: Batch, texts: list[str], **how: Any) -> None:
        first = self.log.log_end_offset
        self.say("appending", first=first, texts=texts)
        info = self.log.append_as_leader(v2.encode(batch), self.epoch, **how)
        assert (info.first_offset, info.last_offset) == (first, first + len(texts) - 1)
        self.say("appended", first=first, texts=texts)

    def _data(self, tag: str, producer: int = -1) -> None:
        records = self._records(tag)
        state = self._state(producer)
        batch = Batch(0, len(records) - 1, records, codec=self.random.choice([0, 0, 2, 4]),
                      base_timestamp=records[0].timestamp, max_timestamp=records[-1].timestamp,
                      producer_id=producer, producer_epoch=-1 if producer < 0 else state[0],
                      base_sequence=-1 if producer < 0 else state[1] + 1,
                      is_transactional=producer == TRANSACTIONAL)
        self._append(batch, [(record.value or b"").decode() for record in records])

    def _state(self, producer: int) -> tuple[int, int]:
        """(epoch, last sequence) as the log has it."""
        for entry in self.log.producers.entries:
            if entry.producer_id == producer:
                return max(0, entry.producer_epoch), entry.last_sequence
        return 0, -1

    def append(self) -> None:
        self._data("plain")

    def produce(self) -> None:
        self._data("idempotent", IDEMPOTENT)

    def transact(self) -> None:
        """A batch of a transaction, or its end."""
        is_open = any(entry.current_txn_first_offset is not None
                      for entry in self.log.producers.entries)
        if not is_open or self.random.random() < .5:
            self._data("transactional", TRANSACTIONAL)
            return
        kind = self.random.choice([v2.ABORT, v2.COMMIT])
        marker = v2.marker(0, TRANSACTIONAL, self._state(TRANSACTIONAL)[0], kind, NOW)
        self._append(marker, [COMMITTED if kind else ABORTED], origin=AppendOrigin.COORDINATOR,
                     transaction_version=0)

    def resend(self) -> None:
        """The last batch of the idempotent producer comes again: it is known and not written."""
        entry = next((entry for entry in self.log.producers.entries
                      if entry.producer_id == IDEMPOTENT and entry.last_sequence >= 0), None)
        if entry is None or entry.last_data_offset < self.log.log_start_offset:
            return
        found = self.log.read(entry.last_data_offset, 1, "log_end", True)
        raw = bytes(found.records)
        size = 12 + struct.unpack_from(">i", raw, 8)[0]
        end = self.log.log_end_offset
        info = self.log.append_as_leader(bytes(8) + raw[8:size], self.epoch)
        assert info.last_offset == entry.last_data_offset, "a batch that came again was not known"
        assert self.log.log_end_offset == end, "a batch is there twice"

    # ---- the rest

    def flush(self) -> None:
        to, force = self.log.log_end_offset, self.random.random() < .3
        self.log.flush(force)
        assert self.log.recovery_point == to
        self.say("flushed", to=to)

    def roll(self) -> None:
        self.log.roll()

    def tick(self) -> None:
        """Advances the clock, and runs tasks."""
        self.time.sleep(self.random.choice([1, 2000]))

    def lead(self) -> None:
        self.epoch += 1

    def truncate(self) -> None:
        """To the beginning of a batch, as replicas are: else there would be a hole."""
        low = max(self.log.log_start_offset, self.log.log_end_offset - 12)
        to = self.random.randint(low, self.log.log_end_offset)
        if to < self.log.log_end_offset:
            raw = bytes(self.log.read(to, 1, "log_end", True).records)
            to = struct.unpack_from(">q", raw)[0]
        if to < self.log.log_start_offset:
            return
        self.say("truncating", to=to)
        self.cut(to)
        self.say("truncated", end=self.log.log_end_offset)

    def cut(self, offset: int) -> None:
        self.log.truncate_to(offset)

    def start(self) -> None:
        """Records are deleted from the log's start."""
        high = self.log.update_high_watermark(self.log.log_end_offset)
        at = self.random.randint(self.log.log_start_offset, high)
        if self.random.random() < .5:
            at = min(at, self.log.log_start_offset + 10)
        self.say("starting", at=at)
        self.log.maybe_increment_log_start_offset(at, StartOffsetReason.CLIENT_RECORD_DELETION)
        self.say("started", at=self.log.log_start_offset)

    def retain(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.delete_old_segments()


def write(root: str, seed: int, count: int, recovery_point: int = 0, log_start_offset: int = 0,
          generation: int = 1, close: bool = False) -> Callable[[], dict[str, Any]]:
    """Opens the log as after a crash, resends, does `count` operations, and perhaps closes."""
    source = random.Random(f"writer {seed} {generation}")

    def work() -> dict[str, Any]:
        log, time = open_log(Path(root), seed, recovery_point=recovery_point,
                             log_start_offset=log_start_offset)
        writer = Writer(log, time, Path(root), source)
        writer.resend()
        writer.work(count)
        if close:
            log.close()
        return {"end": log.log_end_offset}
    return work


def attempt(step: Callable[[], object]) -> str:
    """Kafka's name of a step's exception, or "done". Any other error ends the job."""
    try:
        step()
    except SeglogError as error:
        return str(error.kafka_name)
    return "done"


def append_in_trouble(root: str, seed: int, rolls: bool = False) -> Callable[[], dict[str, Any]]:
    """A log with some batches; then, where files fail, one more batch and what follows it."""
    log, time = open_log(Path(root), seed, recovery_point=0, log_start_offset=0)
    writer = Writer(log, time, Path(root), random.Random(f"trouble {seed}"))
    for _ in range(12):
        writer.append()
    log.flush()
    writer.append()

    def work() -> dict[str, Any]:
        before = log.log_end_offset
        steps = {"append": log.roll if rolls else writer.append, "again": writer.append,
                 "flush": log.flush, "roll": log.roll, "truncate": lambda: log.truncate_to(1),
                 "read": lambda: log.read(0, 1 << 20, "log_end", True)}
        told = {name: attempt(step) for name, step in steps.items()}
        return {"before": before, "end": log.log_end_offset, **told}
    return work
