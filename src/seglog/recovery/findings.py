"""What a load can find: one stable code per kind of problem (docs/findings.md lists them)."""

from __future__ import annotations

import enum
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from seglog._native.status import Status

__all__ = ["DAMAGE_CODES", "FINDINGS", "LOSS_CODES", "Finding", "FindingKind", "Report", "Severity",
           "finding", "is_denied", "status_code"]


class Severity(enum.IntEnum):
    """The severity of a finding, by Kafka's reaction."""

    INFO = 0      # nothing is wrong; Kafka cleans up or ignores it
    WARNING = 1   # Kafka repairs it at start, no record is lost
    ERROR = 2     # records are or would be lost, or answers would be wrong
    FATAL = 3     # Kafka does not load it: the broker stops, or the directory goes offline


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A kind of finding: its code, severity, meaning, and what Kafka does about it."""

    code: str
    severity: Severity
    meaning: str
    action: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem: its place, expected and found, and what Kafka would do.

    `directory` is the partition directory's name (None: the data directory itself), `file` a name
    inside it, `position` a byte of that file. `bytes`, `records`, `batches`, `offset` and
    `last_offset` say what is damaged, or what an action would cost: the bytes, upper bounds of the
    records and batches by their headers, and their first and last offset. `unread_bytes` of the
    bytes have no readable header. `kafka_error` is the exception with which Kafka fails, if it
    does.
    """

    code: str
    severity: Severity
    message: str
    action: str
    directory: str | None = None
    file: str | None = None
    position: int | None = None
    expected: Any = None
    found: Any = None
    offset: int | None = None
    last_offset: int | None = None
    bytes: int | None = None
    records: int | None = None
    batches: int | None = None
    unread_bytes: int | None = None
    kafka_error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON; None for unknown ones."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["severity"] = self.severity.name.lower()
        return fields


#: Receives each finding as it is made.
Report: TypeAlias = Callable[[Finding], object]

_I, _W, _E, _F = Severity.INFO, Severity.WARNING, Severity.ERROR, Severity.FATAL

_NONE = "none"
_STOP = "the broker stops"
_OFFLINE = "the data directory goes offline"
# The broker runs as another user.
_OFFLINE_IF_DENIED = f"{_OFFLINE} if the broker's user may not read it either"
_DENIED = os.strerror(errno.EACCES)
_RECOVER = "recovers the segment and rebuilds its indexes"
_READS_WRONG = "none at load; lookups give wrong answers until the index is rebuilt"
_CUT = "at a recovery everything from here on is cut; after a clean shutdown only readers notice"

