"""Batches behind a CRC that holds, read by Kafka's FileRecords, by seglog and by the oracle.

Where Kafka reads, seglog reads the same; where Kafka refuses, seglog refuses. What seglog refuses
alone is in `decode_fuzz.STRICTER`: header fields that contradict each other.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import cramjam
import pytest

from seglog.log.batch_builder import RecordBatchBuilder
from seglog.storage import codecs
from tests.hostile import decode_fuzz
from tests.kafka import harness
from tests.oracle.batch import Row
from tests.support import reading
from tests.support.absurd import seal
from tests.support.effort import how_many, quick_first

COLUMNS = ("offset", "timestamp", "key", "value", "headers", "sequence")
SEEDS, COUNT = range(3), how_many("SEGLOG_MUTATIONS", 1500, 500)


def _rows(rows: list[Row]) -> list[Row]:
    return reading.project(rows, COLUMNS)


@pytest.mark.parametrize("seed", quick_first(SEEDS, 1))
def test_mutated_batches(kafka: harness.Client, tmp_path: Path, seed: int) -> None:
    given = list(decode_fuzz.mutations(seed, COUNT, tmp_path))
    wrong, refused = [], 0
    said = kafka.records(data for _, data in given)
    for number, ((magic, data), (theirs, error)) in enumerate(zip(given, said, strict=True)):
        path = tmp_path / "mutated.log"
        path.write_bytes(data)
        rows, stopped = decode_fuzz.seglog_rows(path)
        ours = _rows(rows)
        refused += error is not None
        note = f"seed {seed} round {number} magic {magic}: kafka {len(theirs)} rows, {error}; " \
               f"seglog {len(ours)} rows, {stopped!r}"
        if error and "OutOfMemoryError" in error:
            # Kafka allocates what a length says before it reads. Only in an old wrapper is it no
            # error when the bytes are not there: a message that is cut ends the wrapper quietly.
            if (magic == 2 and not stopped) or ours[:len(theirs)] != _rows(theirs):
                wrong.append(f"{note}: read on where Kafka dies")
            continue
        if error and not stopped:
            wrong.append(f"{note}: only Kafka refuses")
        elif stopped and not error and getattr(stopped, "code", "") not in decode_fuzz.STRICTER:
            wrong.append(f"{note}: only seglog refuses")
        shared = min(len(ours), len(theirs))
        if ours[:shared] != _rows(theirs)[:shared]:
            wrong.append(f"{note}: rows differ")
        elif not stopped and not error and len(ours) != len(theirs):
            wrong.append(f"{note}: not the same number of rows")
    assert COUNT // 10 < refused < COUNT, f"{refused} of {COUNT} refused: the mutations are no test"
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])


def snappy_streams(sizes: list[int]) -> Iterator[tuple[int, bytes]]:
    """A batch with records of these sizes as two streams of snappy, of which the second has a wrong
    header, and where that is: at each record, and where Kafka's buffer ends."""
    builder, rng = RecordBatchBuilder(codec=0), random.Random(1)
    for size in sizes:
        builder.append(5, None, rng.randbytes(size))
    plain = bytes(builder.build())
    body, at = plain[61:], 0
    places = {0, len(body)}
    for one in range(2048, len(body), 2048):
        places |= {one - 1, one, one + 1}
    for _ in sizes:
        size = shift = 0
        while True:
            byte, at = body[at], at + 1
            size, shift = size | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        at += size >> 1
        places |= {at - 1, at, at + 1}
    for place in sorted(one for one in places if one <= len(body)):
        payload = codecs.compress(codecs.SNAPPY, b"") + _chunk(body[:place]) \
            + b"\x82SNAPPX\0\0\0\0\1\0\0\0\1" + _chunk(body[place:])
        yield place, seal(plain[:22] + b"\2" + plain[23:61] + payload)


def _chunk(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block if data else b""


def test_a_wrong_header_after_the_first_of_snappy(kafka: harness.Client, tmp_path: Path) -> None:
    given = [one for sizes in ([100] * 60, [100, 5000, 100, 2500, 3000, 50, 2048, 4000, 10, 10],
                               [2037, 2037, 2037]) for one in snappy_streams(sizes)]
    refused = []
    said = kafka.records(data for _, data in given)
    for (place, data), (theirs, error) in zip(given, said, strict=True):
        path = tmp_path / "joined.log"
        path.write_bytes(data)
        rows, stopped = decode_fuzz.seglog_rows(path)
        assert (error is None) == (stopped is None), (place, error, stopped)
        assert _rows(rows)[:len(theirs)] == _rows(theirs) and (error or len(rows) == len(theirs))
        refused += [place] * (error is not None)
    assert len(refused) > 3 and len(set(refused) - {0}) > 1
