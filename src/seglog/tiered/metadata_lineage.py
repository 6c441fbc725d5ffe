"""How the copied segments of a partition fit together, by what the metadata topic says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from seglog.tiered.metadata_finding import (
    METADATA_CODES, MetadataFinding, MetadataSeverity,
)
from seglog.tiered.partition_catalog import merged_epochs
from seglog.tiered.remote_records import RemoteLogSegmentMetadata, id_text
from seglog.tiered.remote_segment import RemoteSegment, announced_segment
from seglog.tiered.segment_selection import TierFinding, select_segments

__all__ = ["LiveSegment", "lineage_findings"]


class LiveSegment(NamedTuple):
    """A segment that is not deleted, and the record that said so last."""

    metadata: RemoteLogSegmentMetadata
    partition: int
    offset: int

    def finding(self, code: str, message: str, severity: MetadataSeverity | None = None,
                age_ms: int | None = None) -> MetadataFinding:
        """A finding about the segment, as bad as its code says if `severity` does not."""
        return MetadataFinding(
            code, severity or METADATA_CODES[code][0], message, self.partition, self.offset,
            topic_partition=str(self.metadata.topic_id_partition),
            segment_id=id_text(self.metadata.remote_log_segment_id.id), age_ms=age_ms)


def lineage_findings(copied: Sequence[LiveSegment]) -> list[MetadataFinding]:
    """Gaps, overlaps and segments of other lineages. The lineage is that of the newest epoch."""
    records = {one.metadata.remote_log_segment_id.id: one for one in copied}
    segments = sorted((announced_segment(one.metadata, {}, one.metadata.segment_size_in_bytes)
                       for one in copied), key=lambda one: one.start_offset)
    outside: list[TierFinding] = []
    pieces = select_segments(segments, merged_epochs(segments), None, outside)
    findings = []

    def add(code: str, segment: RemoteSegment, message: str) -> None:
        findings.append(records[segment.segment_id or b""].finding(code, message))

    by_name: dict[str, Any] = {str(one): one for one in segments}
    for finding in outside:
        if finding.code == "outside_lineage":
            add("outside_lineage", by_name[finding.object or ""], finding.message)
    read: dict[bytes | None, RemoteSegment] = {}
    before = None
    for piece in pieces:
        if piece.segment is None:
            continue
        if before is not None and piece.start_offset > before.end_offset + 1:
            add("segment_gap", piece.segment, f"offsets {before.end_offset + 1} to "
                f"{piece.start_offset - 1} are in no segment: they lie between {before.segment} "
                f"and {piece.segment}")
        elif before is not None and piece.start_offset <= before.end_offset:
            add("segment_overlap", piece.segment, f"{before.segment} and {piece.segment} both hold "
                f"offsets {piece.start_offset} to {before.end_offset}")
        read[piece.segment.segment_id], before = piece.segment, piece
    left_out = {finding.object for finding in outside if finding.code == "outside_lineage"}
    for segment in segments:
        if segment.segment_id not in read and str(segment) not in left_out:
            add("segment_overlap", segment, f"{segment}: other segments hold its offsets "
                f"{segment.start_offset} to {segment.end_offset} too")
    return findings