_KINDS = (
    # The data directory.
    ("directory-unreadable", _E, "a directory cannot be listed", _OFFLINE),
    ("directory-name", _F, "a directory whose name is no topic-partition", _STOP),
    ("commit-unfinished", _F, "a crash interrupted the commit of a job, such as Spark's", _STOP),
    # LogManager.loadLogs lists directories only; createLogDirectory fails on the file.
    ("directory-is-file", _W, "a file, or a link to nothing, with the name of a partition",
     "ignores it; if it is to create the partition here, the data directory goes offline"),
    ("directory-deleted", _I, "a partition directory marked for deletion",
     "loads it and deletes it later"),
    ("directory-future", _I, "a copy that a move between data directories builds",
     "goes on with the move"),
    ("directory-stray", _W, "a partition that the metadata did not assign to this broker",
     "keeps it aside and does not serve it"),
    ("directory-metadata", _I, "the log of the metadata quorum",
     "is loaded by the Raft layer, not with the others"),
    ("duplicate-partition", _F, "two directories hold the same partition", _STOP),
    ("unclean-shutdown", _W, "the clean shutdown marker is missing",
     "recovers every log from its recovery point"),
    ("directory-in-use", _W, "another process has the directory open for writing",
     "refuses to start beside it"),
    ("owner-not-kept", _W, "new files could not be given to the owner of the directory",
     "stops at, or takes the directory offline for, a file that it may not open"),
    ("checkpoint-malformed", _E, "an offset checkpoint does not parse",
     "resets it to 0 for all partitions, and takes the directory offline after loading unless a "
     "number is to blame"),
    ("meta-properties-missing", _W, "meta.properties is missing", _STOP),
    ("meta-properties-malformed", _F, "meta.properties does not parse", _STOP),
    # Names and kinds of files in a partition directory.
    ("name-not-a-number", _F, "a segment suffix behind something that is no number", _STOP),
    ("name-not-canonical", _W, "a number that is not written with 20 digits",
     "opens the segment of that number under its 20-digit name, empty if it is missing"),
    ("file-foreign", _I, "a file that is none of Kafka's", _NONE),
    ("file-kind", _E, "a link, directory, fifo or device where a file is expected",
     "follows links, ignores directories, may hang or fail on anything else"),
    ("file-missing", _I, "a file vanished after it was listed", _NONE),
    ("file-unreadable", _E, "a system call on the file failed", _OFFLINE),
    ("file-shrank", _W, "the file lost bytes while it was read", _NONE),
    ("file-too-large", _F, "a log file above 2^31 - 1 bytes", _STOP),
    ("limit", _E, "a file larger than anything Kafka writes there", _NONE),
    # Temporaries.
    ("temporary-deleted", _I, "a file waiting for removal", "deletes it"),
    ("temporary-cleaned", _I, "output of a compaction or split that was not finished",
     "deletes it"),
    ("swap-incomplete", _I, "a replacement not all of which had been renamed", "deletes it"),
    ("swap-complete", _W, "a replacement that had not been put in place",
     "puts it in place of the files it replaces"),
    ("swap-replaced", _W, "a file in the range that a completed swap covers", "deletes it"),
    # Indexes.
    ("orphan-index", _W, "an index without a log", "deletes it"),
    ("index-missing", _W, "a log without an offset index", _RECOVER),
    ("time-index-missing", _I, "a log without a time index", "creates an empty one"),
    ("index-size", _W, "an index whose size is no multiple of its entries", _READS_WRONG),
    ("index-offset-order", _W, "an index offset not above the one before", _READS_WRONG),
    ("index-position-order", _W, "an index position not above the one before", _READS_WRONG),
    ("index-time-order", _W, "an index timestamp not above the one before", _READS_WRONG),
    ("index-offset-range", _W, "an index offset outside of its segment", _READS_WRONG),
    ("index-position-range", _W, "an index position outside of the log file", _READS_WRONG),
    ("index-padded", _W, "an index preallocated and never trimmed", _READS_WRONG),
    ("index-unwritten", _W, "an index of zeros alone", _READS_WRONG),
    ("index-not-a-batch", _W, "an index entry that does not point to its batch", _READS_WRONG),
    ("index-timestamp", _W, "a time index entry that the timestamps of the log contradict",
     _READS_WRONG),
    ("txn-size", _W, "a transaction index with a torn entry at its end",
     "ignores the torn entry; entries appended behind it are lost"),
    ("txn-version", _F, "a transaction index entry of an unknown version", _STOP),
    ("txn-offset", _W, "a transaction index entry out of its segment or order", _RECOVER),
    # Logs.
    ("segments-unflushed", _I, "segments at or above the recovery point of an unclean log",
     "scans them and cuts them at the first bad batch"),
    ("segment-rebuilt", _I, "a segment that is scanned again, with the bytes and records that stay",
     "rebuilds its indexes, producers and leader epochs"),
    ("torn-tail", _E, "an incomplete batch at the end of a segment",
     "is cut at a recovery; stays in the file after a clean shutdown"),
    ("zero-tail", _W, "zeros at the end of a segment",
     "are cut at a recovery; after a clean shutdown the broker stops"),
    ("batch-length", _E, "a batch length below the minimum", _CUT),
    ("batch-size", _E, "a batch smaller than its header", _CUT),
    ("batch-crc", _E, "a batch whose CRC does not match", _CUT),
    ("batch-magic", _W, "a magic that no Kafka writes",
     "reads it as magic 2, or as an old message"),
    ("batch-codec", _E, "codec bits that name no codec", "none at load; consumers fail on it"),
    ("batch-record-count", _E, "a record count that cannot be", "none at load; consumers fail"),
    ("batch-last-offset", _E, "a last offset below the base offset, or beyond 2^63", _NONE),
    ("batch-offset-order", _E, "offsets that go backwards inside a segment",
     "none, unless an index entry is due there: then the whole segment is emptied"),
    ("batch-offset-range", _E, "an offset outside of its segment",
     "splits the segment at a recovery"),
    ("batch-attributes", _E, "attribute bits that Kafka never writes", _NONE),
    ("log-truncated", _E, "a recovery that loses bytes", "cuts the segment"),
    ("segments-removed", _E, "whole segments behind the cut of a recovery",
     "renames them to .deleted and removes them"),
    ("segment-emptied", _E, "a recovery that meets offsets going backwards",
     "empties the whole segment"),
    ("offset-overflow", _W, "an offset too far from the base of its segment",
     "splits the segment in two or more and starts over"),
    ("log-end-below-start", _E, "a log that ends below its checkpointed start",
     "deletes all segments and starts an empty log at the checkpoint"),
    ("log-unloadable", _F, "a log that Kafka's loader gives up", _STOP),
    ("offset-gap", _I, "offsets missing between two segments, as compaction leaves them", _NONE),
    # Producer state, leader epochs, topic id.
    ("snapshot-missing", _W, "idempotent or transactional data without a producer snapshot",
     "rebuilds it from the log after an unclean shutdown, forgets it after a clean one"),
    ("snapshot-corrupt", _W, "a producer snapshot that does not parse or has a bad CRC",
     "deletes it and falls back to an older one"),
    ("snapshot-stray", _I, "a producer snapshot that belongs to no segment", "deletes it"),
    ("epochs-missing", _I, "leader-epoch-checkpoint is missing", "creates an empty one"),
    ("epochs-malformed", _F, "leader-epoch-checkpoint does not parse", _OFFLINE),
    ("epochs-beyond-end", _I, "a leader epoch without records, at or behind the log's end",
     "drops it"),
    ("topic-id-missing", _W, "partition.metadata is missing", "treats the log as stray"),
    ("topic-id-malformed", _F, "partition.metadata does not parse", _STOP),
    ("findings-omitted", _I, "more problems of one kind than a report lists", _NONE),
)

