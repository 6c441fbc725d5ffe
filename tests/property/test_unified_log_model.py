"""The writable log against a plain list of batches, whatever is done to both in whatever order."""

from __future__ import annotations

import bisect
import logging
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (RuleBasedStateMachine, initialize, invariant, precondition, rule,
                                 run_state_machine_as_test)

from seglog.config import LogConfig
from seglog.errors import OffsetOutOfRangeError
from seglog.storage.isolation import ISOLATIONS, Isolation
from seglog.log.scheduler import MockScheduler, MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record
from tests.support.effort import examples

NOW = 1_700_000_000_000
STEPS = settings(max_examples=examples(60), stateful_step_count=50)


@dataclass
class Item:
    """A batch of the list: the bytes that the log should have for it, and its records."""

    batch: Batch
    data: bytes

    @property
    def base(self) -> int:
        return self.batch.base_offset

    @property
    def last(self) -> int:
        return self.batch.last_offset


class LogMachine(RuleBasedStateMachine):
    """Does everything twice: to a log and to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp(prefix="seglog-model-"))
        self.items: list[Item] = []
        self.start = self.end = self.high = self.epoch = 0
        self.clock = MockTime(0, NOW)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.home, ignore_errors=True)

    @initialize(segment=st.sampled_from(["300", "1000", "100000"]),
                interval=st.sampled_from(["0", "200", "4096"]),
                preallocate=st.sampled_from(["true", "false"]),
                retention=st.sampled_from(["-1", "0", "1500"]))
    def begin(self, segment: str, interval: str, preallocate: str, retention: str) -> None:
        self.config = LogConfig.from_properties({
            "internal.segment.bytes": segment, "index.interval.bytes": interval,
            "segment.index.bytes": "1200", "preallocate": preallocate,
            "retention.bytes": retention, "message.timestamp.after.max.ms": str(2**62),
            "file.delete.delay.ms": "0"})
        self.scheduler = MockScheduler(self.clock)
        self._open(True, 0, 0)

    def _open(self, clean: bool, recovery_point: int, start: int) -> None:
        self.log = UnifiedLog.create(
            self.home / "t-0", self.config, scheduler=self.scheduler, time=self.clock,
            clean_shutdown=clean, recovery_point=recovery_point, log_start_offset=start)

    def _resolve(self) -> None:
        self.clock.sleep(1)

    # ---- changes

    @rule(stamps=st.lists(st.integers(-1, 50), min_size=1, max_size=4),
          value=st.binary(max_size=60), codec=st.sampled_from([0, 0, 0, 4]))
    def append(self, stamps: list[int], value: bytes, codec: int) -> None:
        records = [Record(number, -1 if stamp < 0 else NOW + stamp * 1000, None, value)
                   for number, stamp in enumerate(stamps)]
        batch = Batch(0, len(records) - 1, records, codec=codec,
                      base_timestamp=records[0].timestamp,
                      max_timestamp=max(one.timestamp for one in records))
        info = self.log.append_as_leader(v2.encode(batch), self.epoch)
        data = v2.encode(batch)
        for record in records:
            record.offset += self.end
        batch.base_offset = self.end
        data = self.end.to_bytes(8, "big") + data[8:12] + self.epoch.to_bytes(4, "big") + data[16:]
        assert (info.first_offset, info.last_offset) == (batch.base_offset, batch.last_offset)
        assert info.max_timestamp == batch.max_timestamp
        self.items.append(Item(batch, data))
        self.end = batch.last_offset + 1

    @rule()
    def lead(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        assert self.log.roll() == self.end
        self._resolve()

    @rule(force=st.booleans())
    def flush(self, force: bool) -> None:
        self.log.flush(force)
        assert self.log.recovery_point == self.end

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        to = max(0, self.end - back)
        assert self.log.truncate_to(to) == (to < self.end)
        if to < self.end:
            self.items = [item for item in self.items if item.last < to]
            self.end, self.start = to, min(self.start, to)
            self.high = min(self.high, to)
        self._resolve()

    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        self.end += ahead
        self.log.truncate_fully_and_start_at(self.end)
        self.items, self.start, self.high = [], self.end, self.end

    @rule(offset=st.integers(0, 400))
    def move_high_watermark(self, offset: int) -> None:
        got = self.log.update_high_watermark(offset)
        self.high = max(self.start, min(offset, self.end))
        assert got == self.high
        # What points into a batch is moved to its beginning when it is looked up.
        self.high = self.log.high_watermark

    @rule(offset=st.integers(0, 400))
    def move_start(self, offset: int) -> None:
        reason = StartOffsetReason.CLIENT_RECORD_DELETION
        if offset > self.log.high_watermark:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.maybe_increment_log_start_offset(offset, reason)
            return
        moved = self.log.maybe_increment_log_start_offset(offset, reason)
        assert moved == (offset > self.start)
        self.start = max(self.start, offset)

    @rule()
    def retain(self) -> None:
        self.log.update_high_watermark(self.end)
        size = self.log.size
        self.log.delete_old_segments()
        begins = int(self.log.segments.base_offsets[0])
        assert self.log.log_start_offset == max(self.start, begins) <= self.end
        if self.log.size < size:
            assert begins <= self.start or self.log.size >= self.config.retention_bytes >= 0
        self.start = self.log.log_start_offset
        self._resolve()

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        if clean:
            self.log.close()
        else:
            self.log.close_handlers()
        self._open(clean, recovery_point, self.start)
        held = self.items[-1].last + 1 if self.items else 0
        assert held <= self.log.log_end_offset <= max(self.end, self.start)
        assert self.log.log_start_offset == max(
            self.start, int(self.log.segments.base_offsets[0]))
        self.start, self.end = self.log.log_start_offset, self.log.log_end_offset

    # ---- questions

    @rule(offset=st.integers(-2, 400), most=st.sampled_from([0, 1, 150, 100_000]),
          isolation=st.sampled_from(ISOLATIONS), whole=st.booleans())
    def read(self, offset: int, most: int, isolation: Isolation, whole: bool) -> None:
        if not self.start <= offset <= self.end:
            with pytest.raises(OffsetOutOfRangeError):
                self.log.read(offset, most, isolation, whole)
            return
        got = bytes(self.log.read(offset, most, isolation, whole).records)
        bound = self.end if isolation == "log_end" else self.log.high_watermark
        expected = self._bytes_from(offset, bound)
        first = len(expected[0]) if expected else 0
        limit = max(most, first) if whole else most
        assert got == b"".join(expected)[:limit]

    def _bytes_from(self, offset: int, bound: int) -> list[bytes]:
        """The batches of one segment from the one with `offset`, as far as `bound` lets see."""
        if offset >= bound:
            return []
        items = [item for item in self.items if item.last >= offset]
        if not items:
            return []
        bases = self.log.segments.base_offsets.tolist()
        behind = bisect.bisect_right(bases, items[0].base)
        next_base = bases[behind] if behind < len(bases) else self.end
        return [item.data for item in items if item.base < min(next_base, bound)]

    @precondition(lambda self: self.items)
    @rule(stamp=st.integers(-1, 52))
    def find_timestamp(self, stamp: int) -> None:
        wanted = NOW + stamp * 1000
        found = self.log.offset_for_timestamp(wanted)
        expected = self._first_at(wanted)
        assert (None if found is None else (found.timestamp, found.offset)) == expected

    def _first_at(self, wanted: int) -> tuple[int, int] | None:
        """The first record at or behind a time, in the first segment that has such a time."""
        bases = self.log.segments.base_offsets.tolist()
        for base, end in zip(bases, [*bases[1:], self.end], strict=True):
            records = [record for item in self.items if base <= item.base < end
                       for record in item.batch.records]
            stamps = [record.timestamp for record in records if record.timestamp >= wanted]
            if stamps:
                return next(((record.timestamp, record.offset) for record in records
                             if record.timestamp >= wanted and record.offset >= self.start), None)
            if all(record.timestamp < 0 for record in records):
                return None  # its time is that of its file, which is later than all of these
        return None

    @invariant()
    def edges(self) -> None:
        if hasattr(self, "log"):
            assert self.log.log_end_offset == self.end
            assert self.log.log_start_offset == self.start
            assert self.log.recovery_point <= self.end
            assert self.start <= self.log.high_watermark <= max(self.start, self.end)
            assert sum(self._sizes()) == self.log.size

    def _sizes(self) -> Iterator[int]:
        first = int(self.log.segments.base_offsets[0])
        return (len(item.data) for item in self.items if item.base >= first)


def test_a_log_is_a_list(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "seglog")
    run_state_machine_as_test(LogMachine, settings=STEPS)
