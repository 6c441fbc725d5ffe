"""The compressed payloads of record batches: gzip, snappy, lz4 and zstd as Kafka frames them.

Accepts exactly what Kafka's readers accept (`org.apache.kafka.common.compress`): snappy-java's
stream framing, lz4 frames with independent blocks, several gzip members or zstd frames in a row.
cramjam releases the GIL, so calls of several threads run in parallel. This module has no state.

lz4 and snappy framings are parsed here, and their blocks are decoded by cramjam's raw block
decoders. That is 4 to 6 times faster than cramjam's lz4 frame decoder (16 KiB: 1.7 us against 11.3
us). It also follows Kafka's rules, which ignore a content checksum and stop after the first frame.
Readers of records decompress sound payloads of the two in C (framing.h), and come here with others.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

import cramjam

from seglog._native.batch import ATTRIBUTE_CODEC
from seglog._native.snappy import compress_block
from seglog.errors import (
    DecompressionError, IllegalArgumentError, InvalidRecordError,
    UnsupportedCompressionTypeError,
)
from seglog.storage.gzip_stream import GzipStream, StreamError

__all__ = [
    "CODECS", "CODEC_NAMES", "DIRECT", "GZIP", "LZ4", "LZ4_RATIO_MAX", "MAX_BYTES_DEFAULT", "NONE",
    "SNAPPY", "ZSTD", "Buffer", "Codec", "check_lz4_block", "codec_id", "compress", "decompress",
    "known_codec", "level_of", "xxh32_short",
]

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MAX_BYTES_DEFAULT: Final = 512 << 20

Buffer = bytes | bytearray | memoryview

_BUFFER_BYTES_MIN = 64 << 10
_I32 = struct.Struct(">i")
_U32_LE = struct.Struct("<I")

_SNAPPY_MAGIC = b"\x82SNAPPY\0"
_SNAPPY_HEADER = _SNAPPY_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_MAGIC_START = int.from_bytes(_SNAPPY_MAGIC[:4], "big", signed=True)
_SNAPPY_BLOCK_BYTES = 32 << 10
_SNAPPY_CHUNK_BYTES_MAX = 512 << 20

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
# Writers of magic 0 computed the header checksum over the magic too; readers must not check it.
_LZ4_HEADER_MAGIC_0 = _LZ4_MAGIC + b"\x60\x40\x1a"
_LZ4_END = b"\0\0\0\0"
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_BLOCK_CHECKSUM, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM = 0x10, 0x08, 0x04
# A block grows at most 255 times: one byte of a match length stands for 255 bytes.
LZ4_RATIO_MAX = 255
# A 3-byte copy yields 64 bytes, so a snappy preamble that announces more than that ratio is
# invalid.
_SNAPPY_RATIO_MAX = 22


def decompress(codec: int, magic: int, payload: Buffer, into: bytearray | memoryview | None = None,
               *, max_bytes: int = MAX_BYTES_DEFAULT) -> memoryview:
    """The decompressed bytes of one batch's `payload`, as a view of exactly their length.

    `into` is a writable buffer to reuse. If it is missing or too small, a larger bytearray is
    allocated; the view's `.obj` is that bytearray, to be passed to the next call. Never allocates
    more than `max_bytes`, whatever the payload announces. For `NONE` returns the payload.

    Raises DecompressionError (`codec_data`: invalid bytes; `codec_too_large`: more than
    `max_bytes`), UnsupportedCompressionTypeError for a codec that Kafka does not have
    (`batch_codec`), and InvalidRecordError for zstd in magic 0 or 1 (`legacy_codec`). The errors
    have no file: the caller sets `file` and `position`.
    """
    if codec == NONE:
        return memoryview(payload)
    if not 0 < codec < len(CODECS):
        raise UnsupportedCompressionTypeError(
            f"Unknown compression type id: {codec}", expected=len(CODECS) - 1, found=codec,
            code="batch_codec")
    if magic < CODECS[codec].min_magic:
        raise InvalidRecordError(
            f"Invalid wrapper compressionType for legacy record {CODECS[codec].name.upper()}",
            expected=LZ4, found=codec, code="legacy_codec")
    try:
        return CODECS[codec].decode(magic, payload, into, max_bytes)
    except cramjam.DecompressionError as error:
        raise _refused(codec, str(error), len(payload)) from None


def _refused(codec: int, cause: str, size: int) -> DecompressionError:
    return DecompressionError(
        f"{CODEC_NAMES[codec]} payload of {size} bytes: {cause}", found=cause, code="codec_data")


def _too_large(codec: int, max_bytes: int) -> DecompressionError:
    return DecompressionError(
        f"{CODEC_NAMES[codec]} payload grows past {max_bytes} bytes", expected=max_bytes,
        code="codec_too_large")


# --- gzip and zstd: cramjam reads the whole stream into a buffer of the right size ---------------

def _decompress_stream(codec: int, decode: Callable[[Buffer, Buffer], int], payload: Buffer,
                       into: bytearray | memoryview | None, max_bytes: int,
                       size_hint: int) -> memoryview:
    if into is not None and 0 < len(into) <= max_bytes:
        size = len(into)
    else:
        size = min(max(size_hint, _BUFFER_BYTES_MIN), max_bytes)
        into = bytearray(size)
    while True:
        try:
            return memoryview(into)[:decode(payload, into)]
        except cramjam.DecompressionError as error:
            # std::io::Error's text: the stream is valid so far, and the buffer too small.
            if str(error) != "failed to write whole buffer":
                raise
        if size >= max_bytes:
            raise _too_large(codec, max_bytes)
        size = min(max(size * 2, size_hint), max_bytes)
        into = None  # so that the old and the new buffer never exist at once
        into = bytearray(size)


def _decompress_gzip(magic: int, payload: Buffer, into: bytearray | memoryview | None,
                     max_bytes: int) -> memoryview:
    # The last four bytes are the length of the last member (modulo 2^32). Deflate expands data by a
    # factor of at most 1032, so a wrong length allocates no more than the payload's size allows.
    size_hint = min(int.from_bytes(payload[-4:], "little"), 1032 * len(payload))
    try:
        return _decompress_stream(GZIP, cramjam.gzip.decompress_into, payload, into, max_bytes,
                                  size_hint)
    except (cramjam.DecompressionError, DecompressionError):
        pass  # the buffer must not exist beside the next one
    return _decompress_gzip_members(payload, max_bytes)


def _decompress_gzip_members(payload: Buffer, max_bytes: int) -> memoryview:
    """Decides as java.util.zip.GZIPInputStream about a payload that cramjam refused."""
    out = bytearray()
    try:
        stream = GzipStream(bytes(payload), 2)
        while piece := stream.read(max_bytes - len(out) + 1):
            out += piece
            if len(out) > max_bytes:
                raise _too_large(GZIP, max_bytes)
    except StreamError as error:
        is_cut = error.kafka_error == "EOFException"
        raise _refused(GZIP, "unexpected end of the stream" if is_cut else error.message,
                       len(payload)) from None
    return memoryview(out)


def _decompress_zstd(magic: int, payload: Buffer, into: bytearray | memoryview | None,
                     max_bytes: int) -> memoryview:
    if not len(payload):
        return memoryview(b"")  # Kafka treats that as the end of the stream, not as an error
    # Kafka's encoder writes no content size, so the first guess is a usual ratio of records.
    return _decompress_stream(ZSTD, cramjam.zstd.decompress_into, payload, into, max_bytes,
                              8 * len(payload))


# --- snappy and lz4: framing read here, block by block -------------------------------------------

class _Output:
    """A buffer that grows by doubling, up to the limit, and keeps its content."""

    __slots__ = ("buffer", "codec", "max_bytes", "size", "view")

    def __init__(self, codec: int, into: bytearray | memoryview | None, max_bytes: int,
                 size_hint: int) -> None:
        if into is None:
            into = bytearray(min(max(size_hint, _BUFFER_BYTES_MIN), max_bytes))
        self.codec, self.max_bytes, self.size = codec, max_bytes, 0
        self.view = memoryview(into)[:max_bytes]

    def reserve(self, count: int) -> memoryview:
        """A view of at least `count` free bytes, or of all that the limit leaves."""
        wanted = min(self.size + count, self.max_bytes)
        if wanted > len(self.view):
            grown = memoryview(bytearray(min(max(2 * len(self.view), wanted), self.max_bytes)))
            grown[:self.size] = self.view[:self.size]
            self.view = grown
        return self.view[self.size:] if self.size else self.view

    def append(self, data: Buffer) -> None:
        free = self.reserve(len(data))
        if len(free) < len(data):
            raise _too_large(self.codec, self.max_bytes)
        free[:len(data)] = data
        self.size += len(data)


def _snappy_block(block: Buffer, out: _Output) -> None:
    size = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO_MAX * len(block):
        raise _refused(SNAPPY, f"a block of {len(block)} bytes announces {size}", len(block))
    free = out.reserve(size)
    if len(free) < size:
        raise _too_large(SNAPPY, out.max_bytes)
    out.size += cramjam.snappy.decompress_raw_into(block, free)


def _decompress_snappy(magic: int, payload: Buffer, into: bytearray | memoryview | None,
                       max_bytes: int) -> memoryview:
    size = len(payload)
    if not size:
        raise _refused(SNAPPY, "empty", 0)
    view = memoryview(payload)
    decode = cramjam.snappy.decompress_raw_into
    if into is not None and len(into) <= max_bytes and size > 20 and view[:16] == _SNAPPY_HEADER:
        # A fast path for one chunk, as in nearly every batch of 16 KiB: the loop below doubles the
        # cost.
        if _I32.unpack_from(view, 16)[0] == size - 20:
            try:
                return memoryview(into)[:decode(view[20:], into)]
            except cramjam.DecompressionError:
                pass  # too small, or refused: the loop below decides
    out = _Output(SNAPPY, into, max_bytes, 4 * size)
    if size < len(_SNAPPY_HEADER) or view[:8] != _SNAPPY_MAGIC:
        _snappy_block(view, out)
        return out.view[:out.size]
    position = 0
    while position + 4 <= size:
        length, = _I32.unpack_from(view, position)
        if length == _SNAPPY_MAGIC_START:
            if size - position < len(_SNAPPY_HEADER):
                raise _refused(SNAPPY, f"header cut at byte {position}", size)
            if view[position:position + 8] != _SNAPPY_MAGIC:
                return _snappy_as_read(magic, payload, max_bytes)
            version, = _I32.unpack_from(view, position + 8)
            if version < 1 and position:  # snappy-java checks no version of the first header
                raise _refused(SNAPPY, f"version {version} at byte {position + 8}", size)
            position += len(_SNAPPY_HEADER)
            continue
        position += 4
        if not 0 <= length <= min(size - position, _SNAPPY_CHUNK_BYTES_MAX):
            raise _refused(SNAPPY, f"chunk of {length} bytes at byte {position}, "
                                   f"{size - position} are left", size)
        block = view[position:position + length]
        try:
            out.size += decode(block, out.view[out.size:])
        except cramjam.DecompressionError:
            _snappy_block(block, out)
        position += length
    return out.view[:out.size]


def _snappy_as_read(magic: int, payload: Buffer, max_bytes: int) -> memoryview:
    """Decides about a wrong header after the first: snappy-java's stream ends there if a read
    begins there, and else continues after it."""
    from seglog.storage.codec_streams import as_records_are_read  # its streams ask this module

    try:
        out = as_records_are_read(SNAPPY, magic, memoryview(payload), max_bytes)
    except StreamError as error:
        raise _refused(SNAPPY, error.message, len(payload)) from None
    if len(out) > max_bytes:
        raise _too_large(SNAPPY, max_bytes)
    return memoryview(out)


def _decompress_lz4(magic: int, payload: Buffer, into: bytearray | memoryview | None,
                    max_bytes: int) -> memoryview:
    view = memoryview(payload)
    size = len(view)
    decode = cramjam.lz4.decompress_block_into
    if view[:7] == _LZ4_HEADER:
        if (into is not None and _LZ4_BLOCK_BYTES <= len(into) <= max_bytes and size > 15
                and _U32_LE.unpack_from(view, 7)[0] == size - 15 and view[-4:] == _LZ4_END):
            # A fast path for one block, as in nearly every batch: the loop below doubles the cost.
            return memoryview(into)[:decode(view[11:-4], memoryview(into)[:_LZ4_BLOCK_BYTES],
                                            output_len=_LZ4_BLOCK_BYTES)]
        position, block_bytes, flags = 7, _LZ4_BLOCK_BYTES, 0x60
    else:
        position, block_bytes, flags = _lz4_header(magic, view)
    checksum_bytes = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    out = _Output(LZ4, into, max_bytes, 4 * size)
    while True:
        if position + 4 > size:
            raise _refused(LZ4, "Stream ended prematurely", size)
        length, = _U32_LE.unpack_from(view, position)
        position += 4
        stored, length = length >> 31, length & 0x7FFFFFFF
        if not length:
            break
        if length > block_bytes:
            raise _refused(LZ4, f"Block size {length} exceeded max: {block_bytes}", size)
        end = position + length
        if end + checksum_bytes > size:
            raise _refused(LZ4, "Stream ended prematurely", size)
        block = view[position:end]
        if checksum_bytes:
            check_lz4_block(view[position - 4:end + 4], block_bytes)
        wanted = min(block_bytes, LZ4_RATIO_MAX * length)
        if stored:
            out.append(block)
        elif len(free := out.reserve(wanted)) >= wanted:
            out.size += decode(block, free[:wanted], output_len=wanted)
        else:
            # The limit leaves less than the block may need: only its bytes tell whether they fit.
            room = bytearray(wanted)
            out.append(memoryview(room)[:decode(block, room, output_len=wanted)])
        position = end + checksum_bytes
    if flags & _LZ4_CONTENT_CHECKSUM and position + 4 > size:
        raise _refused(LZ4, "Stream ended prematurely", size)
    return out.view[:out.size]


def _lz4_header(magic: int, view: memoryview) -> tuple[int, int, int]:
    """(position of the first block, largest block, FLG) of a frame, by Kafka's rules."""
    size = len(view)
    if size < 6:
        raise _refused(LZ4, "Stream ended prematurely", size)
    if view[:4] != _LZ4_MAGIC:
        raise _refused(LZ4, "Stream unsupported (invalid magic bytes)", size)
    flags, descriptor = view[4], view[5]
    if flags >> 6 != 1 or not flags & 0x20 or flags & 0x03:
        raise _refused(LZ4, f"FLG byte {flags:#04x}: version 01, independent blocks and zero "
                            "reserved bits are required", size)
    if descriptor & 0x8F or descriptor >> 4 < 4:
        raise _refused(LZ4, f"BD byte {descriptor:#04x}: a block size of 4 to 7 and zero reserved "
                            "bits are required", size)
    end = 14 if flags & _LZ4_CONTENT_SIZE else 6
    if size <= end:
        raise _refused(LZ4, "Stream ended prematurely", size)
    if magic > 0 and xxh32_short(view[4:end]) >> 8 & 0xFF != view[end]:
        raise _refused(LZ4, "Stream frame descriptor corrupted", size)
    return end + 1, 1 << (2 * (descriptor >> 4) + 8), flags


