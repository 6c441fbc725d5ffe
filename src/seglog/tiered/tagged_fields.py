"""Tagged fields in records of __remote_log_metadata that this version of the messages does not have
(KIP-482). The serde skips them, as Kafka's does; a linter names them."""

from __future__ import annotations

from typing import Final

from seglog.tiered.api_frames import read_frame, read_unsigned_varint
from seglog.tiered.remote_records import ID_BYTES

__all__ = ["unknown_tags"]

_TEXT: Final = "text"
_BYTES: Final = "nullable bytes"
_EPOCHS: Final = "epochs"
_TAGS: Final = "tags"
_TAGS_WITH_FLAG: Final = "tags, of which 0 is TxnIndexEmpty"
#: Numbers are sizes of fields in bytes. Messages in storage/src/main/resources/message of Kafka.
_PARTITION: Final = (_TEXT, ID_BYTES + 4, _TAGS)
_SEGMENT_ID: Final = (*_PARTITION, ID_BYTES, _TAGS)
_SEGMENT: Final = (8 + 8 + 4 + 8 + 8, _EPOCHS, 4, _BYTES, 1, _TAGS_WITH_FLAG)
_MESSAGES: Final[dict[int, tuple[int | str, ...]]] = {
    0: (*_SEGMENT_ID, *_SEGMENT),
    1: (*_SEGMENT_ID, 4 + 8, _BYTES, 1, _TAGS),
    2: (*_PARTITION, 4 + 8, 1, _TAGS),
    3: (ID_BYTES, *_SEGMENT),
}
_EPOCH_BYTES: Final = 4 + 8


def unknown_tags(data: bytes) -> list[tuple[int, int]]:
    """(tag, its byte in the value) of each tagged field that the messages do not have, for a value
    that `deserialize` accepts."""
    key, _, position = read_frame(data)
    found: list[tuple[int, int]] = []
    for step in _MESSAGES[key]:
        if isinstance(step, int):
            position += step
        elif step == _EPOCHS:
            count, position = read_unsigned_varint(data, position)
            for _ in range(count - 1):
                position = _skip_tags(data, position + _EPOCH_BYTES, found, has_flag=False)
        elif step in (_TEXT, _BYTES):
            size, position = read_unsigned_varint(data, position)
            position += max(size - 1, 0)
        else:
            position = _skip_tags(data, position, found, has_flag=step == _TAGS_WITH_FLAG)
    return found


def _skip_tags(data: bytes, position: int, found: list[tuple[int, int]], *, has_flag: bool) -> int:
    """The position after the tagged fields of a structure."""
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        start = position
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        if has_flag and tag == 0:
            position += 1  # Kafka does not check the size
        else:
            position += size
            found.append((tag, start))
    return position