#: Findings that tell which bytes of logs a recovery drops, each byte once.
LOSS_CODES: Final = frozenset({
    "log-truncated", "segment-emptied", "segments-removed", "log-end-below-start"})
#: Findings about batches that cannot be read, as far as level `verify` reads.
DAMAGE_CODES: Final = frozenset({
    "torn-tail", "batch-length", "batch-size", "batch-crc", "batch-codec", "batch-record-count",
    "batch-last-offset", "batch-offset-order"})

FINDINGS: Final[dict[str, FindingKind]] = {kind[0]: FindingKind(*kind) for kind in _KINDS}

_OF_STATUS = {
    Status.IO: "file-unreadable", Status.LEGACY_CODEC: "batch-codec",
    Status.TORN_TAIL: "torn-tail", Status.ZERO_TAIL: "zero-tail",
}


def status_code(status: int) -> str:
    """The finding code of a native status."""
    known = Status(status)
    return _OF_STATUS.get(known) or known.code.replace("_", "-")


def finding(code: str, *, severity: Severity | None = None, message: str | None = None,
            action: str | None = None, **where: Any) -> Finding:
    """Creates a Finding of this code; severity, message and action default to the code's."""
    kind = FINDINGS[code]
    if action is None and kind.action == _OFFLINE and is_denied(message, where.get("found")):
        action = _OFFLINE_IF_DENIED
    return Finding(code, kind.severity if severity is None else severity,
                   message or kind.meaning, action or kind.action, **where)


def is_denied(*texts: object) -> bool:
    """Whether the message of a finding, or what it found, is that this user may not read."""
    return any(_DENIED in str(text) for text in texts)
