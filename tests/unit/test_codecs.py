"""The codecs: Kafka's framings, read and refused as Kafka does (tests/kafka checks that)."""

from __future__ import annotations

import gzip
import random
import re
import struct
import tracemalloc
import zlib
from inspect import signature
from itertools import product
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.config.log import COMPRESSION_TYPES, LogConfig
from seglog.errors import (
    ConfigError, CorruptDataError, DecompressionError, IllegalArgumentError, InvalidRecordError,
    UnsupportedCompressionTypeError,
)
from seglog.storage import codecs
from seglog.storage.codec_streams import open_stream
from tests.oracle import compression as oracle
from tests.support.effort import examples

ROOT = Path(__file__).resolve().parents[2]
CODECS = list(range(1, len(codecs.CODECS)))
SMALL = b"hello world " * 4
BIG = random.Random(7).randbytes(3000) * 30 + random.Random(8).randbytes(70_000)

WORDS = b" ".join(random.Random(9).choices([b"%x" % (n * n) for n in range(3000)], k=20_000))

by_name = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codecs.CODEC_NAMES[codec])


def read(codec: int, payload: bytes, magic: int = 2, **options: int) -> bytes:
    return bytes(codecs.decompress(codec, magic, payload, **options))


def xxh32_lz4_frame(flags: int, body: bytes, descriptor: int = 0x40, extra: bytes = b"") -> bytes:
    fields = bytes((flags, descriptor)) + extra
    return (b"\x04\x22\x4d\x18" + fields
            + bytes((oracle.xxh32(fields) >> 8 & 0xFF,)) + body)


def stored_block(data: bytes) -> bytes:
    return struct.pack("<I", len(data) | 1 << 31) + data


@by_name
@pytest.mark.parametrize("data", [b"", b"x", SMALL, BIG], ids=["empty", "one", "small", "big"])
def test_round_trip(codec: int, data: bytes) -> None:
    for magic in (0, 1, 2):
        if codec == codecs.ZSTD and magic < 2:
            continue
        payload = codecs.compress(codec, data, magic=magic)
        assert read(codec, payload, magic) == data
        assert oracle.decompress(codec, payload, magic=magic) == data
        theirs = oracle.compress(codec, data, magic=magic)
        assert read(codec, theirs, magic) == data


def test_the_tables_agree() -> None:
    """C, the settings and the streams have the codecs of CODECS."""
    names = [codec.name for codec in codecs.CODECS]
    ids = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}  # Kafka's CompressionType
    assert {name: codecs.codec_id(name) for name in names} == ids
    header = (ROOT / "csrc/include/seglog/format.h").read_text()
    found = re.findall(r"SLG_CODEC_([A-Z0-9]+) = (\d+)", header)
    assert {name.lower(): int(number) for name, number in found} == ids
    assert f"SLG_CODEC_MAX = SLG_CODEC_{names[-1].upper()}" in header
    assert "{" + ", ".join(f'"{name}"' for name in names) + "}" in (
        ROOT / "csrc/src/dump.c").read_text()
    assert {*COMPRESSION_TYPES} == {"uncompressed", "producer", *names[1:]}
    for codec in codecs.CODECS[1:]:
        name = f"compression_{codec.name}_level"
        assert hasattr(LogConfig(), name) is bool(codec.levels)
        if codec.levels:
            assert getattr(LogConfig(), name) in {-1, codec.level_default}
            for level in (codec.levels[0], codec.levels[-1]):
                LogConfig(**{name: level})
            with pytest.raises(ConfigError):
                LogConfig(**{name: codec.levels[-1] + 1})
        payload = codecs.compress(codecs.codec_id(codec.name), SMALL)
        assert open_stream(codecs.codec_id(codec.name), 2, payload).read(100) == SMALL


