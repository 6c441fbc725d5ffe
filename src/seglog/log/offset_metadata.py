"""An offset and the position of its batch in the log (Kafka: LogOffsetMetadata)."""

from __future__ import annotations

from seglog._native.fetch import LogOffsetMetadata

__all__ = ["LogOffsetMetadata"]
