"""What `seglog compact` prints as text: the rows of docs/json.md, shortened."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any

from seglog.cli import render
from seglog.cli.summary import Part
from seglog.recovery.claims import counted

__all__ = ["print_compaction"]

Row = dict[str, Any]


def print_compaction(parts: Sequence[Part], *, is_dry: bool) -> None:
    """A line a data directory, and one a log."""
    out = render.stdout()
    for part in parts:
        for line in _lines(part, is_dry):
            out.write(render.text_line(line))
    out.flush()


def _lines(part: Part, is_dry: bool) -> Iterator[str]:
    directory, rows = part.directory, part.partitions
    found = [row["compaction"] for row in rows if row["compaction"] is not None]
    before = sum(one["size_before"] or 0 for one in found)
    after = sum(one["size_after"] or 0 for one in found)
    failed = sum(row["error"] is not None for row in rows)
    yield (f"{directory['path']}: {counted(len(rows), 'compacted log')}, "
           f"{render.human_bytes(before)}, {'would become' if is_dry else 'now'} "
           f"{render.human_bytes(after)}, in {directory['seconds']:.3f} s"
           + (f", {counted(failed, 'log')} cannot be cleaned" if failed else "")
           + ("" if directory["error"] is None else ", not done"))
    if is_dry and (why := _refusal(directory)) is not None:
        yield f"  without --dry-run this directory is refused: {why}"
    if not is_dry and directory["error"] is None and not directory["clean_after"]:
        yield ("  no clean shutdown marker any more, as not every log is loaded: a broker recovers "
               "this directory; mend what is named below and run seglog load --recover")
    for row in rows:
        yield f"  {row['directory']}: {'; '.join(_facts(row, is_dry))}"


def _refusal(directory: Row) -> str | None:
    """Why a directory is not compacted for real; None if it is."""
    if directory["in_use_by"] is not None:
        return f"it is in use by {directory['in_use_by']}"
    return None if directory["clean_shutdown"] is not False else (
        "the broker was not shut down cleanly; run seglog load --recover first")


def _facts(row: Row, is_dry: bool) -> Iterator[str]:
    found = row["compaction"]
    if row["error"] is not None:
        where = "" if found is None or found["uncleanable_file"] is None else (
            f" ({found['uncleanable_file']} at byte {found['uncleanable_position']})")
        yield f"{row['error']}: {row['message']}{where}"
        return
    if not found["rounds"]:
        yield f"nothing to clean, clean up to offset {found['end_offset']}"
        return
    yield (f"{render.human_bytes(found['size_before'])} to "
           f"{render.human_bytes(found['size_after'])}")
    yield f"{found['records_before']:,} to {counted(found['records_after'], 'record')}"
    yield f"{100 * found['dirty_ratio']:.0f}% dirty"
    yield (f"{'would be ' if is_dry else ''}clean up to offset {found['end_offset']} of "
           f"{row['log_end_offset']}")
    if found["keys"] is not None:
        yield counted(found["keys"], "dirty key")
    if found["is_map_full"]:
        yield "the offset map is full, more rounds follow"
    waiting = [counted(found[f"waiting_{name}s"], name) for name in ("tombstone", "marker")
               if found[f"waiting_{name}s"]]
    if waiting:
        yield f"waiting until {_time(found['waiting_until_ms'])}: {' and '.join(waiting)}"


def _time(ms: int) -> str:
    try:
        return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime(
            "%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"
