"""An offset and where in the log its batch is (Kafka: LogOffsetMetadata)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LogOffsetMetadata"]

_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class LogOffsetMetadata:
    """`message_offset`, and of its batch the base offset of the segment and the byte in its log;
    both -1 where only the offset is known."""

    message_offset: int
    segment_base_offset: int = _UNKNOWN
    relative_position_in_segment: int = _UNKNOWN

    @property
    def message_offset_only(self) -> bool:
        """Whether nobody has looked up where the offset is."""
        return (self.segment_base_offset == _UNKNOWN
                and self.relative_position_in_segment == _UNKNOWN)

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Whether its segment is one before the other's; no, where one of them is not known."""
        return (not self.message_offset_only and not other.message_offset_only
                and self.segment_base_offset < other.segment_base_offset)

    def __str__(self) -> str:
        return (f"(offset={self.message_offset}, "
                f"segment=[{self.segment_base_offset}:{self.relative_position_in_segment}])")
