"""Decompresses a payload piece by piece, as Kafka's streams do, with the same exceptions.

What Kafka throws for a corrupt batch with a valid checksum depends on how much it has read when the
codec fails: bad records before bad bytes. `codecs.decompress` serves data. This module serves
Kafka's verdict on batches that it opens while it loads a log.

Sources: Kafka's ChunkedBytesStream and Lz4BlockInputStream, java.util.zip.GZIPInputStream,
snappy-java's SnappyInputStream, zstd-jni's ZstdInputStreamNoFinalizer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

import cramjam

from seglog.errors import DecompressionError
from seglog.storage import codecs
from seglog.storage.gzip_stream import GzipStream, StreamError

__all__ = ["CodecStream", "StreamError", "as_records_are_read", "open_stream"]

#: Java arrays are shorter than this.
_ARRAY_MAX: Final = (1 << 31) - 2
#: Upper bound of a decompressed block or frame (bytes).
_BYTES_MAX: Final = 64 << 20


def _io(message: str) -> StreamError:
    return StreamError("java.io.IOException", message)


def _underflow() -> StreamError:
    return StreamError("java.nio.BufferUnderflowException", None)


class _Source(Protocol):
    """A stream of one codec. It keeps what it has decompressed as views: cutting pieces of some KiB
    off the bytes of a large block would copy the rest each time."""

    def read(self, count: int) -> bytes:
        """At most `count` bytes; none at the end of the stream."""


class CodecStream:
    """Reads a source through a buffer, which Kafka refills whenever it is empty."""

    def __init__(self, source: _Source, buffer_bytes: int) -> None:
        self._source, self._buffer_bytes, self._buffer = source, buffer_bytes, b""
        self._left = codecs.MAX_BYTES_DEFAULT

    @property
    def buffered(self) -> int:
        """Bytes that can be read without reading the source."""
        return len(self._buffer)

    def read(self, count: int) -> bytes:
        """The next `count` bytes, or fewer at the end (Kafka: Utils.readFully). Raises StreamError
        where Kafka's stream throws, and after MAX_BYTES_DEFAULT bytes."""
        if count >= _ARRAY_MAX:
            raise StreamError("java.lang.OutOfMemoryError", "Requested array size exceeds VM limit")
        pieces: list[bytes] = []
        was_empty = True
        while count > 0:
            if self._buffer:
                piece, self._buffer = self._buffer[:count], self._buffer[count:]
            elif count >= self._buffer_bytes:
                piece = self._source.read(min(count, _BYTES_MAX))
            else:
                self._buffer = self._source.read(self._buffer_bytes)
                if self._buffer:
                    continue
                piece = b""
            if not piece:
                if was_empty:
                    break
                was_empty = True  # Kafka asks again after a part: snappy's stream may continue
                continue
            was_empty = False
            pieces.append(piece)
            count -= len(piece)
            self._left -= len(piece)
            if self._left < 0:
                raise _io(f"the payload grows past {codecs.MAX_BYTES_DEFAULT} bytes")
        return b"".join(pieces)


def open_stream(codec: int, magic: int, payload: bytes | memoryview) -> CodecStream:
    """Opens the stream of a payload of `codec` (1 to 4). Raises StreamError (a KafkaException in
    Java) if Kafka cannot open it."""
    try:
        source, buffer_bytes = _STREAMS[codec]
        return CodecStream(source(bytes(payload), magic), buffer_bytes)
    except StreamError as error:  # Kafka wraps every exception here
        raise StreamError("org.apache.kafka.common.KafkaException", str(error)) from None


def as_records_are_read(codec: int, magic: int, payload: bytes | memoryview, bytes_max: int
                        ) -> bytearray:
    """The bytes that Kafka gets from a payload when it reads one record after another: where the
    stream ends can depend on where a read begins. Stops after `bytes_max` bytes.

    Raises StreamError where Kafka's stream throws, and DecompressionError as `open_stream`.
    """
    stream, found = open_stream(codec, magic, payload), bytearray()

    def take(count: int) -> bool:
        piece = stream.read(count)
        found.extend(piece)
        return len(piece) == count and len(found) <= bytes_max

    while (size := _next_size(magic, take, found)) is not None:
        if size < 0:  # the decoder refuses this record
            while take(_BYTES_MAX):
                pass
            break
        if not take(size):
            break
    return found