def check_lz4_block(block: memoryview, block_bytes: int) -> None:
    """Raises DecompressionError unless the checksum after a block (size, data, checksum) matches.

    No Kafka client ever writes one. cramjam exposes XXH32 only through its frame decoder, so the
    block is wrapped in a frame of its own.
    """
    descriptor = bytes((0x60 | _LZ4_BLOCK_CHECKSUM, block_bytes.bit_length() - 9 << 3))
    header = _LZ4_MAGIC + descriptor + bytes((xxh32_short(descriptor) >> 8 & 0xFF,))
    room = bytearray(min(block_bytes, LZ4_RATIO_MAX * len(block)))
    cramjam.lz4.decompress_into(b"".join((header, block, _LZ4_END)), room)


def xxh32_short(data: Buffer) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, for an lz4 frame header."""
    mask = 0xFFFFFFFF
    value = 0x165667B1 + len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        value = value + _U32_LE.unpack_from(data, position)[0] * 0xC2B2AE3D & mask
        value = (value << 17 | value >> 15) * 0x27D4EB2F & mask
    for byte in data[whole:]:
        value = value + byte * 0x165667B1 & mask
        value = (value << 11 | value >> 21) * 0x9E3779B1 & mask
    value = (value ^ value >> 15) * 0x85EBCA77 & mask
    value = (value ^ value >> 13) * 0xC2B2AE3D & mask
    return value ^ value >> 16


# --- writing --------------------------------------------------------------------------------------

def codec_id(name: str) -> int:
    """The codec id of a `compression.type` name. Raises ValueError for an unknown name."""
    try:
        return CODEC_NAMES.index(name)
    except ValueError:
        raise ValueError(f"Unknown compression name: {name}") from None


def known_codec(attributes: int) -> int:
    """The codec in a batch's `attributes`. Raises IllegalArgumentError, as Kafka does, for bits
    that name no codec."""
    codec = attributes & ATTRIBUTE_CODEC
    if codec >= len(CODECS):
        raise IllegalArgumentError(f"Unknown compression type id: {codec}")
    return codec


def compress(codec: int, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` in the framing that Kafka's producer writes for `codec` in batches of `magic`.

    `level` has Kafka's range for the codec; None, and -1 for gzip, mean its default. Raises
    IllegalArgumentError, a ValueError, for a codec or level that Kafka does not have.
    """
    if codec == NONE:
        return bytes(data)
    if not 0 < codec < len(CODECS) or magic < CODECS[codec].min_magic:
        raise IllegalArgumentError(f"Unknown compression type id: {codec} for magic {magic}")
    return CODECS[codec].encode(memoryview(data), level_of(codec, level), magic)


