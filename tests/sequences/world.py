"""What a generator knows of the log that its operations make: enough to aim the next ones well.

It guesses as a client would, and may be wrong after an operation that was refused: then the next
ones are aimed at something else, which is as good.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.oracle.batch import Batch, add_sequence
from tests.sequences.batches import Writer

#: Where the clock of both sides stands at first. The times of files are those of the machine, so
#: no clock of a sequence comes near to them.
CLOCK = 1_700_000_000_000
FAR = 4_000_000_000_000


@dataclass(frozen=True)
class ProducerState:
    """A producer behind one of its batches."""

    end_offset: int
    epoch: int
    sequence: int
    open: bool = False


@dataclass
class Producer:
    """A producer and what it has sent, newest last."""

    producer_id: int
    transactional: bool
    states: list[ProducerState]
    coordinator_epoch: int = 0
    #: The last appended batches, as bytes, to send them again.
    sent: list[bytes] = field(default_factory=list)

    @property
    def now(self) -> ProducerState:
        return self.states[-1]

    def writer(self) -> Writer:
        return Writer(self.producer_id, self.now.epoch, self.now.sequence, self.transactional)

    def appended(self, end_offset: int, count: int, raw: bytes) -> None:
        now = self.now
        self.states.append(ProducerState(end_offset, now.epoch, add_sequence(now.sequence, count),
                                         self.transactional))
        self.sent.append(raw)

    def ended(self, end_offset: int, epoch: int) -> None:
        now = self.now
        sequence = now.sequence if epoch == now.epoch else 0
        self.states.append(ProducerState(end_offset, epoch, sequence))

    def bumped(self, epoch: int) -> None:
        self.states.append(ProducerState(self.now.end_offset, epoch, 0, self.now.open))

    def cut(self, offset: int) -> None:
        while len(self.states) > 1 and self.states[-1].end_offset > offset:
            self.states.pop()


@dataclass
class World:
    """The log as far as its writers know it."""

    random: random.Random
    end: int = 0
    start: int = 0
    high_watermark: int = 0
    epoch: int = 0
    clock: int = CLOCK
    #: Base offsets of the batches, as far as they are known, and times that records have.
    bases: list[int] = field(default_factory=lambda: [0])
    producers: list[Producer] = field(default_factory=list)
    #: The configuration by now, as it was set.
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        near_the_end = 2**31 - 1 - self.random.randint(0, 30)
        for number in range(3):
            sequence = near_the_end if number == 2 else 0
            self.producers.append(Producer(1000 + number, False,
                                           [ProducerState(-1, number, sequence)]))
        for number in range(3):
            epoch = 32_765 if number == 2 and self.random.random() < .3 else number
            self.producers.append(Producer(2000 + number, True, [ProducerState(-1, epoch, 0)]))

    def producer(self, transactional: bool) -> Producer:
        return self.random.choice([one for one in self.producers
                                   if one.transactional == transactional])

    def setting(self, key: str, default: int) -> int:
        """A number that is configured."""
        return int(self.settings.get(key, default))

    def takes(self, batch: Batch, size: int) -> bool:
        """Whether a leader should accept a batch that has nothing wrong in itself."""
        if size > min(self.setting("internal.segment.bytes", 2**30),
                      self.setting("max.message.bytes", 1048588)):
            return False
        if "compact" in self.settings.get("cleanup.policy", "") and \
                any(record.key is None for record in batch.records):
            return False
        if self.settings.get("message.timestamp.type") == "LogAppendTime":
            return not batch.timestamp_type
        first = self.clock - self.setting("message.timestamp.before.max.ms", 2**63 - 1)
        last = self.clock + self.setting("message.timestamp.after.max.ms", 3_600_000)
        return not batch.timestamp_type and all(
            record.timestamp == -1 or first <= record.timestamp <= last
            for record in batch.records)

    def grew(self, base: int, end: int) -> None:
        """A batch came in."""
        self.bases.append(base)
        self.end = end

    def cut(self, offset: int) -> None:
        """Everything from `offset` on went."""
        self.end = min(self.end, max(offset, 0))
        self.start = min(self.start, self.end)
        self.high_watermark = min(self.high_watermark, self.end)
        self.bases = [base for base in self.bases if base < self.end] or [self.end]
        for producer in self.producers:
            producer.cut(self.end)

    def begin_at(self, offset: int) -> None:
        """Everything went, and the next offset is `offset`."""
        self.cut(0)
        self.start = self.end = self.high_watermark = offset
        self.bases = [offset]

    def offset(self) -> int:
        """Some offset that is or could be in the log, its edges most of all."""
        edges = [self.start, self.start - 1, self.end, self.end - 1, self.end + 1,
                 self.high_watermark, self.high_watermark + 1, 0]
        kind = self.random.random()
        if kind < .4:
            return self.random.choice(edges)
        if kind < .6:
            return self.random.choice(self.bases) + self.random.choice([0, 0, 1, -1])
        if kind < .95:
            return self.random.randint(min(self.start, self.end), max(self.start, self.end))
        return self.random.choice([-1, -5, self.end + 1000, 2**31, 2**62])

    def inside(self) -> int:
        """An offset of the log."""
        low = min(self.start, self.end)
        if self.random.random() < .5:
            return max(low, min(self.end, self.random.choice(self.bases)))
        return self.random.randint(low, self.end)