def _next_size(magic: int, take: Callable[[int], bool], found: bytearray) -> int | None:
    """The size of the next record, None at the end, negative for an invalid one."""
    if magic < 2:
        return int.from_bytes(found[-4:], "big", signed=True) if take(12) else None
    size = 0
    for shift in range(0, 35, 7):
        if not take(1):
            return None
        size |= (found[-1] & 0x7F) << shift
        if found[-1] < 0x80:
            return (size & 0xFFFFFFFF) >> 1 ^ -(size & 1)
    return -1


class _Snappy:
    _MAGIC, _HEADER_BYTES = b"\x82SNAPPY\0", 16
    _CHUNK_BYTES_MAX = 512 << 20

    def __init__(self, data: bytes, magic: int) -> None:
        self._data, self._at, self._chunk = data, self._HEADER_BYTES, memoryview(b"")
        if not data:
            raise StreamError("org.xerial.snappy.SnappyIOException",
                              "[EMPTY_INPUT] Cannot decompress empty stream")
        if len(data) < self._HEADER_BYTES or data[:8] != self._MAGIC:
            self._chunk, self._at = self._uncompress(data), len(data)

    @staticmethod
    def _uncompress(block: bytes) -> memoryview:
        if not block:
            raise _io("PARSING_ERROR(2)")
        try:
            size = cramjam.snappy.decompress_raw_len(block)
        except cramjam.DecompressionError:
            raise _io("PARSING_ERROR(2)") from None
        if size >= 1 << 31:
            raise StreamError("java.lang.NegativeArraySizeException", str(size - (1 << 32)))
        try:
            if size > _BYTES_MAX:
                raise _io("FAILED_TO_UNCOMPRESS(5)")
            return memoryview(cramjam.snappy.decompress_raw(block))
        except cramjam.DecompressionError:
            raise _io("FAILED_TO_UNCOMPRESS(5)") from None

    def read(self, count: int) -> bytes:
        pieces: list[memoryview] = []
        while count > 0 and (self._chunk or self._next_chunk()):
            pieces.append(self._chunk[:count])
            self._chunk = self._chunk[count:]
            count -= len(pieces[-1])
        return b"".join(pieces)

    def _take(self, count: int) -> bytes:
        piece = self._data[self._at:self._at + count]
        self._at += len(piece)
        return piece

    def _next_chunk(self) -> bool:
        while len(head := self._take(4)) == 4:
            if head == self._MAGIC[:4]:  # another stream follows the first
                head += self._take(self._HEADER_BYTES - 4)
                if len(head) < self._HEADER_BYTES:
                    raise StreamError(
                        "org.xerial.snappy.SnappyIOException", "[FAILED_TO_UNCOMPRESS] "
                        "Insufficient header size in a concatenated block")
                if head[:8] != self._MAGIC:
                    return False
                version, = struct.unpack_from(">i", head, 8)
                if version < 1:
                    raise StreamError(
                        "org.xerial.snappy.SnappyIOException", "[INCOMPATIBLE_VERSION] Compressed "
                        f"with an incompatible codec version {version}. At least version 1 is "
                        "required")
                continue
            self._chunk = self._uncompress(self._block(struct.unpack(">i", head)[0]))
            if self._chunk:
                return True
        return False

    def _block(self, size: int) -> bytes:
        if size < 0:
            raise StreamError("org.xerial.snappy.SnappyError", "[INVALID_CHUNK_SIZE] chunkSize is "
                              f"too big or negative : {size}")
        if size > self._CHUNK_BYTES_MAX:
            raise StreamError("org.xerial.snappy.SnappyError", "[FAILED_TO_UNCOMPRESS] Received "
                              f"chunkSize {size:,} is greater than max configured chunk size "
                              f"{self._CHUNK_BYTES_MAX:,}")
        if size > len(self._data) - self._at:
            raise _io("failed to read chunk")
        return self._take(size)


