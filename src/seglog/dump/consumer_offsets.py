"""Committed offsets of consumer groups, from records of __consumer_offsets.

Kafka's GroupCoordinatorService loads OffsetCommitKey and OffsetCommitValue: the latest record of a
key counts, and a tombstone (a record without a value) deletes the key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from seglog.dump.messages import MessageError, Reader, messages

__all__ = ["CommittedOffset", "committed_offsets"]

#: LegacyOffsetCommitKey and OffsetCommitKey, which have the same fields.
_OFFSET_KEYS = (0, 1)


class CommittedOffset(NamedTuple):
    """The offset that a group has committed for one partition.

    `leader_epoch` and `expire_timestamp` (ms) are -1 if the commit lacks them. `commit_timestamp`
    is in ms; `record_offset` is the offset of the record in __consumer_offsets.
    """

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    record_offset: int


def committed_offsets(records: Iterable[tuple[int, bytes | None, bytes | None]]
                      ) -> list[CommittedOffset]:
    """The current commits, given the committed records as (offset, key, value) in order.

    Sorted by group, topic and partition. Skips records of other kinds (members, assignments).
    Raises MessageError with the offset of a key or value that does not parse.
    """
    found: dict[bytes, tuple[int, int, bytes | None]] = {}
    for offset, key, value in records:
        kind = -1 if key is None else int.from_bytes(key[:2], "big", signed=True)
        if key is not None and kind in _OFFSET_KEYS:
            found[key[2:]] = (kind, offset, value)
    commits = [_commit(kind, key, offset, value) for key, (kind, offset, value) in found.items()
               if value is not None]
    return sorted(commits, key=lambda one: (one.group, one.topic, one.partition))


def _commit(kind: int, key: bytes, offset: int, value: bytes) -> CommittedOffset:
    schema = messages("offsets-value")[kind]
    try:
        keys = messages("offsets-key")[kind].read(Reader(key), 0)
        reader = Reader(value)
        version = int(reader.fixed(">h"))
        if not schema.lowest <= version <= schema.highest:
            raise MessageError(f"Found an unknown record version {version}")
        values: dict[str, Any] = schema.read(reader, version)
    except MessageError as error:
        raise MessageError(f"the commit at offset {offset} does not parse: {error}") from None
    return CommittedOffset(
        keys["group"], keys["topic"], keys["partition"], values["offset"],
        values.get("leaderEpoch", -1), values["metadata"], values["commitTimestamp"],
        values.get("expireTimestamp", -1), offset)
