"""Payloads that would cost much if each piece cost as much as the whole."""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable

import cramjam
import pytest

from seglog.storage import codecs
from seglog.storage.codec_streams import open_stream

LARGE = bytes(32 << 20)


def lz4_frame(flags: int, blocks: bytes) -> bytes:
    """A frame whose blocks have up to 4 MiB."""
    fields = bytes((flags, 0x70))
    return (b"\x04\x22\x4d\x18" + fields + bytes((codecs.xxh32_short(fields) >> 8 & 0xFF,)) + blocks
            + bytes(4))


def large_block_of_snappy() -> tuple[int, bytes, bytes]:
    return codecs.SNAPPY, bytes(cramjam.snappy.compress_raw(LARGE)), LARGE


def large_blocks_of_lz4() -> tuple[int, bytes, bytes]:
    block = bytes(cramjam.lz4.compress_block(LARGE[:4 << 20], store_size=False))
    return codecs.LZ4, lz4_frame(0x60, (struct.pack("<I", len(block)) + block) * 8), LARGE


def tiny_blocks_of_lz4() -> tuple[int, bytes, bytes]:
    block = struct.pack("<IcI", 1 | 1 << 31, b"x", codecs.xxh32_short(b"x"))
    return codecs.LZ4, lz4_frame(0x70, block * 10_000), b"x" * 10_000


def large_frame_of_zstd() -> tuple[int, bytes, bytes]:
    return codecs.ZSTD, codecs.compress(codecs.ZSTD, LARGE), LARGE


def members_of_gzip_with_names() -> tuple[int, bytes, bytes]:
    def member(content: bytes) -> bytes:
        return (b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + zlib.compress(content, wbits=-15)
                + struct.pack("<II", zlib.crc32(content), len(content)))

    return codecs.GZIP, member(b"") * 80_000 + member(b"end"), b"end"


@pytest.mark.parametrize("payload_of", [
    large_block_of_snappy, large_blocks_of_lz4, tiny_blocks_of_lz4, large_frame_of_zstd,
    members_of_gzip_with_names], ids=lambda one: one.__name__)
def test_a_payload_costs_what_its_bytes_cost(
        payload_of: Callable[[], tuple[int, bytes, bytes]]) -> None:
    codec, payload, content = payload_of()
    started = time.process_time()
    stream, found = open_stream(codec, 2, payload), bytearray()
    while piece := stream.read(max(1, stream.buffered)):
        found += piece
    assert found == content
    assert bytes(codecs.decompress(codec, 2, payload)) == content
    assert time.process_time() - started < 2.5
