"""Payloads that are read piece by piece: what arrives before Java's exception, and which it is."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import cramjam
import pytest

from seglog.errors import DecompressionError
from seglog.storage import codecs
from seglog.storage.codec_streams import StreamError, open_stream
from tests.oracle import compression as oracle

TEXT = bytes(range(256)) * 12
KAFKA = "org.apache.kafka.common.KafkaException: "
GZIP_END = "java.io.EOFException: Unexpected end of ZLIB input stream"
ENDED = "java.io.IOException: Stream ended prematurely"
UNDERFLOW = "java.nio.BufferUnderflowException"
TRUNCATED = "com.github.luben.zstd.ZstdIOException: Truncated source"


def drained(codec: int, payload: bytes, magic: int = 2, count: int | None = None
            ) -> tuple[bytes, str | None]:
    """What a reader of so many bytes at once (None: of what is there) gets, and the exception after
    that."""
    got = bytearray()
    try:
        stream = open_stream(codec, magic, payload)
        while piece := stream.read(count or max(1, stream.buffered)):
            got += piece
    except StreamError as error:
        return bytes(got), str(error)
    return bytes(got), None


def test_a_buffer_is_refilled_when_it_is_empty() -> None:
    stream = open_stream(codecs.GZIP, 2, gzip_member(TEXT))
    assert stream.buffered == 0 and stream.read(1) == TEXT[:1]
    assert stream.buffered == len(TEXT) - 1  # Kafka's buffer for gzip has 16 KiB
    assert stream.read(len(TEXT)) == TEXT[1:] and stream.buffered == 0
    assert stream.read(2**31 - 3) == b""
    with pytest.raises(StreamError, match="Requested array size exceeds VM limit") as error:
        stream.read(2**31 - 2)
    assert error.value.kafka_error == "OutOfMemoryError" and not error.value.is_io
    assert StreamError("java.io.EOFException", None).is_io


def test_a_stream_ends_with_an_error_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecs, "MAX_BYTES_DEFAULT", 100)
    stream = open_stream(codecs.SNAPPY, 2, codecs.compress(codecs.SNAPPY, TEXT))
    assert stream.read(60) + stream.read(40) == TEXT[:100]
    with pytest.raises(StreamError, match="the payload grows past 100 bytes"):
        stream.read(1)


@pytest.mark.parametrize(("codec", "size"), [
    (codecs.GZIP, 16 << 10), (codecs.SNAPPY, 2 << 10), (codecs.LZ4, 2 << 10),
    (codecs.ZSTD, 16 << 10)])
def test_a_buffer_has_the_size_of_kafkas(codec: int, size: int) -> None:
    """What is read before an exception depends on it. Larger reads pass it by."""
    data = random.Random(codec).randbytes(1000) * (5 * size // 1000)
    stream = open_stream(codec, 2, codecs.compress(codec, data))
    at = 0
    for count, buffered in ((1, size - 1), (size - 1, 0), (size, 0), (size - 1, 1), (2, size - 1)):
        assert (stream.read(count), stream.buffered) == (data[at:at + count], buffered)
        at += count


# ---- gzip ----------------------------------------------------------------------------------------

def gzip_member(data: bytes, flags: int = 0, extra: bytes = b"any") -> bytes:
    """A member with the optional fields of `flags` (RFC 1952)."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    head += struct.pack("<H", len(extra)) + extra if flags & 4 else b""
    head += (b"name\0" if flags & 8 else b"") + (b"\0" if flags & 16 else b"")
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF) if flags & 2 else b""
    deflate = zlib.compressobj(wbits=-15)
    return head + deflate.compress(data) + deflate.flush() + struct.pack(
        "<II", zlib.crc32(data), len(data))


EMPTY_MEMBER = gzip_member(b"")


