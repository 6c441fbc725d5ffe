"""Payloads put together from parts and then damaged: `decompress`, the streams that serve Kafka's
verdict while it loads, and the slow oracle agree on what is in them and on which are refused."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import cramjam
import pytest

from seglog.errors import DecompressionError
from seglog.storage import codecs
from seglog.storage.codec_streams import StreamError, open_stream
from tests.oracle import compression as oracle
from tests.oracle.wire import OracleError
from tests.support.effort import how_many
from tests.unit.test_codec_streams import (
    SNAPPY, gzip_member, lz4_block, lz4_frame, skippable, snappy_chunk, zstd_block,
    zstd_header,
)

CASES = how_many("SEGLOG_CODEC_CASES", 5000, 250)


def content(draw: random.Random) -> bytes:
    size = draw.choice((0, 1, 3, 20, 300, 5000))
    return draw.randbytes(size) if draw.random() < 0.5 else draw.randbytes(1) * size


def gzip_payload(draw: random.Random) -> bytes:
    parts = [gzip_member(content(draw), draw.randrange(32)) for _ in range(draw.randint(1, 3))]
    if draw.random() < 0.5:
        parts.append((parts[0] + bytes(30))[:draw.randint(1, 30)])
    return b"".join(parts)


def snappy_payload(draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return bytes(cramjam.snappy.compress_raw(content(draw)))
    others = (lambda: SNAPPY, lambda: SNAPPY[:8] + struct.pack(
        ">ii", draw.choice((-1 << 31, -1, 0, 1, 2, 1 << 24)), draw.randint(0, 1)),
              lambda: SNAPPY[:draw.randint(1, 15)],
              lambda: snappy_chunk(b"abc") + SNAPPY[:5] + bytes(11))
    return SNAPPY + b"".join(
        snappy_chunk(content(draw)) if draw.random() < 0.8 else draw.choice(others)()
        for _ in range(draw.randint(0, 4)))


def lz4_payload(draw: random.Random) -> bytes:
    flags = 0x60 | draw.choice((0, 4, 8, 16, 28)) ^ (
        1 << draw.randrange(8) if draw.random() < 0.1 else 0)
    descriptor = draw.choice((0x40, 0x50, 0x60, 0x70)) ^ (
        1 << draw.randrange(8) if draw.random() < 0.1 else 0)
    blocks = [lz4_block(data, stored=draw.random() < 0.5, checked=bool(flags & 0x10))
              for data in (content(draw) for _ in range(draw.randint(0, 3))) if data]
    rest = bytes(4) + (b"any " if flags & 4 else b"") + draw.choice((b"", b"", bytes(4), b"junk"))
    return lz4_frame(b"".join(blocks) + rest, flags, descriptor)


def zstd_payload(draw: random.Random) -> bytes:
    parts = []
    for _ in range(draw.randint(0, 3)):
        data = content(draw)
        parts.append(draw.choice((
            bytes(cramjam.zstd.compress(data, 3)), codecs.compress(codecs.ZSTD, data),
            skippable(8 + len(data)), zstd_header(len(data), window=8 * draw.randint(0, 15))
            + zstd_block(0, data, len(data), is_last=True))))
    return b"".join(parts)


def damaged(payload: bytes, draw: random.Random) -> bytes:
    """Unchanged, truncated, or with another byte, bit or length somewhere, more often early."""
    if not payload or draw.random() < 0.4:
        return payload
    at = min(draw.randrange(len(payload)), draw.randrange(len(payload)))
    if draw.random() < 0.3:
        at = min(at, draw.randrange(20), len(payload) - 1)
    if draw.random() < 0.3:
        return payload[:at]
    byte = draw.choice((draw.randrange(256), payload[at] ^ 1 << draw.randrange(8), 0))
    return payload[:at] + bytes([byte]) + payload[at + 1:]


PAYLOADS: dict[int, Callable[[random.Random], bytes]] = {
    codecs.GZIP: gzip_payload, codecs.SNAPPY: snappy_payload, codecs.LZ4: lz4_payload,
    codecs.ZSTD: zstd_payload}


def decompressed(codec: int, magic: int, payload: bytes, into: bytearray | None = None,
                 **options: int) -> bytes | str:
    """The bytes, or the code of the error."""
    try:
        return bytes(codecs.decompress(codec, magic, payload, into, **options))
    except DecompressionError as error:
        return error.code


BUFFERS = {codecs.GZIP: 16 << 10, codecs.SNAPPY: 2 << 10, codecs.LZ4: 2 << 10,
           codecs.ZSTD: 16 << 10}


def streamed(codec: int, payload: bytes, magic: int, draw: random.Random
             ) -> tuple[bytes, str | None]:
    """What a stream serves. An empty lz4 block and a wrong snappy header end one read, and the
    next continues; whether Kafka makes it depends on its buffer."""
    got, empty_reads = bytearray(), 0
    try:
        stream = open_stream(codec, magic, payload)
        while empty_reads < 10:
            count = draw.randint(1, 6000) if draw.random() < 0.2 else max(1, stream.buffered)
            piece = stream.read(count)
            assert len(piece) <= count and stream.buffered < BUFFERS[codec]
            got += piece
            empty_reads = 0 if piece else empty_reads + 1
    except StreamError as error:
        return bytes(got), str(error)
    return bytes(got), None


@pytest.mark.parametrize("codec", PAYLOADS, ids=codecs.CODEC_NAMES.__getitem__)
def test_three_readers_agree_on_a_payload(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted, wrong_headers, ended, read = 0, [], 0, codecs._snappy_as_read
    monkeypatch.setattr(codecs, "_snappy_as_read",
                        lambda *given: (wrong_headers.append(1), read(*given))[1])
    for seed in range(CASES):
        wrong_headers.clear()
        draw = random.Random(seed)
        payload = damaged(PAYLOADS[codec](draw), draw)
        magic = 2 if codec == codecs.ZSTD else draw.choice((0, 1, 2))
        found = decompressed(codec, magic, payload)
        for into in (bytearray(0), bytearray(7), bytearray(1 << 16), bytearray(1 << 20)):
            assert decompressed(codec, magic, payload, into) == found, (seed, len(into))
        served, error = streamed(codec, payload, magic, draw)
        try:
            slow: bytes | None = oracle.decompress(codec, payload, magic=magic)
        except OracleError:
            slow = None
        if isinstance(found, str):
            assert found == "codec_data" and slow is None, (seed, found)
            # After a whole frame Java takes the end of the input for the end of the stream.
            assert error is not None or codec == codecs.ZSTD, seed
            continue
        accepted += 1
        if wrong_headers and (slow, served, error) != (found, found, None):
            # A read of a record began at the wrong header (tests/kafka/test_records_in_kafka.py).
            assert served.startswith(found) and (slow is None or slow.startswith(found)), seed
            assert error is not None or slow == served, seed
            ended += 1
            continue
        assert (slow, served, error) == (found, found, None), seed
        for into in (None, bytearray(7), bytearray(len(found)), bytearray(1 << 20)):
            assert decompressed(codec, magic, payload, into, max_bytes=len(found)) == found
            if found:
                assert decompressed(codec, magic, payload, into,
                                    max_bytes=len(found) - 1) == "codec_too_large"
    assert CASES / 4 < accepted < CASES * 0.95 and ended < CASES / 20
