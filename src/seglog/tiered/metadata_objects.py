"""Copied segments of the metadata topic against the objects in a bucket: names and sizes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seglog.model import TopicPartition
from seglog.tiered.bucket import Bucket
from seglog.tiered.metadata_finding import MetadataFinding
from seglog.tiered.metadata_lineage import LiveSegment
from seglog.tiered.remote_records import TopicIdPartition
from seglog.tiered.remote_segment import RemoteSegment

__all__ = ["find_absent_objects"]


def find_absent_objects(bucket: Bucket, copied: Mapping[TopicIdPartition, Sequence[LiveSegment]]
                        ) -> list[MetadataFinding]:
    """Segments that are announced as copied and are not there, not whole, or of another size.

    Raises KafkaStorageError if the bucket cannot be listed.
    """
    findings = []
    for key, segments in copied.items():
        if not segments:
            continue
        partition = bucket.find(TopicPartition(key.topic, key.partition), key.topic_id)
        listed = [] if partition is None else bucket.layout.listed(bucket.tree, partition)
        whole = [] if partition is None else bucket.layout.segments(bucket.tree, partition)
        for one in segments:
            problem = _problem(one, _of(one, listed), _of(one, whole))
            if problem is not None:
                findings.append(one.finding(*problem))
    return findings


def _of(one: LiveSegment, found: Sequence[RemoteSegment]) -> RemoteSegment | None:
    """The objects of a segment. Layouts without ids name it by its start offset alone."""
    metadata = one.metadata
    return next((segment for segment in found if segment.start_offset == metadata.start_offset
                 and segment.segment_id in (None, metadata.remote_log_segment_id.id)), None)


def _problem(one: LiveSegment, listed: RemoteSegment | None, whole: RemoteSegment | None
             ) -> tuple[str, str] | None:
    metadata = one.metadata
    offsets = f"offsets {metadata.start_offset} to {metadata.end_offset}"
    if whole is None:
        there = "none is there" if listed is None else \
            f"of its objects only {', '.join(sorted(listed.objects))} are there"
        return "object_missing", f"{offsets} are announced as copied, and {there}"
    if whole.size is not None and whole.size != metadata.segment_size_in_bytes:
        return "object_size", (f"{whole} has {whole.size} bytes, {metadata.segment_size_in_bytes} "
                               "were announced")
    return None
