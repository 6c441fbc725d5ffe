"""partition.metadata files that are longer than any that Kafka writes."""

from __future__ import annotations

__all__ = ["LONG_METADATA"]

_TWO_LINES = b"version: 0\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w\n"
#: What Kafka loads (None), refuses, or would load and we do not: memory is bounded.
LONG_METADATA: list[tuple[str, bytes, str | None]] = [
    ("2 MiB of anything behind", _TWO_LINES + b"x" * (2 << 20), None),
    ("2 MiB of zeros behind", _TWO_LINES + bytes(2 << 20), None),
    ("not UTF-8 far behind", _TWO_LINES + b"x" * 10_000 + b"\xff", None),
    ("not UTF-8 behind", _TWO_LINES + b"x" * 100 + b"\xff", "checkpoint_encoding"),
    ("a first line of 9000 characters", b"v" * 9000 + _TWO_LINES + b"\n" + b"\xff" * 20_000,
     "checkpoint_encoding"),
    ("a first line of 2 MiB", b"v" * (2 << 20) + _TWO_LINES, "checkpoint_too_large"),
]
