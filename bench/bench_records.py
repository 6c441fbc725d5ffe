"""Decoding records with 100 B values to Arrow columns, next to other readers of Kafka batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench import peers
from bench.data import Log, write_log
from bench.floors import Floors
from bench.harness import Against, Compare, equals, opened, pick
from seglog.arrow import DecodeOptions, decode_range
from seglog.storage.partition_log import PartitionLog

RECORDS = pick(20_000, 2_000_000, 8_000_000)
#: Records for Python readers: the slowest takes seconds for this part of the log.
PEER_RECORDS = pick(5_000, 100_000, 200_000)


@pytest.fixture(scope="module")
def log(scratch: Path) -> Log:
    """16 KiB batches of 100 B values."""
    return write_log(scratch / "records-0", RECORDS)


@pytest.fixture(scope="module")
def part(scratch: Path) -> Log:
    """The first part of the same log."""
    return write_log(scratch / "part-0", PEER_RECORDS)


def decode(partition: PartitionLog, log: Log, threads: int) -> tuple[int, int]:
    """(rows, last offset) of the whole log, decoded to Arrow columns with ranges in parallel."""
    ranges = partition.ranges(max(1, log.size // threads))

    def one(planned: Any) -> tuple[int, int]:
        rows, last = 0, -1
        for columns in decode_range(planned, DecodeOptions()):
            rows += pa.record_batch(columns).num_rows
            last = columns.last_offset
        return rows, last

    if threads == 1:
        told = [one(planned) for planned in ranges]
    else:
        with ThreadPoolExecutor(threads) as pool:
            told = list(pool.map(one, ranges))
    return sum(rows for rows, _ in told), told[-1][1]


def stream(partition: PartitionLog, threads: int, columns: list[str] | None = None
           ) -> tuple[int, int]:
    """The same through `to_arrow`."""
    rows, last = 0, -1
    for found in partition.to_arrow(columns=columns, threads=threads):
        rows, last = rows + found.num_rows, found.last_offset
    return rows, last


def values_sha256(partition: PartitionLog) -> str:
    """The SHA-256 of all values, concatenated."""
    digest = hashlib.sha256()
    for columns in partition.to_arrow(columns=["value"]):
        values = pa.record_batch(columns).column(0)
        ends = pa.Array.from_buffers(pa.int32(), len(values) + 1, [None, values.buffers()[1]])
        digest.update(memoryview(values.buffers()[2])[:ends[-1].as_py()])
    return digest.hexdigest()


def checked(log: Log) -> Callable[[object], None]:
    return equals((log.records, log.last_offset))


def test_decode_one_thread(compare: Compare, log: Log, part: Log) -> None:
    """Goals: 5 times aiokafka's Cython reader and 2 times krabka-log's borrowed iterator."""
    data = part.path.read_bytes()
    readers = {"aiokafka (Cython)": (peers.aiokafka_reader(), 5.0),
               "kafka-python": (peers.kafka_python_reader(), None)}
    others = []
    for name, (reader, goal) in readers.items():
        if reader is not None:
            assert peers.values_sha256(reader, data) == part.values_sha256
            others.append(Against(name, partial(peers.count, reader, data), goal,
                                  work=part.records / 1e6, check=checked(part)))
    with PartitionLog.open(log.path.parent) as partition:
        assert values_sha256(partition) == log.values_sha256
        compare("decode to Arrow, 1 thread, CRC", lambda: decode(partition, log, 1), others,
                work=log.records / 1e6, unit="Mrecords", check=checked(log))


def test_decode_beside_its_floor(compare: Compare, floors: Floors, log: Log) -> None:
    """The share of the time that any reader needs to copy the bytes out of the page cache."""
    with opened(log.path) as fd, PartitionLog.open(log.path.parent) as partition:
        compare("decode to Arrow, 1 thread, CRC", lambda: decode(partition, log, 1),
                [Against("CRC over pread in C", lambda: floors.crc_pread(fd, log.size))],
                work=log.records / 1e6, unit="Mrecords", check=checked(log))


def test_floor_two_threads(compare: Compare, floors: Floors, scratch: Path) -> None:
    """The floor's gain from a second thread on this machine: an upper limit for any reader."""
    halves = [write_log(scratch / f"half-{n}", RECORDS // 2, seed=n) for n in (1, 2)]

    def checksum(half: Log) -> int:
        with opened(half.path) as fd:
            return floors.crc_pread(fd, half.size)

    def side_by_side() -> list[int]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(checksum, halves))

    check = equals([checksum(half) for half in halves])
    compare("CRC over pread in C, 2 threads", side_by_side,
            [Against("1 thread", lambda: list(map(checksum, halves)), check=check)],
            work=2 * halves[0].size / 1e9, unit="GB", check=check, rounds=7)
    for half in halves:
        half.path.unlink()


def test_decode_beside_krabka(compare: Compare, log: Log) -> None:
    """Goal: 2 times krabka-log's borrowed iterator, which copies nothing."""
    krabka = peers.krabka()
    with PartitionLog.open(log.path.parent) as partition:
        compare("decode to Arrow, 1 thread, CRC", lambda: decode(partition, log, 1),
                [Against("krabka-log (Rust), borrowed, CRC", lambda: krabka(log.path), goal=2.0,
                         check=equals((log.records, log.value_bytes)))],
                work=log.records / 1e6, unit="Mrecords", check=checked(log))


def test_decode_two_threads(compare: Compare, log: Log) -> None:
    """Goal: two threads 1.8 times one."""
    with PartitionLog.open(log.path.parent) as partition:
        compare("decode to Arrow, 2 threads, CRC", lambda: decode(partition, log, 2),
                [Against("1 thread", lambda: decode(partition, log, 1), goal=1.8,
                         check=checked(log))],
                work=log.records / 1e6, unit="Mrecords", check=checked(log), rounds=7)


def test_stream_two_threads(compare: Compare, log: Log) -> None:
    """The same through `to_arrow`, which keeps the order."""
    with PartitionLog.open(log.path.parent) as partition:
        compare("to_arrow(threads=2)", lambda: stream(partition, 2),
                [Against("to_arrow(threads=0)", lambda: stream(partition, 0), goal=1.5,
                         check=checked(log))],
                work=log.records / 1e6, unit="Mrecords", check=checked(log), rounds=7)


def test_projection(compare: Compare, log: Log) -> None:
    """Columns that are not requested are not copied."""
    with PartitionLog.open(log.path.parent) as partition:

        compare("to_arrow, offset and timestamp only",
                lambda: stream(partition, 0, ["offset", "timestamp"]),
                [Against("all columns", lambda: stream(partition, 0), check=checked(log))],
                work=log.records / 1e6, unit="Mrecords", check=checked(log))