class _Lz4:
    _MAGIC = b"\x04\x22\x4d\x18"
    _BLOCK_CHECKSUM, _CONTENT_SIZE, _CONTENT_CHECKSUM = 0x10, 0x08, 0x04

    def __init__(self, data: bytes, magic: int) -> None:
        checked = magic > 0  # writers of magic 0 got the header's checksum wrong
        self._data, self._block, self._done = data, memoryview(b""), False
        if len(data) < 6:
            raise _io("Stream ended prematurely")
        if data[:4] != self._MAGIC:
            raise _io("Stream unsupported (invalid magic bytes)")
        self._flags, descriptor = data[4], data[5]
        complaint = self._complaint(self._flags, descriptor)
        if complaint:
            raise StreamError("java.lang.RuntimeException", complaint)
        self._block_bytes = 1 << (2 * (descriptor >> 4) + 8)
        self._at = 6
        if self._flags & self._CONTENT_SIZE:
            if len(data) < 14:
                raise _io("Stream ended prematurely")
            self._at = 14
        if self._at >= len(data):
            raise _underflow() if checked else StreamError(
                "java.lang.IllegalArgumentException",
                f"newPosition > limit: ({self._at + 1} > {len(data)})")
        if checked and codecs.xxh32_short(data[4:self._at]) >> 8 & 0xFF != data[self._at]:
            raise _io("Stream frame descriptor corrupted")
        self._at += 1

    @staticmethod
    def _complaint(flags: int, descriptor: int) -> str:
        if flags & 0x03:
            return "Reserved bits must be 0"
        if not flags & 0x20:
            return "Dependent block stream is unsupported"
        if flags >> 6 != 1:
            return f"Version {flags >> 6} is unsupported"
        if descriptor & 0x0F:
            return "Reserved2 field must be 0"
        if not 4 <= descriptor >> 4 & 7:
            return "Block size value must be between 4 and 7"
        return "Reserved3 field must be 0" if descriptor & 0x80 else ""

    def read(self, count: int) -> bytes:
        if not self._done and not self._block:
            self._block = memoryview(self._next_block())
        piece, self._block = self._block[:count], self._block[count:]
        return bytes(piece)

    def _next_block(self) -> bytes:
        data, at = self._data, self._at
        if at + 4 > len(data):
            raise _io("Stream ended prematurely")
        head, = struct.unpack_from("<I", data, at)
        at, size = at + 4, head & 0x7FFFFFFF
        if not size:
            self._done, self._at = True, at
            if self._flags & self._CONTENT_CHECKSUM and at + 4 > len(data):
                raise _underflow()
            return b""
        if size > self._block_bytes:
            raise _io(f"Block size {size} exceeded max: {self._block_bytes}")
        if at + size > len(data):
            raise _io("Stream ended prematurely")
        block = data[at:at + size]
        if not head >> 31:
            room = bytearray(min(self._block_bytes, codecs.LZ4_RATIO_MAX * size))
            try:
                block = bytes(room[:cramjam.lz4.decompress_block_into(block, room,
                                                                      output_len=len(room))])
            except cramjam.DecompressionError as error:
                raise _io(f"net.jpountz.lz4.LZ4Exception: {error}") from None
        if self._flags & self._BLOCK_CHECKSUM:
            if at + size + 4 > len(data):
                raise _underflow()
            try:
                codecs.check_lz4_block(memoryview(data)[at - 4:at + size + 4], self._block_bytes)
            except cramjam.DecompressionError:
                raise _io("Block checksum mismatch") from None
            at += 4
        self._at = at + size
        return block


