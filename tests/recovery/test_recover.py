"""Recovery of one segment: what it rebuilds, and that a pool of threads changes nothing."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from seglog._native.status import Status
from seglog.config import LogConfig
from seglog.model import TopicPartition
from seglog.recovery.segment_recovery import RecoveryFailure, SegmentRecovery, recover_extent
from seglog.recovery.scans import Extent, SegmentScans
from seglog.storage.producer_state import ProducerState
from tests.oracle import batch as v2
from tests.oracle import rebuild as oracle
from tests.oracle.batch import Batch, Record
from tests.oracle.builder import Shape, build_log
from tests.oracle.log import entries
from tests.oracle.writer import BuiltLog

TP = TopicPartition("t", 0)
CONFIG = LogConfig(index_interval_bytes=512, segment_index_bytes=16384)
LOGS = 12
DAMAGES = 3000


def outcome(recovery: SegmentRecovery) -> tuple[Any, ...]:
    """Everything that a recovery tells, comparable."""
    invalid = recovery.invalid_record
    return (*(getattr(recovery, name) for name in recovery.__slots__ if name != "invalid_record"),
            None if invalid is None else (invalid.kafka_error, invalid.message, invalid.where))


def recover(path: Path, base: int, scans: SegmentScans | None = None,
            config: LogConfig = CONFIG) -> tuple[Any, ...]:
    """(what was told or raised, state of the producers)."""
    producers = ProducerState(TP, base)
    extent = Extent(str(path), 0, path.stat().st_size)
    told: tuple[Any, ...]
    try:
        told = outcome(recover_extent(base, extent, config, producers, scans=scans))
    except RecoveryFailure as failure:
        told = (failure.kafka_error, failure.message, failure.where, outcome(failure.recovery))
    return told, producers.entries, producers.map_end_offset, producers.first_unstable_offset


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[BuiltLog]:
    folder = tmp_path_factory.mktemp("logs")
    return [build_log(folder / f"{seed}", seed, Shape()) for seed in range(LOGS)]


def facts(path: Path) -> list[oracle.Facts]:
    found = []
    for entry in entries(path.read_bytes()):
        decoded = entry.decode()
        if isinstance(decoded, Batch):
            found.append(oracle.Facts(decoded.base_offset, decoded.last_offset,
                                      decoded.max_timestamp, entry.size))
        else:
            found.append(oracle.Facts(decoded.offset, decoded.offset, decoded.timestamp,
                                      entry.size))
    return found


def test_a_sound_segment_gets_its_indexes_back(logs: list[BuiltLog]) -> None:
    seen = 0
    for log in logs:
        for base in log.segments:
            path = log.path / f"{base:020d}.log"
            expected = oracle.rebuild(facts(path), base, 512, 16384)
            recovery = recover_extent(base, Extent(str(path), 0, path.stat().st_size), CONFIG,
                                      ProducerState(TP, base))
            assert recovery.offset_index == expected.offset_index
            assert recovery.time_index == expected.time_index
            assert path.with_suffix(".index").read_bytes().startswith(expected.offset_index)
            assert (recovery.cut_bytes, recovery.status) == (0, Status.END)
            assert recovery.next_offset == expected.next_offset
            seen += len(expected.offsets)
    assert seen > 200


def test_golden_segments_get_the_indexes_that_kafka_wrote(golden: Path) -> None:
    """Of a log that compaction has not rewritten; brokers after 4.1 index every batch alike."""
    seen = 0
    for path in sorted((golden / "real/clean").glob("*-*/*.log")):
        if path.parent.name.startswith(("compacted", "__")):
            continue
        base, index = int(path.name[:20]), path.with_suffix(".index")
        recovery = recover_extent(base, Extent(str(path), 0, path.stat().st_size), CONFIG,
                                  ProducerState(TP, base))
        if index.exists() and len(index.read_bytes()) != len(recovery.offset_index):
            continue  # written before the broker's settings
        assert recovery.offset_index == index.read_bytes(), path
        seen += 1
    assert seen > 30


def test_the_first_epoch_that_cannot_begin_ends_a_recovery(tmp_path: Path) -> None:
    """LeaderEpochFileCache.assign refuses a negative start offset; the batch's own index entries
    are there by then, and those of later batches are not."""
    path = tmp_path / f"{0:020d}.log"
    encoded = [v2.encode(Batch(
        base, last - base, [Record(offset, 1000, b"k", b"v") for offset in range(base, last + 1)],
        base_timestamp=1000, max_timestamp=1000, partition_leader_epoch=epoch))
        for base, last, epoch in ((0, 0, 0), (-3, 2, 1), (-1, 4, 2))]
    path.write_bytes(b"".join(encoded))
    with pytest.raises(RecoveryFailure, match="invalid partition leader epoch entry") as caught:
        recover_extent(0, Extent(str(path), 0, path.stat().st_size),
                       LogConfig(index_interval_bytes=1), ProducerState(TP, 0))
    assert caught.value.where["position"] == len(encoded[0])
    assert caught.value.recovery.offset_index == struct.pack(">ii", 2, len(encoded[0]))


# ---- damage, and a pool of threads ---------------------------------------------------------------

def flipped(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def torn(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data)):]


def zeros(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at + rng.choice([1, 17, 100, 5000])] = bytes(rng.choice([1, 17, 100, 5000]))


def garbage(rng: random.Random, data: bytearray) -> None:
    """Random bytes, or a batch of the log once more, somewhere."""
    at = rng.randrange(len(data))
    there = data[at:at + rng.choice([0, 30, 400])]
    found = entries_of(bytes(data))
    entry = rng.choice(found) if found else None
    what = rng.randbytes(len(there)) if entry is None or rng.random() < .3 else entry.data
    data[at:at + len(there)] = what


def batch_twice(rng: random.Random, data: bytearray) -> None:
    """An entry in front of another: offsets that go backwards, transactions that mix."""
    found = entries_of(bytes(data))
    data[(at := rng.choice(found).position):at] = rng.choice(found).data


def entry_gone(rng: random.Random, data: bytearray) -> None:
    entry = rng.choice(entries_of(bytes(data)))
    del data[entry.position:entry.position + entry.size]


def resealed(rng: random.Random, data: bytearray) -> None:
    """Random header fields of a batch under a right CRC."""
    entry = rng.choice(entries_of(bytes(data)))
    if entry.magic < 2 or entry.size < 61:
        return
    raw = bytearray(entry.data)
    at = rng.choice([0, 4, 7, 12, 15, 16, 21, 22, 26, 34, 42, 44, 50, 52, 56, 60])
    raw[at] = rng.choice([0, 1, 2, 0x10, 0x20, 0x30, 0x7F, 0xFF])
    raw[17:21] = v2.crc32c(bytes(raw[21:])).to_bytes(4, "big")
    data[entry.position:entry.position + entry.size] = raw


def plain_inside(rng: random.Random, data: bytearray) -> None:
    """A batch of a transaction without its transactional bit."""
    found = [entry for entry in entries_of(bytes(data)) if entry.magic >= 2 and entry.size >= 61
             and entry.data[22] & 0x30 == 0x10]
    if found:
        entry = rng.choice(found)
        raw = bytearray(entry.data)
        raw[22] &= ~0x10
        raw[17:21] = v2.crc32c(bytes(raw[21:])).to_bytes(4, "big")
        data[entry.position:entry.position + entry.size] = raw


def embedded(rng: random.Random, data: bytearray) -> None:
    """Whole batches inside a value of a batch: a search for one must not be believed."""
    found = entries_of(bytes(data))
    inner = b"".join(entry.data for entry in found[:rng.randint(1, 4)])
    offset = int.from_bytes(found[-1].data[:8], "big", signed=True) + 50
    outer = v2.encode(Batch(offset, 0, [Record(offset, 1, None, inner * rng.randint(1, 8))]))
    at = rng.choice([entry.position for entry in found] + [len(data)])
    data[at:at] = outer


DAMAGES_BY_NAME = [flipped, torn, zeros, garbage, batch_twice, entry_gone, resealed,
                   plain_inside, embedded]


def damage_index(rng: random.Random, path: Path) -> None:
    """Sound, missing, random, of another log, or never trimmed."""
    index, kind = path.with_suffix(".index"), rng.randrange(5)
    if kind == 1:
        index.unlink(missing_ok=True)
    elif kind == 2:
        index.write_bytes(rng.randbytes(8 * rng.randint(0, 40)))
    elif kind == 3:
        index.write_bytes(b"".join(
            n.to_bytes(4, "big") + (n * rng.randint(1, 900)).to_bytes(4, "big")
            for n in range(40)))
    elif kind == 4 and index.exists():
        index.write_bytes(index.read_bytes() + bytes(8 * rng.randint(1, 3000)))


@pytest.mark.judge
def test_a_pool_gives_what_one_thread_gives(logs: list[BuiltLog], pool: Executor,
                                            tmp_path: Path) -> None:
    """Thousands of damaged logs, pieces of a few batches: the same to the last byte."""
    seen: dict[str, int] = {}
    for seed in range(DAMAGES):
        rng = random.Random(seed)
        log = rng.choice(logs)
        base = rng.choice(log.segments)
        source = log.path / f"{base:020d}.log"
        data = bytearray(source.read_bytes())
        for _ in range(rng.choice([0, 1, 1, 2])):
            if entries_of(bytes(data)):
                rng.choice(DAMAGES_BY_NAME)(rng, data)
        path = tmp_path / source.name
        path.write_bytes(data)
        path.with_suffix(".index").write_bytes(source.with_suffix(".index").read_bytes())
        damage_index(rng, path)
        config = LogConfig(index_interval_bytes=rng.choice([0, 512]),
                           segment_index_bytes=rng.choice([120, 16384]))
        alone = recover(path, base, config=config)
        for threads, chunk_bytes in ((1, 1 << 20), (2, rng.choice([100, 700, 3000]))):
            executor = pool if threads > 1 else None
            with SegmentScans(executor, threads, chunk_bytes=chunk_bytes) as scans:
                assert recover(path, base, scans, config) == alone, (seed, threads)
        kind = str(alone[0][0]) if isinstance(alone[0][0], str) else alone[0][6].name
        seen[kind] = seen.get(kind, 0) + 1
    assert {"END", "BATCH_CRC", "TORN_TAIL", "BATCH_LENGTH", "ZERO_TAIL", "BATCH_OFFSET_RANGE",
            "INDEX_OFFSET_ORDER", "IllegalArgumentException",
            "InvalidTxnStateException"} <= set(seen), seen


def entries_of(data: bytes) -> list[Any]:
    try:
        return list(entries(data))
    except v2.OracleError:
        return []
