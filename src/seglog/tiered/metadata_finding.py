"""What a linter of __remote_log_metadata says, and the codes that it has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["METADATA_CODES", "MetadataFinding", "MetadataSeverity"]

MetadataSeverity = Literal["error", "warning", "info"]

#: Each code, how bad it is, and what it means. Codes are stable.
METADATA_CODES: Final[dict[str, tuple[MetadataSeverity, str]]] = {
    "damaged_batch": ("error", "records that cannot be read"),
    "records_missing": ("error", "offsets that the partition no longer has: deleted or compacted"),
    "undecodable": ("error", "a value that Kafka's serde refuses; it ends the reader of a broker"),
    "unknown_type": ("error", "an api key that Kafka 4.3.1 does not have"),
    "null_value": ("error", "a record without a value, a tombstone of KIP-1266; Kafka 4.3.1 fails"),
    "refused_event": ("error", "an event that Kafka's cache refuses, such as a snapshot"),
    "wrong_partition": ("error", "a metadata partition where no broker looks for it"),
    "segment_gap": ("error", "offsets between copied segments that none of them holds"),
    "object_missing": ("error", "a copied segment whose objects are not in the bucket"),
    "object_size": ("error", "a log that is shorter or longer than announced"),
    "topic_config": ("error", "a setting of the topic by which records are lost"),
    "invalid_transition": ("warning", "a state that may not follow; Kafka drops the event"),
    "unknown_segment": ("warning", "an update of a segment that was not announced"),
    "unknown_version": ("warning", "a message version above 0"),
    "unknown_tag": ("warning", "a tagged field that Kafka 4.3.1 does not have"),
    "not_canonical": ("warning", "bytes that Kafka would not write, though it reads them"),
    "keyed_record": ("warning", "a record with a key, as KIP-1266 proposes"),
    "epochs_outside": ("warning", "leader epochs that begin outside of their segment"),
    "segments_left": ("warning", "a partition that was deleted before its segments"),
    "unfinished_copy": ("warning", "a copy that began and did not finish; info while it is young"),
    "unfinished_delete": ("warning", "a deletion, the same"),
    "segment_overlap": ("info", "offsets that two copied segments hold"),
    "outside_lineage": ("info", "a copied segment of leader epochs that the log does not have"),
}


@dataclass(frozen=True, slots=True)
class MetadataFinding:
    """Something about the metadata topic that an operator should know.

    `partition` and `offset` are those of the record in __remote_log_metadata, None where no single
    record is meant. `position` is a byte of the value, or of `file`. `topic_partition` and
    `segment_id` are what the record is about. `age_ms` is that of an unfinished copy or deletion.
    """

    code: str
    severity: MetadataSeverity
    message: str
    partition: int | None = None
    offset: int | None = None
    position: int | None = None
    topic_partition: str | None = None
    segment_id: str | None = None
    age_ms: int | None = None

    def __str__(self) -> str:
        where = "" if self.partition is None else f" {self.partition}@{self.offset}" \
            if self.offset is not None else f" {self.partition}"
        return f"{self.severity} {self.code}{where}: {self.message}"
