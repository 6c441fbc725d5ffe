"""Sequences of operations on the producers of a log: a generator, and seglog's side of
Producers.java, which speaks the same lines."""

from __future__ import annotations

import base64
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seglog._native.batch import scan
from seglog.errors import SeglogError
from seglog.log.append_info import AppendOrigin
from seglog.log.producer_state_manager import ProducerStateManager, ProducerStateManagerConfig
from seglog.log.verification_guard import VerificationGuard
from seglog.model import BatchMetadata, ProducerStateEntry, TopicPartition
from seglog.recovery.disk import RealDisk
from seglog.recovery.snapshot_files import SnapshotNames, Snapshots
from tests.oracle import batch as v2

Op = dict[str, Any]
Sequence = dict[str, Any]

SEQUENCE_MAX = 2**31 - 1
ORIGINS = ["CLIENT"] * 6 + ["COORDINATOR"] * 4 + ["REPLICATION"] * 3 + ["RAFT_LEADER"]
EXPIRATION_MS = 1000


# ---- sequences ---------------------------------------------------------------------------------


@dataclass
class _Producer:
    """What a client believes of itself."""

    epoch: int = 0
    sequence: int = 0
    in_txn: bool = False
    coordinator_epoch: int = 0
    sent: list[tuple[int, int, int]] = field(default_factory=list)  # epoch, sequence, count
    guard: int | None = None


