"""Encoding of records with 100 B values to batches of 16 KiB, next to other clients' builders.

All batches must be identical from the magic on; the broker sets the base offset and leader epoch,
which no checksum covers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench import peers
from bench.data import START_MS, VALUE_BYTES, random_value
from bench.floors import Floors
from bench.harness import Against, Compare, equals, pick
from seglog._native.batch import scan
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.column_batches import MAX_BATCH_BYTES_DEFAULT, encode_spans

RECORDS = pick(20_000, 1_000_000, 4_000_000)
#: The number of records for other builders: the slowest takes a second for them.
PEER_RECORDS = pick(5_000, 50_000, 100_000)
_DISTINCT = 4096
MAGIC_AT = 16


@dataclass(frozen=True)
class Given:
    """The records as columns, and their first ones as lists."""

    table: Any
    content: bytes
    timestamps: list[int]
    values: list[bytes]


@pytest.fixture(scope="module")
def given() -> Given:
    rng = random.Random(5)
    distinct = b"".join(random_value(rng, n) for n in range(_DISTINCT))
    content = (distinct * (RECORDS // _DISTINCT + 1))[:RECORDS * VALUE_BYTES]
    ends = np.arange(RECORDS + 1, dtype=np.int64) * VALUE_BYTES
    values = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), RECORDS, [None, pa.py_buffer(ends), pa.py_buffer(content)])
    times = START_MS + np.arange(RECORDS, dtype=np.int64) // 3
    return Given(pa.table({"value": values, "timestamp": times}), content,
                 times[:PEER_RECORDS].tolist(), values[:PEER_RECORDS].to_pylist())


def digest(spans: Iterable[bytes]) -> str:
    """The digest of all batches from the magic on."""
    total = hashlib.sha256()
    for span in spans:
        for batch in scan(span).batches:
            first = int(batch["position"])
            total.update(memoryview(span)[first + MAGIC_AT:first + int(batch["size"])])
    return total.hexdigest()


def encoded(table: Any) -> int:
    """The bytes of all batches; each span is released, as after an append."""
    return sum(len(span) for span in encode_spans(table))


def by_record(timestamps: list[int], values: list[bytes]) -> list[bytes]:
    """The same through seglog's builder, one record at a time as with the peers."""
    built, builder = [], RecordBatchBuilder(write_limit=MAX_BATCH_BYTES_DEFAULT)
    for timestamp, value in zip(timestamps, values, strict=True):
        if not builder.try_append(timestamp, None, value):
            built.append(builder.build())
            builder = RecordBatchBuilder(write_limit=MAX_BATCH_BYTES_DEFAULT)
            builder.append(timestamp, None, value)
    built.append(builder.build())
    return built


def _peers() -> dict[str, tuple[type | None, float]]:
    return {"aiokafka (Cython)": (peers.aiokafka_builder(), 5.0),
            "kafka-python": (peers.kafka_python_builder(), 30.0)}


def _same(expected: str) -> Callable[[list[bytes]], None]:
    def check(built: list[bytes]) -> None:
        assert digest(built) == expected

    return check


def test_encode_columns(compare: Compare, given: Given) -> None:
    """Goals: 5 times aiokafka's Cython builder, 30 times kafka-python's."""
    expected = digest(encode_spans(given.table.slice(0, PEER_RECORDS)))
    others = [Against(name, partial(
        peers.build, builder, given.timestamps, given.values, MAX_BATCH_BYTES_DEFAULT), goal,
        work=PEER_RECORDS / 1e6, check=_same(expected))
        for name, (builder, goal) in _peers().items() if builder is not None]
    compare("encode columns, 100 B values", lambda: encoded(given.table), others,
            work=RECORDS / 1e6, unit="Mrecords", check=equals(encoded(given.table)))


def test_encode_columns_beside_the_floor(compare: Compare, floors: Floors, given: Given) -> None:
    """The share of the time that copying values and checksumming batches takes."""
    batch = MAX_BATCH_BYTES_DEFAULT // (VALUE_BYTES + 10)

    def check(told: int) -> None:
        assert told > RECORDS * VALUE_BYTES

    compare("encode columns, 100 B values", lambda: encoded(given.table),
            [Against("memcpy and CRC in C",
                     lambda: floors.copy_crc(given.content, VALUE_BYTES, batch))],
            work=RECORDS / 1e6, unit="Mrecords", check=check)


def test_build_by_record(compare: Compare, given: Given) -> None:
    """Builds record by record from Python, where the call is most of the cost."""
    expected = digest(encode_spans(given.table.slice(0, PEER_RECORDS)))
    others = [Against(name, partial(
        peers.build, builder, given.timestamps, given.values, MAX_BATCH_BYTES_DEFAULT),
        check=_same(expected))
        for name, (builder, _) in _peers().items() if builder is not None]
    compare("build record by record, 100 B values",
            lambda: by_record(given.timestamps, given.values), others,
            work=PEER_RECORDS / 1e6, unit="Mrecords", check=_same(expected))
