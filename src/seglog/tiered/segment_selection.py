"""Chooses the remote segments that form one log, by leader-epoch lineage.

Two leaders may have uploaded the same offsets, and after an unclean election offsets that the log
no longer has. An offset belongs to the segment that holds it in the epoch that it has in the
lineage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seglog.model import EpochEntry
from seglog.tiered.remote_records import SegmentLeaderEpochs
from seglog.tiered.remote_segment import RemoteSegment

__all__ = ["Piece", "TierFinding", "end_in_lineage", "select_segments"]


@dataclass(frozen=True, slots=True)
class TierFinding:
    """A problem of a remote tier that a user should know. `code` is stable; `object` is a path or
    URL; `first_offset` and `last_offset` are the affected offsets, if known."""

    code: str
    message: str
    object: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


@dataclass(frozen=True, slots=True)
class Piece:
    """Offsets `[start_offset, end_offset]` of the log that one segment holds. Without a segment it
    is a gap, and `cause` names its neighbours."""

    start_offset: int
    end_offset: int
    segment: RemoteSegment | None
    cause: str = ""


def select_segments(segments: Iterable[RemoteSegment], lineage: Sequence[EpochEntry],
                    until: int | None, findings: list[TierFinding]) -> list[Piece]:
    """The pieces of the log below offset `until` (None: all), in order, including gaps.

    Each segment has its end offset. `lineage` is empty if the log's epochs are unknown: then every
    segment counts. At each offset the segment that reaches furthest is chosen; among equals the one
    with the largest timestamp, then the lowest id.
    """
    spans = _spans(segments, lineage, findings)
    pieces: list[Piece] = []
    following = spans[0][0] if spans else 0
    row = 0
    while until is None or following < until:
        best: tuple[int, RemoteSegment] | None = None
        while row < len(spans) and spans[row][0] <= following:
            _, last, segment = spans[row]
            row += 1
            if last < following:
                continue
            if best is None or last > best[0]:
                best = last, segment
        if best is not None:
            # Its own first offset names it in the log, so it must lie above the piece before.
            pieces.append(Piece(best[1].start_offset, best[0], best[1]))
            following = best[0] + 1
        elif row < len(spans):
            pieces.append(_gap(following, spans[row][0] - 1, pieces, spans[row][2], findings))
            following = spans[row][0]
        else:
            break
    if until is not None and pieces and following < until:
        pieces.append(_gap(following, until - 1, pieces, None, findings))
    return [piece for piece in pieces if until is None or piece.start_offset < until]


def _gap(first: int, last: int, pieces: list[Piece], after: RemoteSegment | None,
         findings: list[TierFinding]) -> Piece:
    before = next((str(piece.segment) for piece in reversed(pieces) if piece.segment), None)
    other = "the local log" if after is None else str(after)
    cause = f"offsets {first} to {last} are in no segment: they lie between " \
        f"{before or 'the start of the log'} and {other}"
    findings.append(TierFinding("remote_gap", cause, None, first, last))
    return Piece(first, last, None, cause)


def _spans(segments: Iterable[RemoteSegment], lineage: Sequence[EpochEntry],
           findings: list[TierFinding]) -> list[tuple[int, int, RemoteSegment]]:
    """(first offset, last offset, segment) of the part of each that is in the lineage, sorted by
    first offset; of the same offsets the preferred one comes first."""
    found = []
    for segment in segments:
        assert segment.end_offset is not None
        first, last = segment.start_offset, segment.end_offset
        if lineage and segment.epochs:
            inside = end_in_lineage(first, last, segment.epochs, lineage)
            if inside is None or inside < first:
                findings.append(TierFinding(
                    "outside_lineage", f"{segment}: its leader epochs are not those of the log; "
                    "it is left out", str(segment), first, last))
                continue
            if inside < last:
                findings.append(TierFinding(
                    "outside_lineage", f"{segment}: the log has its offsets up to {inside} only; "
                    "the rest is left out", str(segment), inside + 1, last))
            last = inside
        found.append((first, last, segment))
    found.sort(key=lambda one: (one[0], -one[1], -(one[2].max_timestamp_ms or 0),
                                one[2].segment_id or b""))
    for one, other in zip(found, found[1:], strict=False):
        if one[:2] == other[:2]:
            findings.append(TierFinding(
                "duplicate_segment", f"{other[2]} holds the same offsets as {one[2]}, which is "
                "read", str(other[2]), *one[:2]))
    return found


def end_in_lineage(first: int, end: int, epochs: SegmentLeaderEpochs,
                   lineage: Sequence[EpochEntry]) -> int | None:
    """The last offset of the segment [first, end] up to which its epochs are those of the
    lineage."""
    ends = {entry.epoch: (entry.start_offset, following)
            for entry, following in zip(lineage, [*(one.start_offset - 1 for one in lineage[1:]),
                                                  (1 << 63) - 1], strict=True)}
    inside = None
    earliest = lineage[0].epoch
    rows = [*epochs, (None, end + 1)]
    for (epoch, start), (_, next_start) in zip(rows, rows[1:], strict=False):
        last = min(next_start - 1, end)
        if last < start:
            continue  # an epoch without records
        assert epoch is not None
        if epoch < earliest:  # its start was truncated with the log's
            inside = min(last, lineage[0].start_offset - 1)
            if inside < last:
                return inside
            continue
        if epoch not in ends:
            return inside
        known = ends[epoch][0]
        # Of its earliest epoch the lineage has the log's start, which may have moved.
        if epoch != earliest and (start < known or start != known and
                                  start > first):
            return inside
        inside = min(last, ends[epoch][1])
        if inside < last:
            return inside
    return inside

