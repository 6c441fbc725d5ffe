"""Codecs called directly: what they read is what `decompress` reads, and so is what they refuse."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest

from seglog._native.records import RecordDecoder
from seglog.errors import SeglogError
from seglog.storage import codecs
from tests.oracle import batch as v2

CODECS = [codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD]
MAX_BYTES = 1 << 20
ROUNDS = 120

by_name = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codecs.CODEC_NAMES[codec])


def plain_batch(rng: random.Random, count: int, compressible: bool) -> bytes:
    """A batch of `count` records of about 100 bytes."""
    return v2.encode(v2.Batch(0, count - 1, [v2.Record(
        n, n, None, b"%05d " % rng.randrange(90) * 16 if compressible else rng.randbytes(96))
        for n in range(count)], base_timestamp=0, max_timestamp=count))


def packed(plain: bytes, codec: int, payload: bytes) -> bytes:
    """The batch with another payload; its CRC is not looked at here."""
    size = struct.pack(">i", 49 + len(payload))
    return plain[:8] + size + plain[12:21] + struct.pack(">h", codec) + plain[23:61] + payload


def outcome(path: Path, **options: Any) -> tuple[list[dict[str, list[Any]]], object]:
    """The rows before the error, and all that the error says."""
    rows = []
    with open(path, "rb") as file:
        decoder = RecordDecoder(file.fileno(), 0, path.stat().st_size, check_crcs=False, file=path,
                                max_decompressed_bytes=MAX_BYTES, **options)
        try:
            while (columns := decoder.next()) is not None:
                rows.append(columns.to_pylists())
        except SeglogError as error:
            return rows, (type(error), str(error), error.__dict__)
    return rows, (decoder.status_name, decoder.position)


def mutated(rng: random.Random, payload: bytes) -> bytes:
    bad = bytearray(payload)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.choice([rng.randrange(len(bad)), rng.randrange(min(24, len(bad)))])
        kind = rng.randrange(5)
        if kind == 0:
            bad[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            bad[at] = rng.choice([0, 0x7f, 0x80, 0xff])
        elif kind == 2:
            del bad[len(bad) - rng.randrange(min(9, len(bad))):]
        elif kind == 3:
            bad += rng.choice([b"\0", bytes(4), bytes(payload), rng.randbytes(5)])
        else:
            bad[at:at + 4] = struct.pack(rng.choice("<>") + "I", rng.choice(
                [0, 1, 1 << 31, 65536, 65537, len(bad), 1 << 31 | 4, (1 << 32) - 1]))
        bad = bad or bytearray(b"\0")
    return bytes(bad)


@by_name
@pytest.mark.parametrize("count, compressible", [
    (3, True), (3, False), (700, True), (700, False), (2000, True)])
def test_direct_calls_change_nothing(tmp_path: Path, codec: int, count: int,
                                     compressible: bool) -> None:
    rng, path = random.Random(codec * 100 + count), tmp_path / f"{0:020d}.log"
    plain = plain_batch(rng, count, compressible)
    payload = codecs.compress(codec, plain[61:])
    expected = None
    for number in range(ROUNDS if count == 3 else ROUNDS // 6):
        path.write_bytes(packed(plain, codec, mutated(rng, payload) if number else payload))
        slow = outcome(path, decompress=codecs.decompress)
        expected = expected or slow
        assert outcome(path, decompress=codecs.decompress, direct=codecs.DIRECT) == slow
    assert expected is not None and expected[1] == ("end", path_size(plain, codec, payload))
    assert sum(len(rows["offset"]) for rows in expected[0]) == count


def path_size(plain: bytes, codec: int, payload: bytes) -> int:
    return len(packed(plain, codec, payload))


@by_name
def test_sound_payloads_need_nothing_else(tmp_path: Path, codec: int) -> None:
    """The fast path makes one call for each block, and does not call `decompress`."""
    rng, path = random.Random(5), tmp_path / f"{0:020d}.log"
    seen = []

    def decompress(*args: Any, **options: Any) -> memoryview:
        seen.append(args)
        return codecs.decompress(*args, **options)

    for count in (3, 700):
        plain = plain_batch(rng, count, True)
        path.write_bytes(packed(plain, codec, codecs.compress(codec, plain[61:])))
        rows, told = outcome(path, decompress=decompress, direct=codecs.DIRECT)
        assert told == ("end", path.stat().st_size) and not seen
        assert sum(len(lists["offset"]) for lists in rows) == count


@pytest.mark.parametrize("codec, levels", [(codecs.SNAPPY, [None]), (codecs.LZ4, range(1, 18))],
                         ids=["snappy", "lz4"])
def test_sound_payloads_of_all_kinds_are_decoded_in_c(tmp_path: Path, codec: int,
                                                      levels: Iterable[int | None]) -> None:
    """Repetition from each small offset, and what fills blocks to their last byte."""
    path = tmp_path / f"{0:020d}.log"
    for number, value in enumerate(repetitive(random.Random(codec))):
        plain = v2.encode(v2.Batch(0, 0, [v2.Record(0, 0, b"key", value)]))
        for level in list(levels)[number % 3::3] or [None]:
            path.write_bytes(packed(plain, codec, codecs.compress(codec, plain[61:], level)))
            rows, told = outcome(path, decompress=lambda *_: pytest.fail("not in C"),
                                 direct=codecs.DIRECT)
            assert told == ("end", path.stat().st_size)
            assert [row for lists in rows for row in lists["value"]] == [value]


@pytest.mark.parametrize("flags", [0x60, 0x64, 0x68, 0x6c])
@pytest.mark.parametrize("blocks", [4, 5, 6, 7])
def test_lz4_frames_of_other_clients_are_decoded_in_c(tmp_path: Path, flags: int, blocks: int
                                                      ) -> None:
    """Larger blocks, the size or a checksum of the content: not from Java and librdkafka."""
    path, block_bytes = tmp_path / f"{0:020d}.log", 1 << 2 * blocks + 8
    plain = plain_batch(random.Random(flags), 1100, True)
    content = plain[61:]
    descriptor = bytes((flags, blocks << 4)) + struct.pack("<q", len(content)) * bool(flags & 8)
    payload = (b"\x04\x22\x4d\x18" + descriptor
               + bytes((codecs.xxh32_short(descriptor) >> 8 & 0xff,)))
    for at in range(0, len(content), block_bytes):
        block = bytes(cramjam.lz4.compress_block(content[at:at + block_bytes], store_size=False))
        payload += struct.pack("<I", len(block)) + block
    payload += bytes(4) + b"sum?" * bool(flags & 4)  # nobody checks it
    path.write_bytes(packed(plain, codecs.LZ4, payload))
    slow = outcome(path, decompress=codecs.decompress)
    assert slow[1] == ("end", path.stat().st_size)
    assert outcome(path, decompress=lambda *_: pytest.fail("not in C"),
                   direct=codecs.DIRECT) == slow


def repetitive(rng: random.Random) -> Iterator[bytes]:
    for period in range(1, 25):
        yield rng.randbytes(period) * (400 // period)
        word = rng.randbytes(period)
        yield b"".join(rng.randbytes(rng.randrange(1, 40)) + word * rng.randrange(40)
                       for _ in range(60))
    for size in (1, 65535, 65536 - 9, 65536 - 8, 65536, 131072, 150_000):
        yield bytes(size)
        yield rng.randbytes(size)
        yield (rng.randbytes(1000) * (size // 1000 + 1))[:size]


@by_name
def test_the_cap_holds_for_direct_calls(tmp_path: Path, codec: int) -> None:
    path = tmp_path / f"{0:020d}.log"
    plain = plain_batch(random.Random(6), 3, True)
    bomb = codecs.compress(codec, plain[61:] + bytes(2 * MAX_BYTES))
    path.write_bytes(packed(plain, codec, bomb))
    slow = outcome(path, decompress=codecs.decompress)
    assert outcome(path, decompress=codecs.decompress, direct=codecs.DIRECT) == slow
    assert "codec_too_large" in str(slow[1])
    with open(path, "rb") as file, pytest.raises(ValueError, match="no limit"):
        RecordDecoder(file.fileno(), 0, 1, decompress=codecs.decompress, direct=codecs.DIRECT)


@by_name
def test_the_cap_holds_for_the_buffer(tmp_path: Path, codec: int) -> None:
    """Whatever the size of a payload, whose bytes are no evidence of what they become."""
    path = tmp_path / f"{0:020d}.log"
    plain = plain_batch(random.Random(7), 3, True)
    payload = random.Random(8).randbytes(8 * MAX_BYTES)
    path.write_bytes(packed(plain, codec, payload))
    tracemalloc.start()
    try:
        rows, told = outcome(path, decompress=codecs.decompress, direct=codecs.DIRECT)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == [] and "codec_data" in str(told)
    assert peak < 2 * len(payload)  # one copy of the payload, for gzip


@by_name
def test_a_batch_near_the_cap_leaves_the_next_ones_to_direct_calls(tmp_path: Path, codec: int
                                                                   ) -> None:
    path, seen = tmp_path / f"{0:020d}.log", []

    def decompress(*args: Any, **options: Any) -> memoryview:
        seen.append(args)
        return codecs.decompress(*args, **options)

    large = v2.encode(v2.Batch(0, 0, [v2.Record(0, 0, None, bytes(MAX_BYTES * 3 // 4))]))
    path.write_bytes(packed(large, codec, codecs.compress(codec, large[61:])) + b"".join(
        packed(small, codec, codecs.compress(codec, small[61:])) for small in (
            v2.encode(v2.Batch(offset, 0, [v2.Record(offset, 0, None, b"small")]))
            for offset in range(1, 5))))
    rows, told = outcome(path, decompress=decompress, direct=codecs.DIRECT)
    assert [len(value) for lists in rows for value in lists["value"]] == [
        MAX_BYTES * 3 // 4, 5, 5, 5, 5]
    assert told == ("end", path.stat().st_size) and len(seen) == 1