def test_written_framing_is_kafkas() -> None:
    eleven = bytes.fromhex("1400000001087465737400")
    snappy = "82534e4150505900" "00000001" "00000001" "0000000d" "0b28"
    assert codecs.compress(codecs.SNAPPY, eleven).hex() == snappy + eleven.hex()
    lz4 = codecs.compress(codecs.LZ4, eleven)
    assert lz4.hex() == "04224d18" "6040" "82" "0b000080" + eleven.hex() + "00000000"
    assert codecs.compress(codecs.LZ4, eleven, magic=0)[:7].hex() == "04224d1860401a"
    assert codecs.compress(codecs.GZIP, eleven)[:10].hex() == "1f8b08000000000000ff"
    # Frame header descriptor: no content size, no single segment, no checksum, no dictionary.
    assert codecs.compress(codecs.ZSTD, eleven)[:5].hex() == "28b52ffd00"


@pytest.mark.parametrize(("codec", "most"), [(codecs.SNAPPY, 32 << 10), (codecs.LZ4, 64 << 10)])
def test_written_blocks_are_as_large_as_kafkas(codec: int, most: int) -> None:
    for size in (1, most - 1, most, most + 1, 3 * most):
        payload = codecs.compress(codec, random.Random(size).randbytes(size))
        position, sizes = (16, []) if codec == codecs.SNAPPY else (7, [])
        while position < len(payload):
            head = payload[position:position + 4]
            if codec == codecs.SNAPPY:
                length = int.from_bytes(head, "big")
                block = payload[position + 4:position + 4 + length]
                sizes.append(cramjam.snappy.decompress_raw_len(block))
            else:
                length = int.from_bytes(head, "little") & 0x7FFFFFFF
                sizes += [length] if length else []  # bytes at random are stored
            position += 4 + length
        assert sizes == [most] * (size // most) + [size % most] * (size % most > 0)


def test_levels() -> None:
    for codec, levels in ((codecs.GZIP, (-1, 1, 9)), (codecs.LZ4, (1, 9, 17)),
                          (codecs.ZSTD, (-5, 1, 19))):
        for level in levels:
            assert read(codec, codecs.compress(codec, BIG, level)) == BIG
    for codec, level in ((codecs.GZIP, 0), (codecs.LZ4, 18), (codecs.ZSTD, 23), (codecs.SNAPPY, 1),
                         (codecs.SNAPPY, 0), (codecs.SNAPPY, -1), (5, None)):
        with pytest.raises(ValueError):
            codecs.compress(codec, BIG, level)
    for codec, default in ((codecs.GZIP, 6), (codecs.LZ4, 9), (codecs.ZSTD, 3)):
        others = {codecs.compress(codec, WORDS, level) for level in (default - 1, default + 1)}
        assert codecs.compress(codec, WORDS) == codecs.compress(codec, WORDS, default) not in others
    assert codecs.compress(codecs.GZIP, BIG, -1) == codecs.compress(codecs.GZIP, BIG)
    # The default is lz4's fast compressor. The others are those for high compression, from 2 on.
    assert codecs.compress(codecs.LZ4, BIG) == oracle.compress(codecs.LZ4, BIG)
    sizes = [len(codecs.compress(codecs.LZ4, WORDS, level)) for level in range(1, 9)]
    assert sizes[0] == sizes[1] and sizes[1:] == sorted(set(sizes), reverse=True)
    assert codecs.codec_id("zstd") == codecs.ZSTD
    for attributes, codec in ((0, 0), (4, 4), (0xF8, 0), (0xFFFC, 4)):
        assert codecs.known_codec(attributes) == codec
    for attributes in (5, 6, 7, 0xD):
        with pytest.raises(IllegalArgumentError, match=f"type id: {attributes & 7}"):
            codecs.known_codec(attributes)
    with pytest.raises(ValueError, match="Unknown compression name: brotli"):
        codecs.codec_id("brotli")


def test_codec_none_is_the_payload_itself() -> None:
    payload = b"abc"
    assert codecs.decompress(codecs.NONE, 2, payload).obj is payload


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"type id: {codec}") as caught:
        codecs.decompress(codec, 2, b"abc")
    assert (caught.value.code, caught.value.found, caught.value.expected) == (
        "batch_codec", codec, codecs.ZSTD)