class _Zstd:
    _MAGIC = b"\x28\xb5\x2f\xfd"
    _SKIPPED = b"\x2a\x4d\x18"  # after 0x50 to 0x5f: a frame without content
    _INPUT_BYTES, _BLOCK_BYTES_MAX, _WINDOW_BYTES_MAX = 131075, 128 << 10, 128 << 20
    # A frame without checksum and size, with a window of 8 MiB.
    _HEADER = _MAGIC + b"\x00\x68"

    def __init__(self, data: bytes, magic: int) -> None:
        self._data, self._at, self._frame = data, 0, memoryview(b"")
        self._is_cut = False
        # Where the last input chunk that Java reads begins. If a frame ended in it, Java treats the
        # end of the input as the end of the stream.
        self._last_input = (len(data) - 1) // self._INPUT_BYTES * self._INPUT_BYTES

    def read(self, count: int) -> bytes:
        while not self._frame and self._at < len(self._data) and not self._is_cut:
            self._frame = memoryview(self._next_frame())
        if not self._frame and self._is_cut and self._at <= self._last_input:
            raise StreamError("com.github.luben.zstd.ZstdIOException", "Truncated source")
        piece, self._frame = self._frame[:count], self._frame[count:]
        return bytes(piece)

    def _next_frame(self) -> bytes:
        """The content of the next frame; of a truncated frame, the part that exists."""
        start = self._at
        blocks, end = self._blocks(start)
        if end <= len(self._data):
            frame, self._at = self._data[start:end], end
        else:
            self._is_cut = True
            if not blocks:
                return b""
            last = len(blocks) - 1
            frame = self._HEADER + b"".join(bytes([block[0] | (number == last)]) + block[1:]
                                            for number, block in enumerate(blocks))
        try:
            return bytes(codecs.decompress(codecs.ZSTD, 2, frame, max_bytes=_BYTES_MAX))
        except DecompressionError as error:
            raise StreamError("com.github.luben.zstd.ZstdIOException", str(error)) from None

    def _blocks(self, start: int) -> tuple[list[bytes], int]:
        """The existing blocks of the frame at `start`, and the position where it ends.

        For a truncated frame that position is beyond the data. If there is no frame, it is the end
        of the data, so that zstd itself reports the error.
        """
        data, beyond = self._data, len(self._data) + 1
        head = data[start:start + 4]
        if head[0] >> 4 == 5 and self._SKIPPED.startswith(head[1:]):  # also if it is truncated here
            size = int.from_bytes(data[start + 4:start + 8], "little")
            return [], start + 8 + size
        if head != self._MAGIC:
            return [], len(data) if not self._MAGIC.startswith(head) else beyond
        if start + 5 > len(data):
            return [], beyond
        flags, at = data[start + 4], start + 5
        window = None
        if not flags & 0x20:
            descriptor, at = data[at:at + 1], at + 1
            if descriptor:
                window = (1 << 10 + (descriptor[0] >> 3)) // 8 * (8 + (descriptor[0] & 7))
        dictionary = data[at:at + (0, 1, 2, 4)[flags & 3]]
        at += (0, 1, 2, 4)[flags & 3] + (flags >> 5 & 1, 2, 4, 8)[flags >> 6]
        if at <= len(data) and (flags & 0x08 or any(dictionary)
                                or (window or 0) > self._WINDOW_BYTES_MAX):
            return [], len(data)
        blocks: list[bytes] = []
        while at + 3 <= len(data):
            block = int.from_bytes(data[at:at + 3], "little")
            is_last, kind, size = block & 1, block >> 1 & 3, block >> 3
            if kind == 3 or size > min(window or self._BLOCK_BYTES_MAX, self._BLOCK_BYTES_MAX):
                return blocks, len(data)
            end = at + 3 + (1 if kind == 1 else size)
            if end > len(data):
                if kind == 0:  # stored bytes are returned at once
                    there = data[at + 3:]
                    blocks.append((len(there) << 3).to_bytes(3, "little") + there)
                break
            blocks.append(data[at:end])
            at = end
            if is_last:
                return blocks, at + 4 * (flags >> 2 & 1)
        return blocks, beyond


#: By codec: the stream, and the size of the buffer that Kafka wraps around it.
_STREAMS: Final[dict[int, tuple[Callable[[bytes, int], _Source], int]]] = {
    codecs.GZIP: (GzipStream, 16 << 10), codecs.SNAPPY: (_Snappy, 2 << 10),
    codecs.LZ4: (_Lz4, 2 << 10), codecs.ZSTD: (_Zstd, 16 << 10)}