class Generator:
    """One sequence of a seed: mostly what clients do, and everything that they should not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.name = f"s{seed}"
        near = SEQUENCE_MAX - 20
        ids = [self.random.choice([n, 17 * n, 2**40 + n]) for n in range(self.random.randint(1, 5))]
        self.producers = {one: _Producer(self.random.choice([0, 0, 5, 32767]),
                                         self.random.choice([0, 0, near])) for one in ids}
        self.offset, self.start, self.now, self.verified = 0, 0, 10**12, 0
        self.snapshots = [0]

    def sequence(self) -> Sequence:
        verification = self.random.random() < 0.4
        kinds = {"append": 60, "high_watermark": 5, "snapshot": 8, "expire": 3, "late": 3,
                 "start_offset": 2, "reload": 4, "truncate_fully": 1, "delete_before": 1,
                 "stray": 1, "mark_deleted": 1, "damage": 1, "verify": 25 if verification else 2}
        chosen = self.random.choices(list(kinds), list(kinds.values()),
                                     k=self.random.randint(5, 40))
        return {"name": self.name, "expiration_ms": EXPIRATION_MS, "verification": verification,
                "ops": [{"op": kind, **getattr(self, f"_{kind}")()} for kind in chosen]}

    def _some_offset(self) -> int:
        return self.random.choice([self.random.randint(self.start, max(self.offset, self.start)),
                                   *self.snapshots[-3:]])

    def _append(self) -> Op:
        origin = self.random.choice(ORIGINS)
        count = 1 if self.random.random() < 0.7 else self.random.randint(2, 6)
        producer = self.random.choice(list(self.producers.values()))
        op: Op = {"origin": origin, "base": 0, "position": self.random.randrange(1000),
                  "txn_version": self.random.choice([0, 1, 2, 2, -1])}
        if producer.guard is not None and self.random.random() < 0.8:
            op["guard"] = producer.guard
        is_any = {id(producer)} if self.random.random() < 0.7 else None
        data = b"".join(self._batch(is_any) for _ in range(count))
        return {**op, "records": base64.b64encode(data).decode()}

    def _batch(self, wanted: set[int] | None) -> bytes:
        producer_id, producer = self.random.choice(
            [(one, state) for one, state in self.producers.items()
             if wanted is None or id(state) in wanted])
        self.now += self.random.choice([0, 1, 10, 200])
        kind = self.random.random()
        if kind < 0.04:
            return self._plain()
        if kind < 0.25 or (producer.in_txn and kind < 0.4):
            return self._marker(producer_id, producer)
        return self._data(producer_id, producer)

    def _take(self, count: int) -> int:
        base = max(self.offset + self.random.choice([0] * 20 + [3, 3, 3, -2]), 0)
        self.offset = base + count
        return base

    def _plain(self) -> bytes:
        return v2.seal(self._take(1), 0, 0, 0, self.now, self.now, -1, -1, -1, 1, b"")

    def _data(self, producer_id: int, producer: _Producer) -> bytes:
        count = self.random.choice([1, 1, 2, 7])
        epoch, sequence = producer.epoch, producer.sequence
        fault = self.random.random()
        if fault < 0.08 and producer.sent:
            epoch, sequence, count = self.random.choice(producer.sent[-6:])
        elif fault < 0.14:
            sequence = self.random.choice([0, 1, sequence + 1, SEQUENCE_MAX, sequence - 1])
            sequence = min(max(sequence, -1), SEQUENCE_MAX)
        elif fault < 0.20:
            epoch = max(min(epoch + self.random.choice([-1, 1]), 32767), -1)
            sequence = self.random.choice([0, sequence])
            producer.in_txn = False
        if self.random.random() < 0.15:
            producer.in_txn = not producer.in_txn
        producer.epoch, producer.sequence = epoch, v2.add_sequence(max(sequence, 0), count)
        producer.sent.append((epoch, sequence, count))
        return v2.seal(self._take(count), 0, v2.TRANSACTIONAL * producer.in_txn, count - 1,
                       self.now - 1, self.now, producer_id, epoch, sequence, count, b"")

    def _marker(self, producer_id: int, producer: _Producer) -> bytes:
        producer.in_txn = False
        if self.random.random() < 0.6:
            producer.epoch = min(producer.epoch + 1, 32767)
            producer.sequence = 0
        epoch = max(producer.epoch + self.random.choice([0, 0, 0, 0, 0, -1]), -1)
        producer.coordinator_epoch += self.random.choice([0, 0, 0, 0, 1, -1])
        batch = v2.marker(self._take(1), producer_id, epoch, self.random.choice([0, 1]), self.now,
                          coordinator_epoch=producer.coordinator_epoch)
        odd = self.random.random()
        if odd < 0.02:
            batch.records = []
        elif odd < 0.03:
            batch.records[0].key = self.random.choice([None, b"", b"\0\0\0\2", b"\0\0\1\0"])
        elif odd < 0.04:
            batch.records[0].value = self.random.choice([None, b"\0\0", b"\xff\0\0\0\0\0"])
        elif odd < 0.06:
            batch.records[0].headers = [(b"k", b"v")]
        elif odd < 0.08:
            batch.timestamp_type = 1
        elif odd < 0.09:
            batch.is_transactional = False
        return v2.encode(batch)

    def _verify(self) -> Op:
        producer_id, producer = self.random.choice(list(self.producers.items()))
        sequence = max(producer.sequence + self.random.choice([0, 0, 0, 5, -1]), 0)
        epoch = min(max(producer.epoch + self.random.choice([0, 0, 0, 0, 1, -1]), 0), 32767)
        producer.guard = self.verified
        producer.in_txn = producer.in_txn or self.random.random() < 0.8
        self.verified += 1
        return {"id": producer_id, "sequence": min(sequence, SEQUENCE_MAX), "epoch": epoch,
                "bump": self.random.random() < 0.5, "now": self.now}

    def _high_watermark(self) -> Op:
        return {"offset": self.random.choice([self.offset, self._some_offset()])}

    def _start_offset(self) -> Op:
        self.start = self._some_offset()
        return {"offset": self.start}

    def _expire(self) -> Op:
        return {"now": self.now + self.random.choice([0, EXPIRATION_MS - 200, EXPIRATION_MS])}

    def _late(self) -> Op:
        return {"now": self.now + self.random.choice([0, 1_200_000, 1_199_999, 1_200_001])}

    def _snapshot(self) -> Op:
        self.snapshots.append(self.offset)
        return {"sync": self.random.random() < 0.2}

    def _reload(self) -> Op:
        end = self._some_offset()
        self.offset = end if self.random.random() < 0.7 else self.offset
        return {"start": min(self.start, end), "end": end, "now": self._expire()["now"]}

    def _truncate_fully(self) -> Op:
        self.offset = self.start = self._some_offset()
        return {"offset": self.offset}

    def _delete_before(self) -> Op:
        return {"offset": self._some_offset()}

    def _stray(self) -> Op:
        return {"bases": sorted({self._some_offset() for _ in range(self.random.randint(0, 3))})}

    def _mark_deleted(self) -> Op:
        return {"offset": self.random.choice(self.snapshots)}

    def _damage(self) -> Op:
        return {}


# ---- seglog's side -----------------------------------------------------------------------------


def _batch_text(batch: BatchMetadata) -> str:
    return (f"BatchMetadata(firstSeq={batch.first_sequence}, lastSeq={batch.last_sequence}, "
            f"firstOffset={batch.first_offset}, lastOffset={batch.last_offset}, "
            f"timestamp={batch.timestamp})")


def _entry_text(entry: ProducerStateEntry) -> str:
    first = entry.current_txn_first_offset
    return (f"ProducerStateEntry(producerId={entry.producer_id}, "
            f"producerEpoch={entry.producer_epoch}, currentTxnFirstOffset="
            f"{'OptionalLong.empty' if first is None else f'OptionalLong[{first}]'}, "
            f"coordinatorEpoch={entry.coordinator_epoch}, lastTimestamp={entry.last_timestamp}, "
            f"batchMetadata=[{', '.join(_batch_text(batch) for batch in entry.batches)}])")


class Seglog:
    """Runs sequences on a ProducerStateManager in directories below `home`."""

    def __init__(self, home: Path, sequence: Sequence) -> None:
        self.sequence, self.now = sequence, 0
        self.dir = home / sequence["name"] / "t-0"
        self.dir.mkdir(parents=True)
        snapshots = Snapshots(RealDisk(str(self.dir)), SnapshotNames(), SnapshotNames(),
                              lambda finding: None)
        snapshots.adopt()
        self.manager = ProducerStateManager(
            TopicPartition("t", 0), snapshots,
            ProducerStateManagerConfig(sequence["expiration_ms"], sequence["verification"]),
            lambda: self.now)
        self.guards: list[VerificationGuard] = []
        self.ids: set[int] = set()

    def answer(self) -> dict[str, Any]:
        """What Producers.java prints of the sequence."""
        results = []
        for op in self.sequence["ops"]:
            result: dict[str, Any] = {}
            try:
                result.update(getattr(self, f"_{op['op']}")(op) or {})
            except SeglogError as error:
                result.update(error=error.kafka_name, message=str(error))
            results.append({**result, **self._state()})
        return {"name": self.sequence["name"], "results": results, "files": {
            path.name: base64.b64encode(path.read_bytes()).decode()
            for path in self.dir.iterdir()}}

    def _state(self) -> dict[str, Any]:
        manager = self.manager
        unstable = manager.first_unstable_offset
        verified = []
        for producer_id in sorted(self.ids):
            entry = manager.verification_state_entry(producer_id)
            if entry is not None:
                verified.append(f"{producer_id} {self.guards.index(entry.verification_guard)} "
                                f"{entry.lowest_sequence} {entry.epoch} "
                                f"{str(entry.supports_epoch_bump).lower()}")
        newest, oldest = manager.latest_snapshot_offset, manager.oldest_snapshot_offset
        return {"end": manager.map_end_offset,
                "unstable": None if unstable is None else str(unstable),
                "count": manager.producer_id_count, "is_empty": manager.is_empty,
                "newest": -1 if newest is None else newest,
                "oldest": -1 if oldest is None else oldest,
                "producers": [_entry_text(entry) for entry in manager.active_producers.values()],
                "verified": verified}

    def _append(self, op: Op) -> Op:
        records = base64.b64decode(op["records"])
        batches = scan(records).batches
        self.ids.update(batches["producer_id"].tolist())
        guard = self.guards[op["guard"]] if "guard" in op else VerificationGuard.SENTINEL
        analysis = self.manager.analyze(
            batches, records, origin=AppendOrigin[op["origin"]], segment_base_offset=op["base"],
            position=op["position"], transaction_version=op["txn_version"],
            verification_guard=guard)
        if analysis.duplicate is not None:
            return {"duplicate": _batch_text(analysis.duplicate)}
        self.manager.update(analysis)
        completed: list[str] = []
        for txn in analysis.completed_txns:
            completed.append(f"{txn} {self.manager.last_stable_offset(txn)}")
            self.manager.complete_txn(txn)
        self.manager.update_map_end_offset(int(batches["last_offset"][-1]) + 1)
        return {"completed": completed}

    def _verify(self, op: Op) -> Op:
        self.ids.add(op["id"])
        self.now = op["now"]
        self.guards.append(VerificationGuard.SENTINEL)
        self.guards[-1] = self.manager.maybe_start_transaction_verification(
            op["id"], op["sequence"], op["epoch"], op["bump"])
        return {"same_as": self.guards.index(self.guards[-1])}

    def _high_watermark(self, op: Op) -> None:
        self.manager.on_high_watermark_updated(op["offset"])

    def _start_offset(self, op: Op) -> None:
        self.manager.on_log_start_offset_incremented(op["offset"])

    def _expire(self, op: Op) -> None:
        self.manager.remove_expired(op["now"])

    def _late(self, op: Op) -> Op:
        return {"late": self.manager.has_late_transaction(op["now"])}

    def _snapshot(self, op: Op) -> Op:
        return {"taken": self.manager.take_snapshot(sync=op["sync"])}

    def _reload(self, op: Op) -> None:
        self.now = op["now"]
        self.manager.truncate_and_reload(op["start"], op["end"])

    def _truncate_fully(self, op: Op) -> None:
        self.manager.truncate_fully_and_start_at(op["offset"])

    def _delete_before(self, op: Op) -> None:
        self.manager.snapshots.delete_outside(op["offset"] - 1, 2**63 - 1)

    def _stray(self, op: Op) -> None:
        self.manager.snapshots.remove_stray(np.array(op["bases"], np.int64))

    def _mark_deleted(self, op: Op) -> Op:
        return {"marked": bool(self.manager.snapshots.retire([op["offset"]]))}

    def _damage(self, op: Op) -> None:
        newest = self.manager.latest_snapshot_offset
        if newest is not None:
            path = self.manager.fetch_snapshot(newest)
            assert path is not None
            data = bytearray(Path(path).read_bytes())
            data[-1] ^= 1
            Path(path).write_bytes(data)