def test_zstd_needs_magic_2() -> None:
    payload = codecs.compress(codecs.ZSTD, SMALL)
    for magic in (0, 1):
        with pytest.raises(InvalidRecordError, match="wrapper compressionType for legacy record"
                                                     ) as caught:
            codecs.decompress(codecs.ZSTD, magic, payload)
        assert (caught.value.code, caught.value.expected, caught.value.found) == (
            "legacy_codec", codecs.LZ4, codecs.ZSTD)
        with pytest.raises(IllegalArgumentError, match=f"id: 4 for magic {magic}"):
            codecs.compress(codecs.ZSTD, SMALL, magic=magic)


@by_name
def test_into_is_reused_or_replaced(codec: int) -> None:
    payload = codecs.compress(codec, BIG)
    roomy = bytearray(len(BIG) + 70_000)
    view = codecs.decompress(codec, 2, payload, roomy)
    assert view == BIG and view.obj is roomy
    view = codecs.decompress(codec, 2, payload, bytearray(10))
    assert view == BIG and isinstance(view.obj, bytearray)
    again = codecs.decompress(codec, 2, memoryview(payload), view.obj)
    assert again == BIG
    for size in (len(BIG), len(BIG) + 1):  # the cap may be as large as the buffer
        exact = bytearray(size)
        assert codecs.decompress(codec, 2, payload, exact, max_bytes=size).obj is exact
    assert codecs.decompress(codec, 2, payload, memoryview(roomy)) == BIG


@by_name
def test_the_cap_is_exact(codec: int) -> None:
    payload = codecs.compress(codec, BIG)
    assert read(codec, payload, max_bytes=len(BIG)) == BIG
    for size in (100, 70_000):  # blocks that could hold far more than they do
        assert read(codec, codecs.compress(codec, bytes(size)), max_bytes=size) == bytes(size)
    for cap in (len(BIG) - 1, 1000, 1):
        for into in (None, bytearray(100), bytearray(2 * len(BIG))):
            with pytest.raises(DecompressionError) as caught:
                codecs.decompress(codec, 2, payload, into, max_bytes=cap)
            assert caught.value.code == "codec_too_large" and caught.value.expected == cap


def bomb(codec: int, size: int) -> bytes:
    if codec == codecs.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
        return codecs.compress(codec, b"") + (struct.pack(">i", len(block)) + block) * (size >> 20)
    if codec == codecs.LZ4:
        block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
        body = (struct.pack("<I", len(block)) + block) * (size >> 22)
        return xxh32_lz4_frame(0x60, body + bytes(4), descriptor=0x70)
    return codecs.compress(codec, bytes(size))


@by_name
def test_a_bomb_allocates_no_more_than_the_cap(codec: int) -> None:
    payload = bomb(codec, 64 << 20)
    cap = 8 << 20
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError) as caught:
            codecs.decompress(codec, 2, payload, max_bytes=cap)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "codec_too_large"
    assert peak < 2 * cap + (1 << 20)