def level_of(codec: int, level: int | None) -> int:
    """The level that `compress` uses, 0 for codecs without levels. Raises as `compress` does."""
    chosen = CODECS[codec]
    if level is None or (codec == GZIP and level == -1):
        return chosen.level_default
    if level not in chosen.levels:
        raise IllegalArgumentError(
            f"{chosen.name} doesn't support given compression level: {level}")
    return level


_GZIP_HEADER: Final = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_GZIP_TRAILER: Final = struct.Struct("<II")


def _compress_gzip(data: memoryview, level: int, magic: int) -> bytes:
    # zlib writes the same bytes as Java's GZIPOutputStream; other encoders do not.
    stream = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return b"".join((_GZIP_HEADER, stream.compress(data), stream.flush(),
                     _GZIP_TRAILER.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)))


def _compress_snappy(data: memoryview, level: int, magic: int) -> bytes:
    parts = [_SNAPPY_HEADER]
    for position in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = compress_block(data[position:position + _SNAPPY_BLOCK_BYTES])
        parts += (_I32.pack(len(block)), block)
    return b"".join(parts)


def _compress_lz4(data: memoryview, level: int, magic: int) -> bytes:
    # Kafka's default level selects lz4's fast compressor; the framing is the same for all levels.
    parts = [_LZ4_HEADER if magic else _LZ4_HEADER_MAGIC_0]
    for position in range(0, len(data), _LZ4_BLOCK_BYTES):
        raw = data[position:position + _LZ4_BLOCK_BYTES]
        if level != CODECS[LZ4].level_default:
            parts.append(_lz4_high_compression(raw, level))
            continue
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += (_U32_LE.pack(len(block)), block)
        else:
            parts += (_U32_LE.pack(len(raw) | 1 << 31), bytes(raw))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _lz4_high_compression(raw: memoryview, level: int) -> bytes:
    """One block with its length in front. cramjam's block encoder has no levels, so the block is
    cut out of a frame: 7 bytes of header, the length, the block, its checksum, the end."""
    # In liblz4 level 1 means 2 for blocks, and the fast compressor for frames.
    frame = cramjam.lz4.Compressor(level=max(2, level), content_checksum=False, block_linked=False)
    frame.compress(bytes(raw))
    whole = bytes(frame.flush()) + bytes(frame.finish())
    size = _U32_LE.unpack_from(whole, 7)[0] & 0x7FFFFFFF
    return whole[7:11 + size]


