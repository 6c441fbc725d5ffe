"""The iteration order of a Java HashMap with Long keys, and the hash of its String keys.

Kafka writes a producer snapshot in the order of such a map, so the bytes of the file depend on it.
The number of buckets is a power of two, at least 16 and more than 4/3 of the keys. A key's bucket
is the low bits of its hash; within a bucket keys stay in insertion order. A bucket of more than
eight keys doubles a map of fewer than 64 buckets. (In larger maps Java turns it into a tree and may
move one key to the front. This module does not: it takes nine keys in one bucket of a map that is
at most three quarters full.)
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

__all__ = ["hash_order", "spread_hash"]

_BUCKETS_MIN: Final = 16
_TREE_BUCKETS_MIN: Final = 64
_BUCKET_KEYS_MAX: Final = 8


def _buckets(count: int) -> int:
    buckets = _BUCKETS_MIN
    while count > buckets * 3 // 4:
        buckets *= 2
    return buckets


def _grown_by_collisions(hashes: list[int]) -> int:
    """The number of buckets after these insertions, when long buckets double a small map."""
    buckets = _BUCKETS_MIN
    for count, value in enumerate(hashes):
        if buckets >= _TREE_BUCKETS_MIN:
            break
        held = sum(1 for other in hashes[:count] if (other ^ value) & (buckets - 1) == 0)
        if held >= _BUCKET_KEYS_MAX:
            buckets *= 2
        if count + 1 > buckets * 3 // 4:
            buckets *= 2
    return max(buckets, _buckets(len(hashes)))


def hash_order(keys: Collection[int]) -> list[int]:
    """`keys` (unique int64, in insertion order) in the order in which the map iterates."""
    array = np.fromiter(keys, np.int64, len(keys))
    folded = (array ^ (array >> 32)).astype(np.uint32)  # Long.hashCode
    hashes = folded ^ (folded >> np.uint32(16))         # HashMap.hash
    buckets = _buckets(len(array))
    if buckets <= _TREE_BUCKETS_MIN:
        buckets = _grown_by_collisions(hashes.tolist())
    order = np.argsort(hashes & np.uint32(buckets - 1), kind="stable")
    ordered: list[int] = array[order].tolist()
    return ordered


def spread_hash(text: str) -> int:
    """String.hashCode as HashMap.hash spreads it. Its low bits are the bucket."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value ^ value >> 16
