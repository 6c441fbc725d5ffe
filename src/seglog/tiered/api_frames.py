"""The frame around a message in Kafka's metadata topics, and the varints in it (KIP-482).

Kafka: AbstractApiMessageSerde of __cluster_metadata and __remote_log_metadata.
"""

from __future__ import annotations

from seglog.errors import MetadataParseError

__all__ = ["FRAME_VERSION", "read_frame", "read_unsigned_varint", "unsigned_varint"]

FRAME_VERSION = 1
_INT16_MAX = 0x7FFF


def read_unsigned_varint(data: bytes, position: int) -> tuple[int, int]:
    """A varint as int32 and the position after it, as ByteUtils.readUnsignedVarint reads it.

    At most five bytes; surplus bits of the fifth are dropped. Raises IndexError if the data end
    inside the varint, and ValueError if it is too long.
    """
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return value - ((value & 0x80000000) << 1), position
    raise ValueError("Varint is too long, the most significant bit in the 5th byte is set, "
                     f"converted value: {value & 0xFFFFFFFF:x}")


def unsigned_varint(value: int) -> bytes:
    """The varint of a number that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_frame(data: bytes) -> tuple[int, int, int]:
    """Api key and version of a framed message, and the position of its body.

    Raises MetadataParseError with Kafka's text.
    """
    if len(data) > 2 and data[0] == FRAME_VERSION and data[1] < 0x80 and data[2] < 0x80:
        return data[1], data[2], 3  # what Kafka writes; the rest handles all other bytes
    frame, position = _frame_number(data, 0, "frame version")
    if frame == 0:
        raise MetadataParseError(
            "Could not deserialize metadata record with frame version 0. Note that upgrades from "
            "the preview release of KRaft in 2.8 to newer versions are not supported.",
            position=0, expected=FRAME_VERSION, found=0)
    if frame != FRAME_VERSION:
        raise MetadataParseError(
            "Could not deserialize metadata record due to unknown frame version "
            f"{frame}(only frame version {FRAME_VERSION} is supported)",
            position=0, expected=FRAME_VERSION, found=frame)
    api_key, position = _frame_number(data, position, "type")
    version, position = _frame_number(data, position, "version")
    return api_key, version, position


def _frame_number(data: bytes, position: int, name: str) -> tuple[int, int]:
    try:
        value, after = read_unsigned_varint(data, position)
    except (IndexError, ValueError):
        raise MetadataParseError(f"Error while reading {name}", position=position) from None
    if value > _INT16_MAX:
        raise MetadataParseError(f"Value for {name} was too large.", position=position,
                                 expected=f"at most {_INT16_MAX}", found=value)
    value &= 0xFFFF  # the cast to short
    return value - ((value & 0x8000) << 1), after
