"""java.util.zip.GZIPInputStream: what it reads of a payload, and how it throws.

Java is lenient after a whole member: anything that is not the header of another is the end. Whether
it looks for another depends on how many bytes are left in its buffer.
"""

from __future__ import annotations

import struct
import zlib

__all__ = ["GzipStream", "StreamError"]

_IO_EXCEPTIONS = ("IOException", "EOFException", "ZipException", "ZstdIOException",
                  "SnappyIOException")


class StreamError(Exception):
    """An exception of class `java_class` with `message` (None: without one), thrown by a stream."""

    def __init__(self, java_class: str, message: str | None) -> None:
        super().__init__(java_class if message is None else f"{java_class}: {message}")
        self.kafka_error, self.message = java_class.rpartition(".")[2], message or "null"

    @property
    def is_io(self) -> bool:
        """Whether it is an IOException, which Kafka wraps."""
        return self.kafka_error in _IO_EXCEPTIONS


class GzipStream:
    """The content of one member after another. `magic` does not matter."""

    _INPUT_BYTES = 8 << 10
    _HEADER_CHECKSUM, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16

    def __init__(self, data: bytes, magic: int) -> None:
        self._data, self._at, self._done = data, 0, False
        self._begin(self._header(0))

    def _begin(self, at: int) -> None:
        """Begins to inflate at `at`: in the input that Java has read, or after that."""
        self._input, self._at = self._data[at:self._at], max(at, self._at)
        self._inflater, self._checksum, self._size = zlib.decompressobj(-15), 0, 0

    def _require(self, end: int) -> int:
        """`end`, if so many bytes exist."""
        if end > len(self._data):
            raise StreamError("java.io.EOFException", None)
        return end

    def _take(self, at: int, count: int) -> bytes:
        return self._data[at:self._require(at + count)]

    def _header(self, start: int) -> int:
        """Where the data of the member at `start` begins."""
        if self._take(start, 2) != b"\x1f\x8b":
            raise StreamError("java.util.zip.ZipException", "Not in GZIP format")
        if self._take(start + 2, 1) != b"\x08":
            raise StreamError("java.util.zip.ZipException", "Unsupported compression method")
        flags, at = self._take(start + 3, 7)[0], start + 10
        if flags & self._EXTRA:
            size, = struct.unpack("<H", self._take(at, 2))
            self._take(at + 2, size)
            at += 2 + size
        for flag in (self._NAME, self._COMMENT):
            if flags & flag:
                end = self._data.find(b"\0", at)
                at = self._require((end if end >= 0 else len(self._data)) + 1)
        if flags & self._HEADER_CHECKSUM:
            found, = struct.unpack("<H", self._take(at, 2))
            if found != zlib.crc32(self._data[start:at]) & 0xFFFF:
                raise StreamError("java.util.zip.ZipException", "Corrupt GZIP header")
            at += 2
        return at

    def read(self, count: int) -> bytes:
        """At most `count` bytes; none at the end. Raises StreamError where Java throws."""
        while not self._done:
            if self._inflater.eof:
                self._trailer()
                continue
            try:
                piece = self._inflater.decompress(self._input, count)
            except zlib.error as error:
                raise StreamError("java.util.zip.ZipException",
                                  str(error).partition(": ")[2]) from None
            self._input = self._inflater.unconsumed_tail
            if piece:
                self._checksum = zlib.crc32(piece, self._checksum)
                self._size += len(piece)
                return piece
            if not self._inflater.eof:
                self._fill()
        return b""

    def _fill(self) -> None:
        self._input = self._data[self._at:self._at + self._INPUT_BYTES]
        self._at += len(self._input)
        if not self._input:
            raise StreamError("java.io.EOFException", "Unexpected end of ZLIB input stream")

    def _trailer(self) -> None:
        """Checks the end of a member. Another member may follow; Java ignores anything else."""
        left = len(self._inflater.unused_data)
        start, available = self._at - left, len(self._data) - self._at
        checksum, = struct.unpack("<I", self._take(start, 4))
        size, = struct.unpack("<I", self._take(start + 4, 4)) if checksum == self._checksum else (
            -1,)
        if size != self._size & 0xFFFFFFFF:
            raise StreamError("java.util.zip.ZipException", "Corrupt GZIP trailer")
        self._done = True
        if available or left > 26:
            try:
                self._begin(self._header(start + 8))
            except StreamError:
                return
            self._done = False
