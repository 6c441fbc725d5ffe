"""The operations that append, aimed at what the log holds by then."""

from __future__ import annotations

import base64
from typing import Any

from tests.oracle import batch as v2
from tests.oracle.batch import Batch
from tests.sequences import damage
from tests.sequences.batches import Batches, Writer, built, encode_all
from tests.sequences.world import Producer, ProducerState, World

Op = dict[str, Any]
_RETAINED = 5
#: An epoch is a Java short.
LAST_EPOCH = 2**15 - 1


def text(raw: bytes) -> str:
    """Bytes as the lines of a sequence carry them."""
    return base64.b64encode(raw).decode()


class Appends:
    """Makes append operations and tells the world what they did, if they did."""

    def __init__(self, world: World, batches: Batches, wrong: float, *,
                 plain: bool = False) -> None:
        """`plain`: followers get every offset, in the current format, each with its epoch."""
        self.world, self.batches, self.wrong, self.plain = world, batches, wrong, plain
        self.random = world.random

    def _chance(self, much: float) -> bool:
        return self.random.random() < much

    def _op(self, raw: bytes, origin: str = "CLIENT", version: int | None = None) -> Op:
        epoch = self.world.epoch
        if self._chance(self.wrong * .3):
            epoch += self.random.choice([-1, 1, -5])
        op: Op = {"op": "append", "epoch": epoch, "records": text(raw)}
        if origin != "CLIENT" or self._chance(.2):
            op["origin"] = origin
        if version is not None:
            op["txn_version"] = version
        return op

    def _encoded(self, batch: Batch) -> bytes:
        """A sound batch, mostly by the tests' own encoder."""
        return built(batch) if self._chance(.2) else v2.encode(batch)

    def _grew(self, count: int) -> None:
        self.world.grew(self.world.end, self.world.end + count)

    # ---- by a leader

    def append(self) -> Op:
        """A batch without a producer; sometimes from a coordinator."""
        batch = self.batches.data()
        if self._chance(self.wrong):
            return self._op(self._spoiled(batch))
        raw = self._encoded(batch)
        if self.world.takes(batch, len(raw)):
            self._grew(batch.last_offset_delta + 1)
        return self._op(raw, "COORDINATOR" if self._chance(.1) else "CLIENT")

    def _spoiled(self, batch: Batch) -> bytes:
        kind = self.random.randrange(6)
        if kind == 0:
            far = self.random.choice([-10**9, 10**9, 10**12, -self.batches.now])
            batch.records[-1].timestamp += far
        elif kind == 1:
            for record in self.random.sample(batch.records, 1):
                record.key = None
        elif kind == 2:
            batch.timestamp_type = 1
        elif kind == 3:
            batch.records[0].value = self.random.randbytes(self.random.choice([600, 5000, 70_000]))
        elif kind == 4:
            batch.max_timestamp += self.random.choice([-1, 1, 10**6])
        else:
            batch.partition_leader_epoch = self.random.choice([0, 7, -1])
        return v2.encode(batch)

    def odd(self) -> Op:
        """Bytes with something wrong about them."""
        if self._chance(.15):
            return self._op(damage.of_message(self.random, self.batches.old(
                self.random.choice([0, 1]))))
        writer = self.world.producer(self._chance(.5)).writer() if self._chance(.4) else Writer()
        batch = self.batches.data(writer=writer)
        if self._chance(.3):
            raw = damage.odd_records(self.random, batch)
        else:
            name = self.random.choice(sorted(damage.OF_BATCHES))
            raw = damage.OF_BATCHES[name](self.random, v2.encode(batch))
        if self._chance(.15):
            return self._follower_op(raw, self.world.epoch)
        return self._op(raw, "COORDINATOR" if self._chance(.2) else "CLIENT")

    def several(self) -> Op:
        """Batches in one call, which a leader takes of the old formats alone."""
        count = self.random.randint(2, 4)
        if self._chance(.5):
            raw = b"".join(self.batches.old(self.random.choice([0, 1])) for _ in range(count))
        else:
            raw = encode_all([self.batches.data() for _ in range(count)])
            if self._chance(.3):
                raw += self.batches.old(1)
        return self._op(raw)

    def old(self) -> Op:
        """Messages of magic 0 or 1."""
        raw = self.batches.old(self.random.choice([0, 1]))
        if self._chance(self.wrong):
            raw = damage.of_message(self.random, raw)
        else:
            self._grew(1)
        return self._op(raw)

    def raft(self) -> Op:
        """What a Raft leader appends: its batches hold their offsets."""
        world, batches = self.world, []
        for _ in range(self.random.randint(1, 3)):
            batches.append(self.batches.data(world.end, leader_epoch=world.epoch))
            world.grew(world.end, batches[-1].last_offset + 1)
        if self._chance(.3):
            batches.append(self.batches.leader_change(world.end, world.epoch))
            world.grew(world.end, world.end + 1)
        return self._op(encode_all(batches), "RAFT_LEADER")

    # ---- by producers

    def idempotent(self) -> Op:
        """The next batch of a producer, or one that comes again, too early or too late."""
        return self._produced(self.world.producer(False))

    def transactional(self) -> Op:
        """The same within a transaction, which begins with its first batch."""
        return self._produced(self.world.producer(True))

    def _produced(self, producer: Producer) -> Op:
        if self._chance(self.wrong * 1.5):
            return self._misproduced(producer)
        if self._chance(.06) and not producer.now.open:
            producer.bumped(min(LAST_EPOCH, producer.now.epoch + self.random.randint(1, 2)))
        batch = self.batches.data(writer=producer.writer())
        raw = self._encoded(batch)
        if self.world.takes(batch, len(raw)):
            self._grew(batch.last_offset_delta + 1)
            producer.appended(self.world.end, batch.last_offset_delta + 1, raw)
        return self._op(raw)

    def _misproduced(self, producer: Producer) -> Op:
        kind, now = self.random.randrange(8), producer.now
        if kind <= 2 and producer.sent:
            back = self.random.randint(1, _RETAINED + 2)
            return self._op(producer.sent[-min(back, len(producer.sent))])
        writer = Writer(producer.producer_id, now.epoch, now.sequence, producer.transactional)
        if kind == 3:
            writer = Writer(producer.producer_id, now.epoch,
                            self.random.choice([(now.sequence + 1) % 2**31,
                                                max(0, now.sequence - 1), 0,
                                                2**31 - 1]), producer.transactional)
        elif kind == 4:
            writer = Writer(producer.producer_id, max(0, now.epoch - 1), now.sequence,
                            producer.transactional)
        elif kind == 5:
            writer = Writer(producer.producer_id, min(LAST_EPOCH, now.epoch + 1),
                            self.random.choice([1, 5]), producer.transactional)
        elif kind == 6:
            writer = Writer(producer.producer_id, now.epoch, now.sequence,
                            not producer.transactional)
        else:
            writer = Writer(self.random.choice([0, 5000, 2**62]), self.random.choice([0, 3]),
                            self.random.choice([0, 4, 2**31 - 1]), self._chance(.3))
        return self._op(v2.encode(self.batches.data(writer=writer)),
                        "COORDINATOR" if self._chance(.15) else "CLIENT")

    def marker(self) -> Op:
        """The end of a transaction, by a coordinator of some transaction version."""
        open_ones = [one for one in self.world.producers if one.now.open]
        producer = self.random.choice(open_ones) if open_ones and self._chance(.9) \
            else self.world.producer(True)
        version = self.random.choice([0, 1, 2, 2])
        epoch, coordinator = producer.now.epoch, producer.coordinator_epoch
        if version == 2 or self._chance(.1):
            epoch = min(LAST_EPOCH, epoch + 1)
        if self._chance(.1):
            producer.coordinator_epoch = coordinator = coordinator + 1
        origin = "COORDINATOR"
        if self._chance(self.wrong):
            epoch += self.random.choice([-2, -1, 1, 0])
            coordinator -= self.random.choice([0, 0, 1, 2])
            version = self.random.choice([-1, 0, 1, 2, 3])
            origin = self.random.choice(["COORDINATOR", "COORDINATOR", "CLIENT"])
        else:
            producer.ended(self.world.end + 1, epoch)
            self._grew(1)
        batch = self.batches.marker(0, Writer(producer.producer_id, min(LAST_EPOCH, max(0, epoch))),
                                    commit=self._chance(.5), coordinator_epoch=coordinator)
        return self._op(v2.encode(batch), origin,
                        None if version == 0 and self._chance(.5) else version)

    def odd_marker(self) -> Op:
        """A control batch that is not what ends a transaction."""
        producer = self.world.producer(True)
        writer = Writer(producer.producer_id, producer.now.epoch)
        if self._chance(.3):
            batch = self.batches.odd_marker(self.world.end, writer, self.world.epoch)
            return self._follower_op(v2.encode(batch), self.world.epoch)
        return self._op(v2.encode(self.batches.odd_marker(0, writer)), "COORDINATOR",
                        self.random.choice([0, 1, 2]))

    # ---- by a follower

    def _follower_op(self, raw: bytes, epoch: int) -> Op:
        return {"op": "append_follower", "epoch": epoch, "records": text(raw)}

    def follower(self) -> Op:
        """A span of batches as a leader sent them: offsets, epochs and markers in them."""
        world, parts = self.world, []
        end, epoch = world.end, world.epoch
        if self._chance(self.wrong):
            end += self.random.choice([-1, -3, 5, -end, 2**31])
        if not self.plain and self._chance(.03):
            end += self.random.choice([2**31 - 1, 2**31, 2**33])
        told = epoch
        grew = [(end, end)]
        for _ in range(self.random.randint(1, 5)):
            if not self.plain and self._chance(.12):
                end += self.random.choice([1, 2, 7, 300])
            if self._chance(.12):
                epoch += self.random.randint(1, 2)
                told = epoch if self._chance(.7) else told
            if self._chance(self.wrong):
                end = max(0, end - self.random.randint(1, 3))
            raw, behind = self._replicated(end, epoch)
            parts.append(raw)
            grew.append((end, behind))
            end = behind
        for base, behind in grew[1:]:
            world.grew(base, behind)
        world.epoch = max(world.epoch, told)
        raw = b"".join(parts)
        if self._chance(.1):
            # A fetch that ends in the middle of a batch.
            raw = raw[:-self.random.randint(1, len(parts[-1]))]
        if self._chance(self.wrong):
            told = self.random.choice([told - 1, -1, told + 1, 2**31 - 1])
        return self._follower_op(raw, told)

    def _replicated(self, end: int, epoch: int) -> tuple[bytes, int]:
        kind = self.random.random()
        epoch = -1 if not self.plain and self._chance(.02) else epoch
        if kind < .06 and not self.plain:
            return self._old_messages(end)
        if kind < .12:
            return v2.encode(self.batches.leader_change(end, epoch)), end + 1
        producer = self.world.producer(kind < .6)
        open_one = producer.transactional and producer.now.open
        if open_one and self._chance(.4):
            raised = min(LAST_EPOCH, producer.now.epoch + int(self._chance(.4)))
            batch = self.batches.marker(
                end, Writer(producer.producer_id, raised), commit=self._chance(.5),
                coordinator_epoch=producer.coordinator_epoch, leader_epoch=epoch)
            producer.ended(end + 1, raised)
            return v2.encode(batch), end + 1
        writer = producer.writer() if kind < .8 else Writer()
        batch = self.batches.data(end, writer, leader_epoch=epoch)
        behind, count = batch.last_offset + 1, batch.last_offset_delta + 1
        if kind < .8:
            producer.appended(behind, count, b"")
            producer.sent.pop()
            if self._chance(.05):
                producer.states.append(ProducerState(behind, producer.now.epoch,
                                                     v2.add_sequence(producer.now.sequence, 10),
                                                     open_one))
        if self._chance(.12):
            batch = self.batches.thinned(batch)
        return v2.encode(batch), behind

    def old_follower(self) -> Op:
        """Messages of magic 0 and 1 as a leader of old sent them."""
        parts, end = [], self.world.end
        for _ in range(self.random.randint(1, 3)):
            raw, behind = self._old_messages(end)
            self.world.grew(end, behind)
            parts.append(raw)
            end = behind
        return self._follower_op(b"".join(parts), self.world.epoch)

    def _old_messages(self, end: int) -> tuple[bytes, int]:
        raw, at, last = self.batches.old(self.random.choice([0, 1]), end), 0, end
        while at < len(raw):
            last = int.from_bytes(raw[at:at + 8], "big", signed=True)
            at += 12 + int.from_bytes(raw[at + 8:at + 12], "big")
        return raw, last + 1
