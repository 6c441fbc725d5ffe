"""Decoding of compressed logs, next to the codec alone over the same payloads.

The codec's rate is cramjam's into a buffer of the right size, the minimum cost of any reader that
uses it: its stream decoders for zstd and gzip, its raw block decoders for lz4 and snappy (with its
slower lz4 frame decoder in a separate row). Batches are 16 KiB and 64 KiB before compression; a
producer with default settings fills about 16 KiB after compression.

A decode also produces records. So the last row runs the codec and then decodes the same number of
uncompressed records, which is the upper limit of a single thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa
import pytest

from bench.data import Log, write_log
from bench.harness import Against, Compare, equals, pick
from seglog.storage.partition_log import PartitionLog

RECORDS = pick(5_000, 300_000, 1_500_000)
CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
HEADER_BYTES, LENGTH_BEFORE_IT = 61, 12


def payloads(log: Log) -> Iterator[memoryview]:
    """The compressed bytes of every batch."""
    data, position = memoryview(log.path.read_bytes()), 0
    while position < len(data):
        size = int.from_bytes(data[position + 8:position + 12], "big") + LENGTH_BEFORE_IT
        yield data[position + HEADER_BYTES:position + size]
        position += size


def xerial_blocks(payload: memoryview) -> Iterator[memoryview]:
    """The raw snappy blocks of xerial's framing."""
    position = 16
    while position < len(payload):
        size = int.from_bytes(payload[position:position + 4], "big")
        yield payload[position + 4:position + 4 + size]
        position += 4 + size


def lz4_blocks(payload: memoryview) -> Iterator[memoryview]:
    """The compressed blocks of an lz4 frame as Kafka writes it, with a header of seven bytes."""
    position = 7
    while size := int.from_bytes(payload[position:position + 4], "little"):
        assert not size >> 31, "a block that was stored"
        yield payload[position + 4:position + 4 + size]
        position += 4 + size


def over(parts: list[memoryview], decode: Callable[[Any, Any], int], room: int
         ) -> Callable[[], int]:
    """Runs a codec over all parts; returns the number of decompressed bytes."""
    out = bytearray(room)

    def run() -> int:
        return sum([decode(part, out) for part in parts])

    return run


def codec_alone(name: str, log: Log, room: int) -> dict[str, Callable[[], int]]:
    """Runs of only the codec over the payloads of a log, the fastest first."""
    whole = list(payloads(log))
    if name == "snappy":
        blocks = [block for payload in whole for block in xerial_blocks(payload)]
        return {"raw blocks": over(blocks, cramjam.snappy.decompress_raw_into, room)}
    if name == "lz4":
        blocks = [block for payload in whole for block in lz4_blocks(payload)]
        return {"raw blocks": over(blocks, cramjam.lz4.decompress_block_into, room),
                "frames": over(whole, cramjam.lz4.decompress_into, room)}
    return {"streams": over(whole, getattr(cramjam, name).decompress_into, room)}


def decode(partition: PartitionLog, threads: int = 0) -> tuple[int, int]:
    """(rows, bytes of their values), every column an Arrow array."""
    rows = value_bytes = 0
    for columns in partition.to_arrow(threads=threads):
        batch = pa.record_batch(columns)
        rows += batch.num_rows
        ends = np.frombuffer(batch["value"].buffers()[1], np.int32)
        value_bytes += int(ends[batch.num_rows])
    return rows, value_bytes


@pytest.mark.parametrize("plain_bytes", [16384, 65536], ids=["16KiB", "64KiB"])
@pytest.mark.parametrize("name", CODECS)
def test_decode_compressed(compare: Compare, scratch: Path, name: str, plain_bytes: int) -> None:
    """Goal: 85% of the codec's own rate, with one thread and CRC checks."""
    log = write_log(scratch / f"{name}-{plain_bytes}-0", RECORDS, codec=CODECS[name],
                    plain_bytes=plain_bytes)
    alone = codec_alone(name, log, plain_bytes)
    plain = next(iter(alone.values()))()
    assert plain > log.value_bytes

    check, check_codec = equals((log.records, log.value_bytes)), equals(plain)
    uncompressed = write_log(scratch / f"plain-{name}-{plain_bytes}-0", RECORDS,
                             plain_bytes=plain_bytes)
    kind, fastest = next(iter(alone.items()))
    with (PartitionLog.open(log.path.parent) as partition,
          PartitionLog.open(uncompressed.path.parent) as plainly):

        def one_after_the_other() -> int:
            size = fastest()
            check(decode(plainly))
            return size

        compare(f"decode {name}, {plain_bytes >> 10} KiB batches", lambda: decode(partition),
                [Against(f"{name} {kind} alone (cramjam)", run, goal=0.85 if number == 0 else None,
                         check=check_codec) for number, (kind, run) in enumerate(alone.items())]
                + [Against(f"{name} {kind}, then a log that is not compressed",
                           one_after_the_other, check=check_codec)],
                work=plain / 1e9, unit="GB", check=check)
    log.path.unlink()
    uncompressed.path.unlink()


@pytest.mark.parametrize("name", CODECS)
def test_two_threads(compare: Compare, scratch: Path, name: str) -> None:
    """Goal: two threads 1.5 times one, however little time a batch takes."""
    log = write_log(scratch / f"threads-{name}-0", RECORDS, codec=CODECS[name])
    check = equals((log.records, log.value_bytes))
    with PartitionLog.open(log.path.parent) as partition:
        compare(f"to_arrow(threads=2), {name}", lambda: decode(partition, 2),
                [Against("to_arrow(threads=0)", lambda: decode(partition), goal=1.5, check=check)],
                work=log.records, unit="records", check=check)
    log.path.unlink()
