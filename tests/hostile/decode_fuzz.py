"""Mutated batches under a CRC that holds, decoded by seglog and by the oracle.

    python -m tests.hostile.decode_fuzz SEED COUNT

Each round writes a file of a sound batch, a mutated one and a sound one. Both readers must give the
same rows, and stop at the same place when one of them stops. Every difference is a line on stdout.
"""

from __future__ import annotations

import faulthandler
import os
import random
import struct
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from seglog._native.records import RecordDecoder
from seglog.errors import SeglogError
from seglog.storage import codecs
from tests.oracle import batch as v2
from tests.oracle import compression, legacy, log
from tests.oracle.batch import Row
from tests.oracle.builder import Shape, build_log
from tests.oracle.wire import OracleError, varint
from tests.support import reading

ROUND_SECONDS = 120.0
#: Header fields of magic 2 that Kafka's reader trusts and that seglog may refuse.
STRICTER = {"batch_last_offset", "batch_offset_order", "batch_offset_range", "batch_attributes",
            "batch_record_count", "batch_magic"}


def _mutate(rng: random.Random, plain: bytes) -> bytes:
    """A few bytes of `plain` flipped, set, cut out, doubled or replaced by a hostile number."""
    data = bytearray(plain)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(data)) if data else 0
        kind = rng.randrange(7)
        if kind == 0 and data:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and data:
            data[at] = rng.choice([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF])
        elif kind == 2:
            del data[at:at + rng.choice([1, 2, 10])]
        elif kind == 3:
            data[at:at] = data[at:at + rng.choice([1, 3, 30])]
        elif kind == 4:
            number = rng.choice([-1, 0, 2**31 - 1, -2**31, len(data), len(data) * 2])
            data[at:at + rng.choice([0, 1, 2])] = varint(number)
        elif kind == 5:
            data[at:at] = b"\xff" * rng.choice([4, 5, 9, 10, 11])
        else:
            data[at:at + 4] = struct.pack(">i", rng.choice([-1, 0, 5, 2**31 - 1, -2**31]))
    return bytes(data)


def _mutated_v2(rng: random.Random, raw: bytes) -> bytes:
    fields = list(v2.HEADER.unpack_from(raw))
    codec, payload = fields[5] & 7, raw[v2.HEADER.size:]
    if rng.random() < .15:
        payload = _mutate(rng, payload)
    elif fields[12]:
        plain = _mutate(rng, compression.decompress(codec, payload))
        codec = rng.choice([0, 0, codec])
        payload = compression.compress(codec, plain)
    if rng.random() < .1:
        fields[12] = max(-1, fields[12] + rng.choice([-1, 1, 1000]))
    attributes = fields[5] & ~7 | codec
    return v2.seal(fields[0], fields[2], attributes, fields[6], fields[7], fields[8], fields[9],
                   fields[10], fields[11], fields[12], payload)


def _mutated_old(rng: random.Random, raw: bytes) -> bytes:
    message = legacy.decode(raw)
    if message.inner and message.value is not None and rng.random() < .8:
        plain = _mutate(rng, compression.decompress(message.codec, message.value,
                                                    magic=message.magic))
        message.value = compression.compress(message.codec, plain, magic=message.magic)
        return legacy.encode(message)
    body = raw[16:18] + _mutate(rng, raw[18:])
    return raw[:8] + struct.pack(">iI", len(body) + 4, zlib.crc32(body)) + body


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """An entry with wrong records, or a wrong header, under a valid CRC."""
    return (_mutated_v2 if raw[16] == 2 else _mutated_old)(rng, raw)


def seglog_rows(path: Path) -> tuple[list[Row], SeglogError | None]:
    rows: list[Row] = []
    fd = os.open(path, os.O_RDONLY)
    try:
        decoder = RecordDecoder(fd, 0, os.fstat(fd).st_size, columns=reading.ALL_COLUMNS,
                                include_control=True, decompress=codecs.decompress, file=path,
                                direct=codecs.DIRECT,
                                max_decompressed_bytes=codecs.MAX_BYTES_DEFAULT)
        reading.collect(decoder, rows)
    except SeglogError as error:
        return rows, error
    finally:
        os.close(fd)
    return rows, None


def compare(path: Path, data: bytes) -> str | None:
    """What differs between the two readings of one file."""
    path.write_bytes(data)
    expected: list[Row] = []
    partial: list[Row] | None = []
    refused, position = None, 0
    try:
        for entry in log.entries(data):
            position = entry.position
            expected += entry.rows()
    except OracleError as error:
        refused = error
        # Records before the bad one of a batch are as good as the batch before; an old wrapper's
        # messages have no offsets of their own, so that how many come is the reader's affair.
        partial = v2.rows(error.batch, position) if isinstance(error, v2.PartialBatch) else None
    rows, stopped = seglog_rows(path)
    if refused and not stopped:
        return f"the oracle refuses '{refused}', seglog reads {len(rows)} of {len(expected)} rows"
    if stopped and not refused and getattr(stopped, "code", None) not in STRICTER:
        return f"seglog refuses '{stopped}', the oracle reads it"
    more = rows[len(expected):]
    if stopped and not refused:
        same = rows == expected[:len(rows)]
    elif partial is None:
        same = rows[:len(expected)] == expected and all(r["position"] == position for r in more)
    else:
        same = rows[:len(expected)] == expected and more == partial[:len(more)]
    if same:
        return None
    every = expected + (partial or [])
    first = next((pair for pair in zip(rows, every, strict=False) if pair[0] != pair[1]), None)
    return f"rows differ: {len(rows)}, {len(expected)} ({stopped}; {refused}): {first}"


def mutations(seed: int, count: int, folder: Path) -> Iterator[tuple[int, bytes]]:
    """(magic, log file): a sound batch, a mutated one and a sound one, out of built logs."""
    rng, sources = random.Random(seed), []
    for number, magics in enumerate([(2,), (2,), (2,), (0,), (1,)]):
        path = folder / f"built-{seed}-{number}"
        build_log(path, seed + number,
                  Shape(batches=30, magics=magics, most_records=6, most_bytes=40))
        sources.append(list(log.read_entries(path)))
    for _ in range(count):
        found = rng.choice(sources)
        at = rng.randrange(1, len(found) - 1)
        yield found[at].magic, (found[at - 1].data + mutated(rng, found[at].data)
                                + found[at + 1].data)


def main(seed: int, count: int) -> int:
    differences = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (magic, data) in enumerate(mutations(seed, count, Path(folder))):
            faulthandler.dump_traceback_later(ROUND_SECONDS, exit=True)
            said = compare(Path(folder) / "mutated.log", data)
            if said:
                differences += 1
                print(f"seed {seed} round {number} magic {magic}: {said}\n    {data.hex()}",
                      flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{count} rounds, {differences} differences")
    return 1 if differences else 0


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