@pytest.mark.parametrize("payload", [
    b"\xff\xff\xff\xff\x0f" + bytes(20),
    codecs.compress(codecs.SNAPPY, b"") + b"\0\0\0\x06" + b"\xff\xff\xff\xff\x0f\0",
    b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 30,
], ids=["snappy preamble", "snappy chunk preamble", "gzip size"])
def test_an_announced_size_is_not_believed(payload: bytes) -> None:
    codec = codecs.GZIP if payload[0] == 0x1F else codecs.SNAPPY
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError) as caught:
            codecs.decompress(codec, 2, payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "codec_data" and peak < 1 << 20


@by_name
def test_every_truncation_is_refused(codec: int) -> None:
    payload = codecs.compress(codec, SMALL)
    for size in range(len(payload)):
        if (codec, size) in ((codecs.ZSTD, 0), (codecs.SNAPPY, 16)):
            assert read(codec, payload[:size]) == b""  # Kafka reads an end of stream there
        elif codec == codecs.SNAPPY and 16 < size < 20:
            assert read(codec, payload[:size]) == b""
        else:
            with pytest.raises(DecompressionError) as caught:
                read(codec, payload[:size])
            assert caught.value.code == "codec_data"


def test_gzip_members() -> None:
    member = gzip.compress(SMALL)
    assert read(codecs.GZIP, member + gzip.compress(BIG)) == SMALL + BIG
    assert read(codecs.GZIP, member + b"no member, so Java ends here") == SMALL
    assert read(codecs.GZIP, member + bytes(1000)) == SMALL
    assert read(codecs.GZIP, member[:3] + b"\xe0" + member[4:]) == SMALL  # reserved flags
    with pytest.raises(DecompressionError):
        read(codecs.GZIP, member + member[:-1])
    with pytest.raises(DecompressionError):
        read(codecs.GZIP, member[:-8] + struct.pack("<II", zlib.crc32(SMALL) ^ 1, len(SMALL)))
    for bad, words in ((member[:-1], "unexpected end of the stream"),
                       (member[:12], "unexpected end of the stream"),
                       (member[:-1] + b"x", "Corrupt GZIP trailer"), (b"any", "Not in GZIP format"),
                       (member[:10] + b"\7" * 9, "invalid block type")):
        with pytest.raises(DecompressionError, match=f"gzip payload of {len(bad)} bytes: {words}$"
                           ) as caught:
            read(codecs.GZIP, bad)
        assert caught.value.found == words
    named = b"\x1f\x8b\x08\x08" + bytes(6) + b"name\0" + member[10:]
    assert read(codecs.GZIP, named) == SMALL


def test_snappy_framing() -> None:
    block = bytes(cramjam.snappy.compress_raw(SMALL))
    chunk = struct.pack(">i", len(block)) + block
    header = codecs.compress(codecs.SNAPPY, b"")

    def versions(version: int, compatible: int) -> bytes:
        return header[:8] + struct.pack(">ii", version, compatible)

    # Without its first byte it would be another block.
    assert codecs.decompress(codecs.SNAPPY, 2, codecs.compress(codecs.SNAPPY, b"\0a:\1\0"),
                             bytearray(100)) == b"\0a:\1\0"
    assert read(codecs.SNAPPY, block) == SMALL
    assert read(codecs.SNAPPY, header + chunk + header + chunk) == SMALL * 2
    assert read(codecs.SNAPPY, versions(1, 9) + chunk) == SMALL
    assert read(codecs.SNAPPY, versions(0, 1) + chunk) == SMALL  # the first header's is not read
    assert read(codecs.SNAPPY, header + chunk + b"\0\0\0") == SMALL
    assert read(codecs.SNAPPY, header + chunk + header[:6] + bytes(10) + chunk) == SMALL * 2
    for bad, words in (
            (header + chunk + versions(0, 1), f"version 0 at byte {24 + len(chunk)}"),
            (header + chunk + header[:15], f"header cut at byte {16 + len(chunk)}"),
            (header + chunk + b"\0\0\0\x09any", f"chunk of 9 bytes at byte {20 + len(chunk)}, 3 "
                                                "are left")):
        with pytest.raises(DecompressionError, match=f"snappy payload of {len(bad)} bytes: {words}"
                           ) as caught:
            read(codecs.SNAPPY, bad)
        assert caught.value.found == str(caught.value).partition(": ")[2]
    with pytest.raises(DecompressionError, match="are left"):
        codecs.decompress(codecs.SNAPPY, 2, header + struct.pack(">i", len(block) + 40) + block,
                          bytearray(1000))
    for bad in (header + chunk + versions(0, 1) + chunk, header + chunk + header[:10], b"",
                header + b"\xff\xff\xff\xff" + block, header + struct.pack(">i", 1 << 30) + block,
                header + struct.pack(">i", len(block) + 1) + block,
                header + struct.pack(">i", len(block) - 1) + block, header + bytes(4) + chunk):
        with pytest.raises(DecompressionError) as caught:
            read(codecs.SNAPPY, bad)
        assert caught.value.code == "codec_data"


@pytest.mark.parametrize(("flags", "extra", "accepted"), [
    (0x60, b"", True), (0x64, b"", True), (0x68, bytes(8), True), (0x70, b"", True),
    (0x7C, bytes(8), True), (0x40, b"", False), (0x50, b"", False), (0x61, b"", False),
    (0x62, b"", False), (0x20, b"", False), (0xE0, b"", False),
])
def test_lz4_flags(flags: int, extra: bytes, accepted: bool) -> None:
    body = stored_block(SMALL)
    if flags & 0x10:
        body += struct.pack("<I", oracle.xxh32(SMALL))
    body += bytes(4) + (b"\1\2\3\4" if flags & 4 else b"")  # a content checksum that is wrong
    frame = xxh32_lz4_frame(flags, body, extra=extra)
    if accepted:
        assert read(codecs.LZ4, frame, 1) == SMALL
        for end in range(len(frame)):
            with pytest.raises(DecompressionError, match="Stream ended prematurely"):
                read(codecs.LZ4, frame[:end], 1)
    else:
        with pytest.raises(DecompressionError, match="FLG"):
            read(codecs.LZ4, frame, 1)


def test_the_checksum_of_a_short_lz4_header() -> None:
    for size in range(16):
        data = random.Random(size).randbytes(size)
        assert codecs.xxh32_short(data) == oracle.xxh32(data)


def test_an_lz4_block_that_saves_nothing_is_stored() -> None:
    data = bytes.fromhex("420c13f8f5d40f6cd1b9420c13f8fdc8c0388fe881c3")
    assert len(cramjam.lz4.compress_block(data, store_size=False)) == len(data)
    assert codecs.compress(codecs.LZ4, data)[7:] == stored_block(data) + bytes(4)


def test_lz4_frames() -> None:
    good = xxh32_lz4_frame(0x60, stored_block(SMALL) + bytes(4))
    assert read(codecs.LZ4, good + good) == SMALL and read(codecs.LZ4, good + b"junk") == SMALL
    for data, rest in product((b"", WORDS[:5000]), (b"", b"\0", bytes(4))):  # one block at most
        into = bytearray(1 << 16)
        found = codecs.decompress(codecs.LZ4, 2, codecs.compress(codecs.LZ4, data) + rest, into)
        assert found == data and found.obj is into
    for descriptor, size in ((0x40, 1 << 16), (0x50, 1 << 18), (0x60, 1 << 20), (0x70, 1 << 22)):
        data = random.Random(1).randbytes(size)
        assert read(codecs.LZ4, xxh32_lz4_frame(0x60, stored_block(data) + bytes(4),
                                                descriptor)) == data
        with pytest.raises(DecompressionError, match=f"Block size {size + 1} exceeded max: {size}"):
            read(codecs.LZ4, xxh32_lz4_frame(0x60, stored_block(data + b"x") + bytes(4),
                                             descriptor))
    for size, message in ((5, "Stream ended prematurely"), (6, "invalid magic bytes")):
        with pytest.raises(DecompressionError, match=message):  # Kafka asks for 6 bytes first
            read(codecs.LZ4, bytes(size))
    for descriptor in (0x30, 0xC0, 0x41, 0x48):
        with pytest.raises(DecompressionError, match="BD"):
            read(codecs.LZ4, xxh32_lz4_frame(0x60, stored_block(SMALL) + bytes(4), descriptor))
    checked = stored_block(SMALL) + struct.pack("<I", oracle.xxh32(SMALL) ^ 1) + bytes(4)
    with pytest.raises(DecompressionError):
        read(codecs.LZ4, xxh32_lz4_frame(0x70, checked))
    # More than a block of its frame may hold, by compression.
    for size, accepted in ((1 << 16, True), ((1 << 16) + 1, False)):
        block = bytes(cramjam.lz4.compress_block(bytes(size), store_size=False))
        frame = xxh32_lz4_frame(0x60, struct.pack("<I", len(block)) + block + bytes(4))
        if accepted:
            assert read(codecs.LZ4, frame) == bytes(size)
        for into in (None, bytearray(1 << 20)):
            if not accepted:
                with pytest.raises(DecompressionError):
                    codecs.decompress(codecs.LZ4, 2, frame, into)


def test_lz4_header_checksum_by_magic() -> None:
    old = codecs.compress(codecs.LZ4, SMALL, magic=0)
    assert read(codecs.LZ4, old, 0) == SMALL
    for magic in (1, 2):
        with pytest.raises(DecompressionError, match="Stream frame descriptor corrupted"):
            read(codecs.LZ4, old, magic)
    assert read(codecs.LZ4, codecs.compress(codecs.LZ4, SMALL, magic=2), 0) == SMALL


def test_zstd_frames() -> None:
    frame = codecs.compress(codecs.ZSTD, SMALL)
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 5) + b"abcde"
    assert read(codecs.ZSTD, frame + frame) == SMALL * 2
    assert read(codecs.ZSTD, skippable + frame + skippable + frame) == SMALL * 2
    assert read(codecs.ZSTD, bytes(cramjam.zstd.compress(SMALL, 3))) == SMALL  # with a content size
    for bad in (frame + b"junk", frame[:-1]):
        with pytest.raises(DecompressionError):
            read(codecs.ZSTD, bad)


