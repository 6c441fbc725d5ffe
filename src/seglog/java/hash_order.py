"""The hash that places a String key in a Java HashMap. What Kafka's tools print follows it."""

from __future__ import annotations

__all__ = ["spread_hash"]


def spread_hash(text: str) -> int:
    """String.hashCode as HashMap.hash spreads it. Its low bits are the bucket."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value ^ value >> 16
