"""The five codecs in Kafka's framing (Kafka: Compression), written and read part by part."""

from __future__ import annotations

import gzip
import struct
import zlib

import cramjam

from tests.oracle.wire import OracleError, Reader, xxh32

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL = b"\x82SNAPPY\x00"
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_SNAPPY_BLOCK = 32 * 1024
_LZ4_BLOCK = 64 * 1024


def compress(codec: int, data: bytes, *, magic: int = 2, raw_snappy: bool = False) -> bytes:
    """`data` as Kafka's writer frames it; `raw_snappy` as librdkafka does, one bare block."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        return bytes(cramjam.snappy.compress_raw(data)) if raw_snappy else _snappy(data)
    if codec == LZ4:
        return _lz4(data, magic)
    if codec == ZSTD and magic == 2:
        # A streaming encoder: no content size in the frame header, as the broker writes it.
        encoder = cramjam.zstd.Compressor()
        encoder.compress(data)
        return bytes(encoder.finish())
    raise OracleError(f"codec {codec} in magic {magic}")


def _snappy(data: bytes) -> bytes:
    out = _XERIAL + (1).to_bytes(4, "big") * 2
    for start in range(0, len(data), _SNAPPY_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[start:start + _SNAPPY_BLOCK]))
        out += len(block).to_bytes(4, "big") + block
    return out


def lz4_header(magic: int) -> bytes:
    """The frame header; magic 0 hashes the magic number too, and is wrong for ever."""
    flags = b"\x60\x40"
    hashed = _LZ4_MAGIC + flags if magic == 0 else flags
    return _LZ4_MAGIC + flags + bytes([xxh32(hashed) >> 8 & 0xFF])


def _lz4(data: bytes, magic: int) -> bytes:
    out = lz4_header(magic)
    for start in range(0, len(data), _LZ4_BLOCK):
        plain = data[start:start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += len(block).to_bytes(4, "little") + block
        else:
            out += (len(plain) | 1 << 31).to_bytes(4, "little") + plain
    return out + bytes(4)


def decompress(codec: int, data: bytes, *, magic: int = 2) -> bytes:
    """The one stream that `data` holds; OracleError when its codec refuses."""
    try:
        if codec == NONE:
            return data
        if codec == GZIP:
            return _gunzip(data)
        if codec == SNAPPY:
            return _unsnappy(data)
        if codec == LZ4:
            return _unlz4(data, magic)
        if codec == ZSTD and magic == 2:
            return bytes(cramjam.zstd.decompress(data)) if data else b""
    except (cramjam.DecompressionError, zlib.error) as error:
        raise OracleError(f"{CODEC_NAMES[codec]}: {error}") from error
    raise OracleError(f"codec {codec} in magic {magic}")


def _gunzip(data: bytes) -> bytes:
    """All members; GZIPInputStream ignores what follows the last one and has no whole header."""
    out, start = b"", _gzip_header(data)
    while True:
        member = zlib.decompressobj(-15)
        content = member.decompress(data[start:])
        if not member.eof:
            raise OracleError("gzip: the member has no end")
        trailer = Reader(member.unused_data)
        if trailer.take(8) != struct.pack("<II", zlib.crc32(content), len(content)):
            raise OracleError("gzip: trailer")
        out, data = out + content, trailer.take(trailer.remaining)
        if len(data) <= 18:
            return out
        try:
            start = _gzip_header(data)
        except OracleError:
            return out


def _gzip_header(data: bytes) -> int:
    """Its size. Java ignores the reserved flags, which zlib refuses."""
    reader = Reader(data)
    fixed = reader.take(10)
    if fixed[:3] != b"\x1f\x8b\x08":
        raise OracleError("gzip: no member")
    if fixed[3] & 4:
        reader.take(int.from_bytes(reader.take(2), "little"))
    for flag in (8, 16):
        while fixed[3] & flag and reader.take(1) != b"\0":
            pass
    expected = zlib.crc32(data[:reader.position]) & 0xFFFF
    if fixed[3] & 2 and int.from_bytes(reader.take(2), "little") != expected:
        raise OracleError("gzip: header checksum")
    return reader.position


def _unsnappy(data: bytes) -> bytes:
    if not data:
        raise OracleError("empty snappy payload")
    if len(data) < 16 or data[:8] != _XERIAL:
        return bytes(cramjam.snappy.decompress_raw(data))
    reader, out = Reader(data, 16), b""
    # Fewer than four bytes at the end are neither a chunk nor an error, and the version in the
    # first header is not checked: snappy-java reads neither.
    while reader.remaining >= 4:
        if data[reader.position:reader.position + 4] == _XERIAL[:4]:
            header = reader.take(16)
            # A wrong magic ends one read of snappy-java, and the next goes on.
            if header[:8] == _XERIAL and int.from_bytes(header[8:12], "big", signed=True) < 1:
                raise OracleError("snappy stream of a version below 1")
            continue
        out += bytes(cramjam.snappy.decompress_raw(reader.take(reader.number(4))))
    return out


def _unlz4(data: bytes, magic: int) -> bytes:
    reader, out = Reader(data), b""
    if reader.take(4) != _LZ4_MAGIC:
        raise OracleError("lz4 frame without its magic")
    descriptor = reader.take(2)
    flags, block_code = descriptor[0], descriptor[1] >> 4
    if flags >> 6 != 1 or not flags & 0x20 or flags & 0x03 or descriptor[1] & 0x8F:
        raise OracleError(f"lz4 frame flags {descriptor.hex()}")
    if block_code < 4:
        raise OracleError(f"lz4 block size code {block_code}")
    if flags & 0x08:
        descriptor += reader.take(8)
    stored = reader.take(1)[0]
    if magic > 0 and stored != xxh32(descriptor) >> 8 & 0xFF:
        raise OracleError("lz4 header checksum")
    most = 1 << (2 * block_code + 8)
    while (size := int.from_bytes(reader.take(4), "little")) & 0x7FFFFFFF:
        block = reader.take(size & 0x7FFFFFFF)
        if len(block) > most:
            raise OracleError(f"lz4 block of {len(block)} bytes, at most {most}")
        if flags & 0x10 and reader.take(4) != xxh32(block).to_bytes(4, "little"):
            raise OracleError("lz4 block checksum")
        if size >> 31 == 0:
            block = _unlz4_block(block)
        if len(block) > most:
            raise OracleError(f"lz4 block of {len(block)} bytes, at most {most}")
        out += block
    if flags & 0x04:
        reader.take(4)  # Kafka reads the content's checksum and does not check it
    return out


def _unlz4_block(data: bytes) -> bytes:
    """One LZ4 block: literals, then a repeated copy from `distance` bytes back."""
    reader, out = Reader(data), bytearray()

    def length(nibble: int) -> int:
        if nibble == 15:
            while (more := reader.take(1)[0]) == 255:
                nibble += 255
            nibble += more
        return nibble

    while True:
        token = reader.take(1)[0]
        out += reader.take(length(token >> 4))
        if not reader.remaining:
            return bytes(out)
        distance = int.from_bytes(reader.take(2), "little")
        size = length(token & 15) + 4
        if distance > len(out):
            raise OracleError(f"lz4 match {distance} bytes back of {len(out)}")
        # No distance at all is not allowed by the format, and is zeros in liblz4.
        pattern, distance = (bytes(out[-distance:]), distance) if distance else (b"\0", 1)
        out += (pattern * (size // distance + 1))[:size]