def golden_payloads(partition: Path) -> list[tuple[int, int, bytes]]:
    """(codec, magic, payload) of every compressed batch of a partition directory."""
    found = []
    for path in sorted(partition.glob("*.log")):
        data, position = path.read_bytes(), 0
        while position + 17 < len(data):
            size = 12 + struct.unpack_from(">i", data, position + 8)[0]
            magic = data[position + 16]
            if magic == 2:
                attributes, start = data[position + 22], position + 61
            else:
                attributes, start = data[position + 17], position + (26 if magic else 18)
                start += 8 + max(0, struct.unpack_from(">i", data, start)[0])  # key, value length
            if attributes & 7:
                found.append((attributes & 7, magic, data[start:position + size]))
            position += size
    return found


@pytest.mark.parametrize(("folder", "codec", "magics"), [
    *((f"real/clean/plain-{codecs.CODEC_NAMES[codec]}-0", codec, {2}) for codec in CODECS),
    *((f"old/old-v{magic}-{codecs.CODEC_NAMES[codec]}-0", codec, {magic})
      for magic in (0, 1) for codec in CODECS[:3]),
])
def test_golden_payloads(golden: Path, folder: str, codec: int, magics: set[int]) -> None:
    payloads = golden_payloads(golden / folder)
    assert {(found, magic) for found, magic, _ in payloads} == {(codec, m) for m in magics}
    into = bytearray(1 << 16)
    for _, magic, payload in payloads:
        view = codecs.decompress(codec, magic, payload, into)
        assert len(view) > 0 and view == oracle.decompress(codec, payload, magic=magic)


