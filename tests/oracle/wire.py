"""CRC-32C, variable-length integers, XXH32 and Java's way of reading UTF-8."""

from __future__ import annotations


class OracleError(ValueError):
    """Bytes that Kafka would not read as records."""


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _table()


def crc32c(data: bytes, value: int = 0) -> int:
    """CRC-32C (Castagnoli), one byte at a time."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value = (value >> 8) ^ _CRC32C[(value ^ byte) & 0xFF]
    return value ^ 0xFFFFFFFF


def zigzag(number: int, width: int) -> int:
    return ((number << 1) ^ (number >> (width - 1))) & ((1 << width) - 1)


def unzigzag(number: int) -> int:
    return (number >> 1) ^ -(number & 1)


def varint(number: int, width: int = 32) -> bytes:
    """The zig-zag variable-length form of a signed number of `width` bits."""
    left, out = zigzag(number, width), bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def varlong(number: int) -> bytes:
    return varint(number, 64)


class Reader:
    """A cursor over bytes that refuses to pass its end."""

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data, self.position = data, position
        self.end = len(data) if end is None else end

    @property
    def remaining(self) -> int:
        return self.end - self.position

    def take(self, size: int) -> bytes:
        if size < 0 or size > self.remaining:
            raise OracleError(f"{size} bytes wanted at {self.position}, {self.remaining} left")
        self.position += size
        return self.data[self.position - size:self.position]

    def number(self, size: int) -> int:
        """A big-endian signed integer."""
        return int.from_bytes(self.take(size), "big", signed=True)

    def varint(self, width: int = 32) -> int:
        value = shift = 0
        for _ in range(5 if width == 32 else 10):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                # Surplus bits of the last byte are dropped, as in a Java int or long.
                return unzigzag(value & ((1 << width) - 1))
        raise OracleError(f"varint of {width} bits without an end at {self.position}")

    def varlong(self) -> int:
        return self.varint(64)


_MASK = 0xFFFFFFFF
_PRIMES = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1)


def _rotate(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


def xxh32(data: bytes, seed: int = 0) -> int:
    """XXH32, the checksum of LZ4 frames."""
    p1, p2, p3, p4, p5 = _PRIMES
    position = 0
    if len(data) >= 16:
        lanes = [(seed + p1 + p2) & _MASK, (seed + p2) & _MASK, seed, (seed - p1) & _MASK]
        while position + 16 <= len(data):
            for lane in range(4):
                word = int.from_bytes(data[position:position + 4], "little")
                lanes[lane] = _rotate((lanes[lane] + word * p2) & _MASK, 13) * p1 & _MASK
                position += 4
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        value = seed + p5
    value = (value + len(data)) & _MASK
    while position + 4 <= len(data):
        word = int.from_bytes(data[position:position + 4], "little")
        value = _rotate((value + word * p3) & _MASK, 17) * p4 & _MASK
        position += 4
    for byte in data[position:]:
        value = _rotate((value + byte * p5) & _MASK, 11) * p1 & _MASK
    for shift, prime in ((15, p2), (13, p3)):
        value = (value ^ value >> shift) * prime & _MASK
    return value ^ value >> 16


def _continues(data: bytes, position: int) -> bool:
    return data[position] & 0xC0 == 0x80


def _second_fits(first: int, second: int) -> bool:
    """Whether `second` may follow `first` (0xE0 to 0xFF); surrogates pass here."""
    if first == 0xE0:
        return 0xA0 <= second <= 0xBF
    if first == 0xF0:
        return 0x90 <= second <= 0xBF
    if first == 0xF4:
        return 0x80 <= second <= 0x8F
    return second & 0xC0 == 0x80 and first <= 0xF4


def java_utf8(data: bytes) -> str:
    """Bytes as Java's `new String(bytes, UTF_8)` reads them, malformed sequences replaced.

    Python's "replace", but an encoded surrogate is one U+FFFD in Java, not three.
    """
    out, position = [], 0
    while position < len(data):
        first = data[position]
        wanted = 1 if first < 0x80 else 2 if 0xC2 <= first < 0xE0 else \
            3 if 0xE0 <= first < 0xF0 else 4 if 0xF0 <= first < 0xF8 else 0
        size = 1
        if wanted > 2 and position + 1 < len(data):
            if _second_fits(first, data[position + 1]):
                size = 2
        elif wanted == 2 and position + 1 < len(data) and _continues(data, position + 1):
            size = 2
        while 1 < size < wanted and position + size < len(data) \
                and _continues(data, position + size):
            size += 1
        if size == wanted:
            out.append(data[position:position + size].decode("utf-8", "surrogatepass"))
        else:
            out.append("\ufffd")
        position += size
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in out)