def _compress_zstd(data: memoryview, level: int, magic: int) -> bytes:
    # A streaming encoder does not know the content size in advance, and neither does Kafka's. Kafka
    # also flushes before the end, so the last block is empty.
    stream = cramjam.zstd.Compressor(level=level)
    stream.compress(bytes(data))
    flushed = bytes(stream.flush())
    return flushed + bytes(stream.finish())


# --- the table ------------------------------------------------------------------------------------

class Codec(NamedTuple):
    """One of Kafka's codecs. Its id is its index in `CODECS`."""

    name: str
    min_magic: int  #: the oldest message format that may use it
    expansion_max: int  #: the most bytes that one compressed byte can become
    levels: range  #: the levels that Kafka accepts; empty for a codec without levels
    level_default: int
    decode: Callable[..., memoryview]  #: (magic, payload, into, max_bytes)
    #: cramjam's own decoder, (bytes, room) -> size, for native decoders; None for lz4 and snappy,
    #: which are in C (framing.h). `decompress` decides about what these refuse.
    direct: Callable[..., int] | None
    encode: Callable[[memoryview, int, int], bytes]  #: (data, level, magic)


CODECS: Final[tuple[Codec, ...]] = (
    Codec("none", 0, 1, range(0), 0,
          lambda _, payload, *__: memoryview(payload), None, lambda data, *_: bytes(data)),
    Codec("gzip", 0, 1032, range(1, 10), 6,
          _decompress_gzip, cramjam.gzip.decompress_into, _compress_gzip),
    Codec("snappy", 0, _SNAPPY_RATIO_MAX, range(0), 0,
          _decompress_snappy, None, _compress_snappy),
    Codec("lz4", 0, LZ4_RATIO_MAX, range(1, 18), 9,
          _decompress_lz4, None, _compress_lz4),
    Codec("zstd", 2, 1 << 15, range(-131072, 23), 3,
          _decompress_zstd, cramjam.zstd.decompress_into, _compress_zstd),
)
CODEC_NAMES: Final = tuple(codec.name for codec in CODECS)
DIRECT: Final = tuple(codec.direct for codec in CODECS)
