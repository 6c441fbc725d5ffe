"""The rows of a load's JSON: one per partition directory and one per finding (docs/json.md).

The same number has the same name in the rows of all verbs. Unknown values are None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from seglog.recovery.findings import (
    DAMAGE_CODES, LOSS_CODES, Finding, Severity, is_denied,
)
from seglog.storage.paths import CLUSTER_METADATA_TOPIC, directory_name_or_none

__all__ = ["COMPACTION_FIELDS", "DIRECTORY_FIELDS", "FINDING_FIELDS", "LOSS_FIELDS",
           "PARTITION_FIELDS", "compaction_row", "directory_row", "exit_code", "finding_row",
           "partition_row", "totals_of"]

Row = dict[str, Any]

DIRECTORY_FIELDS: Final = (
    "path", "clean_shutdown", "clean_after", "in_use_by", "level", "threads", "thread_segments",
    "seconds", "error", "message")

PARTITION_FIELDS: Final = (
    "path", "directory", "topic", "partition", "kind", "segment_count", "size",
    "log_start_offset", "log_end_offset", "last_stable_offset", "high_watermark",
    "recovery_point", "producer_state_end_offset", "leader_epoch", "leader_epochs", "topic_id",
    "batches", "records", "recovery_segment_count", "recovery_size",
    "recovery_batches", "recovery_records", "unread_segment_count",
    "unread_size", "segments", "producers", "compaction", "error", "message")

#: The fields of `compaction`, in a row of `seglog compact`.
COMPACTION_FIELDS: Final = (
    "first_dirty_offset", "first_uncleanable_offset", "end_offset", "dirty_ratio", "rounds",
    "keys", "is_map_full", "size_before", "size_after", "records_before", "records_after",
    "waiting_tombstones", "waiting_markers", "waiting_until_ms", "uncleanable_file",
    "uncleanable_position")

FINDING_FIELDS: Final = (
    "path", "directory", "topic", "partition", "file", "position", "code", "severity", "message",
    "expected", "found", "offset", "last_offset", "bytes", "records", "batches", "unread_bytes",
    "kafka_error", "action")

LOSS_FIELDS: Final = ("findings", "partitions", "batches", "records", "bytes", "unread_bytes")


def _topic_fields(directory: str | None) -> Row:
    """Topic, partition and kind from the name of a partition directory."""
    name = None if directory is None else directory_name_or_none(directory)
    if name is None:
        return {"topic": None, "partition": None, "kind": None}
    key = name.topic_partition
    kind = "metadata" if key.topic == CLUSTER_METADATA_TOPIC else name.kind.name.lower()
    return {"topic": key.topic, "partition": key.partition, "kind": kind}


def compaction_row(**known: Any) -> Row:
    """The `compaction` of a partition's row: every field of COMPACTION_FIELDS."""
    return _known(COMPACTION_FIELDS, known)


def directory_row(path: str, **known: Any) -> Row:
    """A row of `directories`: every field of DIRECTORY_FIELDS, None if not in `known`."""
    return {**_known(DIRECTORY_FIELDS, known), "path": path}


def partition_row(path: str, directory: str, **known: Any) -> Row:
    """A row of `partitions`: every field of PARTITION_FIELDS, None if not in `known`.

    `path` is the data directory's, `directory` the partition directory's name. Raises TypeError for
    a field that the format does not have.
    """
    return {**_known(PARTITION_FIELDS, known), "path": path, "directory": directory,
            **_topic_fields(directory)}


def _known(fields: tuple[str, ...], known: Row) -> Row:
    unknown = known.keys() - set(fields)
    if unknown:
        raise TypeError(f"no fields of this row: {', '.join(sorted(unknown))}")
    return {**dict.fromkeys(fields), **known}


def finding_row(path: str, found: Finding) -> Row:
    """A row of `findings`: every field of FINDING_FIELDS. `path` is the data directory's."""
    fields = found.to_dict()
    where = _topic_fields(found.directory)
    fields.update(path=path, topic=where["topic"], partition=where["partition"])
    return {name: fields[name] for name in FINDING_FIELDS}


def exit_code(directories: Sequence[Row], partitions: Sequence[Row], findings: Sequence[Row]
              ) -> int:
    """The exit code of `load` and `verify`. 0: no problem; 1: a problem, or lost data; 2: a
    directory could not be completed, or this user may not read all of it."""
    errors = [row for row in findings if row["severity"] in ("error", "fatal")]
    if (any(row["error"] is not None for row in directories)
            or any(is_denied(row["message"], row["found"]) for row in errors)):
        return 2
    return 1 if errors or any(row["error"] is not None for row in partitions) else 0


def totals_of(partitions: Sequence[Row], findings: Sequence[Row]) -> Row:
    """The sums of all rows. A sum is None if no row has the value. Sound batches and records are
    None unless all loadable logs were read completely."""
    counted = Counter(row["severity"] for row in findings)
    loaded = [row for row in partitions if row["error"] is None]
    read = loaded if all(row["batches"] is not None for row in loaded) else []
    return {
        "partitions": len(partitions), "segments": _sum(partitions, "segment_count"),
        "size": _sum(partitions, "size"), "batches": _sum(read, "batches") if read else None,
        "records": _sum(read, "records") if read else None,
        "recovery_segments": _sum(partitions, "recovery_segment_count"),
        "recovery_size": _sum(partitions, "recovery_size"),
        "recovery_batches": _sum(partitions, "recovery_batches"),
        "recovery_records": _sum(partitions, "recovery_records"),
        "unread_segments": _sum(partitions, "unread_segment_count"),
        "unread_size": _sum(partitions, "unread_size"),
        "errors": sum(1 for row in partitions if row["error"] is not None),
        "findings": {one.name.lower(): counted[one.name.lower()] for one in Severity},
        "lost": _loss(row for row in findings if row["code"] in LOSS_CODES),
        "damaged": _loss(row for row in findings if row["code"] in DAMAGE_CODES),
    }


def _sum(rows: Sequence[Row], name: str) -> int | None:
    known = [row[name] for row in rows if row[name] is not None]
    return sum(known) if known or not rows else None


def _loss(rows: Iterable[Row]) -> Row:
    found = list(rows)
    return {"findings": len(found),
            "partitions": len({(row["path"], row["directory"]) for row in found}),
            **{name: sum(row[name] or 0 for row in found) for name in LOSS_FIELDS[2:]}}
