"""The log cleaner's offset map slot by slot, and what a compacted log has to hold."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


class SkimpyMap:
    """Kafka's SkimpyOffsetMap with so many slots."""

    def __init__(self, slots: int) -> None:
        self.slots: list[tuple[bytes, int] | None] = [None] * slots

    def __len__(self) -> int:
        return sum(slot is not None for slot in self.slots)

    def position(self, digest: bytes, attempt: int) -> int:
        at = min(attempt, 12)
        probe = int.from_bytes(digest[at:at + 4], "big", signed=True) + attempt - at
        probe = (probe + 2**31) % 2**32 - 2**31
        return (0 if probe == -2**31 else abs(probe)) % len(self.slots)

    def put(self, key: bytes, offset: int) -> None:
        digest, attempt = hashlib.md5(key).digest(), 0
        while (slot := self.slots[self.position(digest, attempt)]) and slot[0] != digest:
            attempt += 1
        self.slots[self.position(digest, attempt)] = (digest, offset)

    def get(self, key: bytes) -> int:
        digest = hashlib.md5(key).digest()
        for attempt in range(len(self.slots) + 12):
            slot = self.slots[self.position(digest, attempt)]
            if slot is None:
                return -1
            if slot[0] == digest:
                return slot[1]
        return -1


def last_values(rows: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    """The last value of each key of (key, value) pairs; none of a key whose last value is null."""
    found = dict(rows)
    return {key: value for key, value in found.items() if value is not None}