hostile = settings(max_examples=examples(150))


def check_hostile(codec: int, magic: int, payload: bytes) -> None:
    """Bytes or one typed error, the same with and without a buffer, never more than the cap."""
    results = []
    for into in (None, bytearray(7), bytearray(1 << 17)):
        try:
            results.append(bytes(codecs.decompress(codec, magic, payload, into, max_bytes=1 << 20)))
            assert len(results[-1]) <= 1 << 20
        except CorruptDataError as error:
            results.append(error.code.encode())
    assert results[0] == results[1] == results[2]


@by_name
@hostile
@given(data=st.data())
def test_damaged_payloads(codec: int, data: st.DataObject) -> None:
    content = data.draw(st.binary(max_size=300)) * data.draw(st.sampled_from([1, 40, 700]))
    payload = bytearray(codecs.compress(codec, content))
    for _ in range(data.draw(st.integers(0, 4))):
        if payload:
            place = data.draw(st.integers(0, len(payload) - 1))
            payload[place] = data.draw(st.integers(0, 255))
    payload = payload[:data.draw(st.integers(0, len(payload)))] if data.draw(st.booleans()) \
        else payload + data.draw(st.binary(max_size=40))
    check_hostile(codec, data.draw(st.sampled_from([1, 2])) if codec != codecs.ZSTD else 2,
                  bytes(payload))


@by_name
@hostile
@given(payload=st.binary(max_size=200), whole_header=st.booleans())
def test_noise(codec: int, payload: bytes, whole_header: bool) -> None:
    headers = {codecs.GZIP: 10, codecs.SNAPPY: 16, codecs.LZ4: 7, codecs.ZSTD: 6}
    head = codecs.compress(codec, SMALL)[:headers[codec]] if whole_header else b""
    check_hostile(codec, 2, head + payload)


def test_a_payload_may_grow_to_512_mib_unless_told_otherwise() -> None:
    """docs/loading.md and docs/differences.md promise it; to grow one takes too long here."""
    assert signature(codecs.decompress).parameters["max_bytes"].default == 512 << 20