@pytest.mark.parametrize("flags", range(32))
def test_a_gzip_header_may_have_more_fields(flags: int) -> None:
    member = gzip_member(TEXT, flags)
    assert drained(codecs.GZIP, member) == (TEXT, None)
    assert drained(codecs.GZIP, member + member) == (2 * TEXT, None)
    header = len(member) - len(gzip_member(TEXT)) + 10
    for end in range(header):
        assert drained(codecs.GZIP, member[:end]) == (b"", KAFKA + "java.io.EOFException")
    assert drained(codecs.GZIP, member[:header]) == (b"", GZIP_END)
    if flags & 2:
        wrong = bytearray(member)
        wrong[header - 1] ^= 1
        assert drained(codecs.GZIP, bytes(wrong)) == (
            b"", KAFKA + "java.util.zip.ZipException: Corrupt GZIP header")


def test_a_gzip_trailer_is_checked() -> None:
    member = gzip_member(TEXT)
    for at in range(1, 9):
        assert drained(codecs.GZIP, member[:-at]) == (TEXT, "java.io.EOFException")
        wrong = bytearray(member)
        wrong[-at] ^= 1
        assert drained(codecs.GZIP, bytes(wrong)) == (
            TEXT, "java.util.zip.ZipException: Corrupt GZIP trailer")
    assert drained(codecs.GZIP, member[:-9])[1] == GZIP_END
    for head, message in ((b"\x1f\x8c\x08", "Not in GZIP format"),
                          (b"\x1f\x8b\x07", "Unsupported compression method")):
        assert drained(codecs.GZIP, head + member[3:]) == (
            b"", KAFKA + "java.util.zip.ZipException: " + message)


def test_gzip_copies_from_up_to_32_kib_back() -> None:
    data = random.Random(1).randbytes(32_000)
    payload = codecs.compress(codecs.GZIP, data + data)
    assert len(payload) < len(data) * 1.1 and drained(codecs.GZIP, payload) == (2 * data, None)


def test_damage_inside_a_gzip_member_has_zlibs_words() -> None:
    member = gzip_member(TEXT)
    assert drained(codecs.GZIP, member[:10] + b"\x07") == (
        b"", "java.util.zip.ZipException: invalid block type")


def test_java_ignores_what_is_too_short_for_another_gzip_member() -> None:
    """GZIPInputStream.readTrailer: more than 18 bytes after the trailer are another member."""
    member = gzip_member(TEXT)
    assert drained(codecs.GZIP, member + member[:18]) == (TEXT, None)
    assert drained(codecs.GZIP, member + member[:19])[1] == GZIP_END
    assert drained(codecs.GZIP, member + bytes(19)) == (TEXT, None)
    for flags in (4, 8, 16, 31):  # a header without an end is none
        header = gzip_member(b"", flags, b"x" * 20)[:-10]
        assert drained(codecs.GZIP, member + header[:-1]) == (TEXT, None)
        assert drained(codecs.GZIP, member + header + b"\7" + bytes(9))[1] == (
            "java.util.zip.ZipException: invalid block type")


@pytest.mark.parametrize(("size", "between", "more", "is_end"), [
    (8166, b"", 18, True), (8166, b"", 19, False), (8167, b"", 18, False), (8165, b"", 18, True),
    (8165, b"", 19, False), (8184, b"", 9, True), (8184, b"", 10, False), (8192, b"", 9, True),
    (8192, b"", 10, False), (16358, b"", 18, True), (16358, b"", 19, False),
    (16359, b"", 18, False),
    # The second member begins in the same buffer, or with the next one.
    (8146, EMPTY_MEMBER, 18, True), (8146, EMPTY_MEMBER, 19, False),
    (8147, EMPTY_MEMBER, 18, False), (8174, EMPTY_MEMBER, 18, True),
    (8175, EMPTY_MEMBER, 18, True), (8184, EMPTY_MEMBER, 19, False)])
