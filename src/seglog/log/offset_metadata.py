"""An offset and where in the log its batch is (Kafka: LogOffsetMetadata)."""

from __future__ import annotations

from seglog._native.fetch import LogOffsetMetadata

__all__ = ["LogOffsetMetadata"]