def test_java_looks_for_a_shorter_member_if_its_buffer_ends(
        size: int, between: bytes, more: int, is_end: bool) -> None:
    """`size` bytes of deflated data, and `more` bytes of another member. Java reads 8 KiB at once,
    the first after the header."""
    blocks = [5000] * (size // 5005)
    blocks[-1] += size % 5005
    body = b"".join(bytes([number == len(blocks)]) + struct.pack("<HH", block, block ^ 0xFFFF)
                    + bytes(block) for number, block in enumerate(blocks, 1))
    data = bytes(sum(blocks))
    member = EMPTY_MEMBER[:10] + body + struct.pack("<II", zlib.crc32(data), len(data))
    assert len(body) == size and len(EMPTY_MEMBER) == 20
    got, message = drained(codecs.GZIP, member + between + gzip_member(TEXT)[:more])
    assert (got[:len(data)] == data, message) == (True, None if is_end else GZIP_END)


# ---- snappy --------------------------------------------------------------------------------------

SNAPPY = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def snappy_chunk(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return struct.pack(">i", len(block)) + block


@pytest.mark.parametrize("count", [1, 1000, 2048, 10_000])
def test_snappy_chunks_and_streams_follow_each_other(count: int) -> None:
    chunk = snappy_chunk(TEXT)
    for payload, copies in (
            (SNAPPY, 0), (SNAPPY + chunk, 1), (SNAPPY + chunk + chunk, 2),
            (SNAPPY + snappy_chunk(b"") + chunk, 1), (SNAPPY + chunk + SNAPPY + chunk, 2),
            (SNAPPY + chunk + b"\0\0\0", 1),  # no whole length
            # The version counts only in a header that follows.
            (SNAPPY[:8] + bytes(8) + chunk, 1), (bytes(cramjam.snappy.compress_raw(TEXT)), 1)):
        assert drained(codecs.SNAPPY, payload, count=count) == (copies * TEXT, None)


@pytest.mark.parametrize(("rest", "message"), [
    (b"\xff\xff\xff\xff", "org.xerial.snappy.SnappyError: [INVALID_CHUNK_SIZE] chunkSize is too "
     "big or negative : -1"),
    (bytes(4), "java.io.IOException: PARSING_ERROR(2)"),
    (b"\0\0\0\2\0", "java.io.IOException: failed to read chunk"),
    (struct.pack(">i", 512 << 20), "java.io.IOException: failed to read chunk"),
    (struct.pack(">i", (512 << 20) + 1), "org.xerial.snappy.SnappyError: [FAILED_TO_UNCOMPRESS] "
     "Received chunkSize 536,870,913 is greater than max configured chunk size 536,870,912"),
    (SNAPPY[:15], "org.xerial.snappy.SnappyIOException: [FAILED_TO_UNCOMPRESS] Insufficient header "
     "size in a concatenated block"),
    (SNAPPY[:8] + bytes(8), "org.xerial.snappy.SnappyIOException: [INCOMPATIBLE_VERSION] "
     "Compressed with an incompatible codec version 0. At least version 1 is required"),
    # A varint that never ends, lengths of 2^31 and 2^31 - 1 bytes, and fewer bytes than the length.
    (b"\0\0\0\1\xff", "java.io.IOException: PARSING_ERROR(2)"),
    (b"\0\0\0\5\x80\x80\x80\x80\x08", "java.lang.NegativeArraySizeException: -2147483648"),
    (b"\0\0\0\5\xff\xff\xff\xff\x07", "java.io.IOException: FAILED_TO_UNCOMPRESS(5)"),
    (b"\0\0\0\1\x05", "java.io.IOException: FAILED_TO_UNCOMPRESS(5)"),
])
def test_what_ends_a_snappy_stream(rest: bytes, message: str) -> None:
    begun = SNAPPY + snappy_chunk(TEXT[:2048])
    assert drained(codecs.SNAPPY, begun + rest) == (TEXT[:2048], message)


def test_a_buffer_takes_a_part_of_the_last_snappy_chunk() -> None:
    for size in (2046, 2047, 2048):
        stream = open_stream(codecs.SNAPPY, 2, SNAPPY + snappy_chunk(TEXT[:size])
                             + snappy_chunk(TEXT[size:]))
        assert stream.read(1) == TEXT[:1] and stream.buffered == 2047
        assert stream.read(2047) == TEXT[1:2048] and not stream.buffered
        assert stream.read(5000) == TEXT[2048:]


def test_a_wrong_magic_is_an_end_of_snappy_chunks_and_not_the_last() -> None:
    """SnappyInputStream.hasNextChunk: after it, chunks follow again."""
    chunk = snappy_chunk(TEXT)
    stream = open_stream(codecs.SNAPPY, 2, SNAPPY + chunk + b"\x82SNAPPX\0" + SNAPPY[8:] + chunk)
    for expected in (TEXT, b"", TEXT, b"", b""):
        assert stream.read(len(expected) or 1) == expected


@pytest.mark.parametrize("version", [-1 << 31, -1, 0, 1, 2, 1 << 24, (1 << 31) - 1])
def test_the_version_of_a_following_snappy_header_is_at_least_1(version: int) -> None:
    payload = SNAPPY + snappy_chunk(b"ab") + SNAPPY[:8] + struct.pack(">ii", version, 1)
    got, message = drained(codecs.SNAPPY, payload + snappy_chunk(b"cd"))
    assert (got, message is None) == (b"abcd", True) if version > 0 else (
        f"incompatible codec version {version}. At least" in str(message))
    try:
        whole = codecs.decompress(codecs.SNAPPY, 2, payload + snappy_chunk(b"cd"))
    except DecompressionError:
        assert version < 1
    else:
        assert version > 0 and whole == b"abcd"


def test_an_empty_snappy_payload_is_refused() -> None:
    assert drained(codecs.SNAPPY, b"") == (
        b"", KAFKA + "org.xerial.snappy.SnappyIOException: [EMPTY_INPUT] Cannot decompress empty "
        "stream")


# ---- lz4 -----------------------------------------------------------------------------------------

def lz4_frame(body: bytes, flags: int = 0x60, descriptor: int = 0x40) -> bytes:
    fields = bytes((flags, descriptor)) + (bytes(8) if flags & 8 else b"")
    return (b"\x04\x22\x4d\x18" + fields + bytes((oracle.xxh32(fields) >> 8 & 0xFF,)) + body)


def lz4_block(data: bytes, *, stored: bool, checked: bool = False) -> bytes:
    block = data if stored else bytes(cramjam.lz4.compress_block(data, store_size=False))
    return struct.pack("<I", len(block) | (1 << 31 if stored else 0)) + block + (
        struct.pack("<I", oracle.xxh32(block)) if checked else b"")


@pytest.mark.parametrize("flags", [0x60, 0x64, 0x68, 0x6C, 0x70, 0x7C])
@pytest.mark.parametrize("stored", [False, True])
def test_lz4_blocks(flags: int, stored: bool) -> None:
    block = lz4_block(TEXT, stored=stored, checked=bool(flags & 0x10))
    end = bytes(4) + (b"any " if flags & 4 else b"")  # Kafka does not check the content's checksum
    whole = lz4_frame(block + block + end, flags)
    for magic in (0, 1, 2):
        assert drained(codecs.LZ4, whole, magic) == (2 * TEXT, None)
        assert drained(codecs.LZ4, whole + b"any", magic) == (2 * TEXT, None)
    header = len(whole) - len(block + block + end)
    bounds = {header: 0, header + len(block): 1, header + 2 * len(block): 2}
    for at, copies in bounds.items():
        for more in range(5 if copies < 2 else 4):
            assert drained(codecs.LZ4, whole[:at + more]) == (copies * TEXT, ENDED)
    for cut in range(1, 5):
        if flags & 4:
            assert drained(codecs.LZ4, whole[:-cut]) == (2 * TEXT, UNDERFLOW)
        if flags & 0x10:
            assert drained(codecs.LZ4, whole[:header + len(block) - cut]) == (b"", UNDERFLOW)
    if flags & 0x10:
        wrong = bytearray(whole)
        wrong[header + len(block) - 1] ^= 1
        assert drained(codecs.LZ4, bytes(wrong)) == (
            b"", "java.io.IOException: Block checksum mismatch")


def test_lz4_blocks_have_a_limit() -> None:
    for descriptor, most in ((0x40, 1 << 16), (0x50, 1 << 18)):
        for size, message in ((most, None), (
                most + 1, f"java.io.IOException: Block size {most + 1} exceeded max: {most}")):
            frame = lz4_frame(lz4_block(bytes(size), stored=True) + bytes(4), 0x60, descriptor)
            assert drained(codecs.LZ4, frame) == (bytes(size if message is None else 0), message)
        for size in (most, most + 1):  # what a block becomes
            got, message = drained(codecs.LZ4, lz4_frame(
                lz4_block(bytes(size), stored=False) + bytes(4), 0x60, descriptor))
            assert (got, message) == (bytes(most), None) if size == most else (
                not got and "net.jpountz.lz4.LZ4Exception" in str(message))


@pytest.mark.parametrize(("flags", "descriptor", "message"), [
    (0x61, 0x40, "Reserved bits must be 0"), (0x62, 0x40, "Reserved bits must be 0"),
    (0x40, 0x40, "Dependent block stream is unsupported"),
    (0xA0, 0x40, "Version 2 is unsupported"), (0x20, 0x40, "Version 0 is unsupported"),
    (0x60, 0x41, "Reserved2 field must be 0"), (0x60, 0x48, "Reserved2 field must be 0"),
    (0x60, 0x30, "Block size value must be between 4 and 7"),
    (0x60, 0xC0, "Reserved3 field must be 0")])
def test_lz4_headers_that_kafka_refuses(flags: int, descriptor: int, message: str) -> None:
    assert drained(codecs.LZ4, lz4_frame(bytes(4), flags, descriptor)) == (
        b"", f"{KAFKA}java.lang.RuntimeException: {message}")


def test_lz4_headers_that_are_cut() -> None:
    for flags, whole in ((0x60, 6), (0x68, 14)):
        frame = lz4_frame(bytes(4), flags)
        for end in range(whole):
            assert drained(codecs.LZ4, frame[:end]) == (b"", KAFKA + ENDED)
        assert drained(codecs.LZ4, frame[:whole]) == (b"", KAFKA + UNDERFLOW)
        # Writers of magic 0 got the header's checksum wrong, so Kafka passes over it.
        assert drained(codecs.LZ4, frame[:whole], magic=0) == (
            b"", f"{KAFKA}java.lang.IllegalArgumentException: newPosition > limit: "
                 f"({whole + 1} > {whole})")
        wrong = frame[:whole] + bytes([frame[whole] ^ 1]) + frame[whole + 1:]
        assert drained(codecs.LZ4, wrong, magic=0) == (b"", None)
        assert drained(codecs.LZ4, wrong) == (
            b"", KAFKA + "java.io.IOException: Stream frame descriptor corrupted")
    assert drained(codecs.LZ4, b"\x04\x22\x4d\x19" + frame[4:]) == (
        b"", KAFKA + "java.io.IOException: Stream unsupported (invalid magic bytes)")


# ---- zstd ----------------------------------------------------------------------------------------

ZSTD = b"\x28\xb5\x2f\xfd"


def zstd_block(kind: int, data: bytes, size: int, *, is_last: bool = False) -> bytes:
    return (size << 3 | kind << 1 | is_last).to_bytes(3, "little") + data


def zstd_header(size: int, *, whole: bool = False, size_code: int = 0, dictionary_code: int = 0,
                window: int = 0x68, dictionary: int = 0, reserved: bool = False) -> bytes:
    """A frame header (RFC 8878) for `size` bytes; `whole` is the flag of a single segment."""
    flags = size_code << 6 | whole << 5 | reserved << 3 | dictionary_code
    size_bytes = int(whole) if not size_code else 1 << size_code
    return (ZSTD + bytes([flags]) + (b"" if whole else bytes([window]))
            + dictionary.to_bytes((0, 1, 2, 4)[dictionary_code], "little")
            + (size - 256 * (size_code == 1)).to_bytes(8, "little")[:size_bytes])


@pytest.mark.parametrize("dictionary_code", range(4))
@pytest.mark.parametrize("size_code", range(4))
@pytest.mark.parametrize("whole", [False, True])
def test_zstd_frames_and_their_parts(whole: bool, size_code: int, dictionary_code: int) -> None:
    first, second = TEXT[:100], TEXT[100:230] if not size_code else TEXT[100:400]
    content = first + second + b"z" * 20
    header = zstd_header(len(content), whole=whole, size_code=size_code,
                         dictionary_code=dictionary_code)
    frame = (header + zstd_block(0, first, 100) + zstd_block(0, second, len(second))
             + zstd_block(1, b"z", 20, is_last=True))
    assert drained(codecs.ZSTD, frame) == (content, None)
    assert drained(codecs.ZSTD, frame + frame) == (2 * content, None)
    begun = len(header) + 3
    for end in range(1, len(frame)):
        there = (0 if end < begun else end - begun if end < begun + 100 else
                 100 if end < begun + 103 else min(end - begun - 3, 100 + len(second)))
        assert drained(codecs.ZSTD, frame[:end]) == (content[:there], TRUNCATED)


@pytest.mark.parametrize("options", [
    {"window": 0x89}, {"reserved": True}, {"dictionary_code": 1, "dictionary": 1},
    {"dictionary_code": 2, "dictionary": 256}, {"dictionary_code": 3, "dictionary": 1 << 24}])
def test_zstd_refuses_a_header_before_it_misses_the_rest(options: dict[str, Any]) -> None:
    """A window of more than 128 MiB, a reserved bit, a dictionary."""
    rest = zstd_block(0, TEXT[:100], 100, is_last=True)
    for end in (-1, None):
        got, message = drained(codecs.ZSTD, zstd_header(100, **options) + rest[:end])
        assert got == b"" and message is not None and "ZstdIOException" in message
        assert message != TRUNCATED
    header = zstd_header(100, **options)
    assert drained(codecs.ZSTD, header)[1] not in (None, TRUNCATED)
    for end in range(1, len(header)):
        assert drained(codecs.ZSTD, header[:end]) == (b"", TRUNCATED)
    assert drained(codecs.ZSTD, zstd_header(100, window=0x88) + rest) == (TEXT[:100], None)
    assert drained(codecs.ZSTD, zstd_header(100, window=0x88) + rest[:-1]) == (TEXT[:99], TRUNCATED)


@pytest.mark.parametrize("block", [
    zstd_block(3, TEXT[:100], 100), zstd_block(0, TEXT[:100], (128 << 10) + 1),
    zstd_block(3, b"", 100), zstd_block(0, b"", (128 << 10) + 1),
    zstd_block(1, b"", (128 << 10) + 1), zstd_block(2, b"", (128 << 10) + 1)])
def test_zstd_refuses_blocks(block: bytes) -> None:
    """Of a reserved kind, or larger than 128 KiB."""
    got, message = drained(codecs.ZSTD, zstd_header(100) + block)
    assert got == b"" and message is not None and message != TRUNCATED
    for cut in (1, 2):
        assert drained(codecs.ZSTD, zstd_header(100) + block[:cut]) == (b"", TRUNCATED)
    assert drained(codecs.ZSTD, zstd_header(100) + zstd_block(0, TEXT[:100], 128 << 10)) == (
        TEXT[:100], TRUNCATED)


@pytest.mark.parametrize("window", [0, 0x38])
def test_zstd_blocks_are_no_larger_than_their_window(window: int) -> None:
    """1 KiB for the descriptor 0. A window of 128 KiB, as the largest one, bounds nothing more."""
    most = 1024 if not window else 128 << 10
    for kind in (0, 1):
        data = bytes(most + 1) if kind == 0 else b"\0"
        for size, is_refused in ((most, False), (most + 1, True)):
            block = zstd_block(kind, data[:size], size, is_last=True)
            for end in (-1, None):
                got, message = drained(codecs.ZSTD, zstd_header(0, window=window) + block[:end])
                assert (message not in (None, TRUNCATED)) is is_refused, (size, message)
                assert is_refused or got == bytes(size - (1 if end else 0) if not kind else
                                                  0 if end else size)


def test_a_zstd_frame_is_served_up_to_the_block_that_is_cut() -> None:
    packed = bytes(cramjam.zstd.compress(b"abcdefgh" * 50, 3))
    whole_size = 1 << (packed[4] >> 6) if packed[4] >> 6 else 1  # a single segment: no window
    compressed = packed[5 + whole_size:]
    size = int.from_bytes(compressed[:3], "little")
    assert packed[4] & 0x27 == 0x20 and size & 7 == 5 and len(compressed) >= 3 + (size >> 3)
    middle = (size & ~1).to_bytes(3, "little") + compressed[3:3 + (size >> 3)]
    blocks = [(zstd_block(1, b"y", 30), b"y" * 30), (middle, b"abcdefgh" * 50),
              (zstd_block(1, b"z", 40), b"z" * 40), (zstd_block(0, TEXT[:50], 50), TEXT[:50]),
              (zstd_block(1, b"w", 20, is_last=True), b"w" * 20)]
    frame, content = zstd_header(0), b""
    for block, data in blocks:
        for end in range(len(block)):
            stored = data[:end - 3] if end > 3 and block[0] & 6 == 0 else b""
            assert drained(codecs.ZSTD, frame + block[:end]) == (content + stored, TRUNCATED)
        frame, content = frame + block, content + data
    assert drained(codecs.ZSTD, frame) == (content, None)


def test_a_zstd_checksum_is_part_of_its_frame() -> None:
    header = bytearray(zstd_header(0))
    header[4] |= 4
    frame = bytes(header) + zstd_block(0, b"", 0, is_last=True) + bytes.fromhex("99e9d851")
    last = zstd_header(100) + zstd_block(0, TEXT[:100], 100, is_last=True)
    assert drained(codecs.ZSTD, frame + last) == (TEXT[:100], None)  # XXH64 of nothing
    for end in range(1, 5):
        assert drained(codecs.ZSTD, frame[:-end]) == (b"", TRUNCATED)
    assert drained(codecs.ZSTD, frame[:-1] + b"x" + last)[1] not in (None, TRUNCATED)


@pytest.mark.parametrize("first", range(0x4F, 0x61))
def test_a_zstd_frame_has_one_of_17_magics(first: int) -> None:
    data = TEXT[:100]
    last = zstd_header(100) + zstd_block(0, data, 100, is_last=True)
    head = bytes([first]) + b"\x2a\x4d\x18" + struct.pack("<I", 3) + b"any"
    got, message = drained(codecs.ZSTD, head + last)
    assert (got, message) == (data, None) if 0x50 <= first < 0x60 else message not in (
        None, TRUNCATED)
    for at in range(1, 4):
        wrong = head[:at] + b"x" + head[at + 1:]
        for end in (at + 1, None):
            assert drained(codecs.ZSTD, wrong[:end])[1] not in (None, TRUNCATED)


def skippable(size: int) -> bytes:
    """A frame without content of `size` bytes in all."""
    return b"\x5a\x2a\x4d\x18" + struct.pack("<I", size - 8) + bytes(size - 8)


def test_zstd_frames_without_content() -> None:
    frame = zstd_header(100) + zstd_block(0, TEXT[:100], 100, is_last=True)
    assert drained(codecs.ZSTD, skippable(8) + frame + skippable(20)) == (TEXT[:100], None)
    for end in range(1, 20):
        assert drained(codecs.ZSTD, skippable(20)[:end]) == (b"", TRUNCATED)
    for size in (1 << 8, 1 << 16, 1 << 24, 1 << 31):  # more than there is
        assert drained(codecs.ZSTD, skippable(8)[:4] + struct.pack("<I", size) + frame) == (
            b"", TRUNCATED)


@pytest.mark.parametrize(("start", "size", "is_truncated"), [
    (130_000, 131_075, False), (130_000, 131_076, True), (131_075, 131_100, True),
    (131_076, 131_100, False)])
def test_java_takes_the_end_of_the_input_for_the_end_of_the_stream(
        start: int, size: int, is_truncated: bool) -> None:
    """If a frame ended in the last 131,075 bytes that it read (ZstdInputStreamNoFinalizer)."""
    frame = zstd_header(0) + zstd_block(0, bytes(2000), 2000, is_last=True)
    payload = (skippable(start) + frame)[:size]
    assert drained(codecs.ZSTD, payload) == (
        bytes(size - start - 9), TRUNCATED if is_truncated else None)
