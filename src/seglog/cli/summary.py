"""The text output of load, verify, --recover and --dry-run: the rows of docs/json.md, shortened.

First losses and damage by topic; then equal findings once, with their number and an example; last
a verdict, with advice if something is wrong.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seglog.cli import render
from seglog.recovery.claims import counted
from seglog.recovery.findings import DAMAGE_CODES, LOSS_CODES, is_denied
from seglog.recovery.rows import totals_of

__all__ = ["Part", "joined", "print_summary"]

Row = dict[str, Any]

#: The most lines of each kind per directory without `--all`: together a screenful.
_TOPICS_MAX, _GROUPS_MAX, _NAMES_MAX = 5, 10, 3
_COLORS: Final = {"info": "dim", "warning": "yellow", "error": "red", "fatal": "red"}
_ORDER: Final = ("fatal", "error", "warning", "info")
_DELETED: Final = frozenset({
    "temporary-deleted", "temporary-cleaned", "swap-incomplete", "swap-replaced", "orphan-index",
    "snapshot-stray", "snapshot-corrupt"})
_NO_IDENTITY: Final = frozenset({"meta-properties-missing", "meta-properties-malformed"})
#: The next step for findings that are no loss: before a recovery, and after one.
_ADVICE: Final = {
    "checkpoint-malformed": ("seglog load --recover replaces a malformed checkpoint",
                             "the malformed checkpoint was replaced"),
    "commit-unfinished": ("seglog load --recover finishes the interrupted commit",) * 2,
    "directory-name": ("move away what is no partition directory",) * 2,
    "meta-properties-malformed": ("put the directory's own meta.properties back",) * 2,
}
_LABELS: Final = {
    "load": ("loaded", "a start would cut"), "verify": ("read", "a start would cut"),
    "recover": ("recovered", "cut"), "dry-run": ("dry run", "would be cut")}


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of one path."""

    directory: Row
    partitions: list[Row]
    findings: list[Row]


def joined(parts: Sequence[Part]) -> tuple[list[Row], list[Row], list[Row]]:
    """The directories, partitions and findings of all parts."""
    return ([part.directory for part in parts],
            [row for part in parts for row in part.partitions],
            [row for part in parts for row in part.findings])


def print_summary(verb: str, parts: Sequence[Part], *, show_all: bool) -> None:
    """Prints each directory, and then the verdict on all."""
    out = render.stdout()
    for part in parts:
        for line in _lines(verb, part, show_all):
            out.write(render.text_line(line))
    out.write(render.text_line(_verdict(verb, parts)))
    out.flush()


# --- a directory ---------------------------------------------------------------------------------

def _lines(verb: str, part: Part, show_all: bool) -> Iterator[str]:
    directory, totals = part.directory, totals_of(part.partitions, part.findings)
    shutdown = {True: "clean", False: "unclean", None: "unknown"}[directory["clean_shutdown"]]
    state = (f"{shutdown} shutdown" if directory["in_use_by"] is None
             else f"in use by {directory['in_use_by']}")
    threads = directory["threads"]
    yield (f"{directory['path']}: {counted(totals['partitions'], 'partition')}, "
           f"{counted(totals['segments'] or 0, 'segment')}, "
           f"{render.human_bytes(totals['size'] or 0)}, {state}, "
           f"{_LABELS[verb][0]} in {directory['seconds'] or 0:.3f} s at level "
           f"{directory['level']}" + (f" by {counted(threads, 'thread')}" if threads else ""))
    yield from ("  " + line for line in _work(verb, part, totals))
    yield from _by_topic(_LABELS[verb][1], part, LOSS_CODES, show_all)
    yield from _by_topic("damaged", part, DAMAGE_CODES, show_all)
    if show_all:
        yield from ("  " + _finding_line(row) for row in _sorted(part.findings))
    else:
        yield from _groups(part)
    yield "  " + _counts(totals, show_all)
    if verb in ("recover", "dry-run"):
        yield "  " + _end(verb, part)


def _work(verb: str, part: Part, totals: Mapping[str, Any]) -> Iterator[str]:
    """What was, or would be, read, deleted or rebuilt."""
    if totals["batches"] is not None:
        yield (f"sound: {counted(totals['batches'], 'batch')}, "
               f"{counted(totals['records'], 'record')}")
    if verb in ("load", "verify"):
        if totals["recovery_segments"]:
            yield (f"a start would scan {counted(totals['recovery_segments'], 'segment')} "
                   f"({render.human_bytes(totals['recovery_size'])})")
        return
    would = "would be " if verb == "dry-run" else ""
    deleted = [row for row in part.findings if row["code"] in _DELETED]
    yield (f"{would}deleted: {counted(len(deleted), 'file')} "
           f"({render.human_bytes(_sum(deleted, 'bytes'))})")
    yield (f"{would}scanned and rebuilt: {counted(totals['recovery_segments'] or 0, 'segment')} "
           f"({render.human_bytes(totals['recovery_size'] or 0)}), "
           f"{counted(totals['recovery_batches'] or 0, 'batch')}, "
           f"{counted(totals['recovery_records'] or 0, 'record')}")
    if totals["unread_segments"]:
        yield (f"not read: {counted(totals['unread_segments'], 'segment')} "
               f"({render.human_bytes(totals['unread_size'])}) that need no recovery; "
               "--level verify reads them too, as seglog verify does")


def _by_topic(label: str, part: Part, codes: frozenset[str], show_all: bool) -> Iterator[str]:
    """One line per topic with the sum of its findings of these codes, the greatest loss first."""
    topics: dict[str, list[Row]] = {}
    for row in part.findings:
        if row["code"] in codes and row["severity"] in ("error", "fatal"):
            topics.setdefault(row["topic"] or row["directory"] or ".", []).append(row)
    if not topics:
        return
    yield f"  {label}, by topic:"
    ranked = sorted(topics.items(), key=lambda item: (-_sum(item[1], "records"), item[0]))
    shown = ranked if show_all else ranked[:_TOPICS_MAX]
    for topic, rows in shown:
        numbers = sorted({row["partition"] for row in rows if row["partition"] is not None})
        where = f"{'partition' if len(numbers) == 1 else 'partitions'} {_names(numbers)}"
        yield f"    {topic}: {_loss(rows)}; {where}"
    if len(ranked) > len(shown):
        rest = [row for _, rows in ranked[len(shown):] for row in rows]
        yield f"    ... {len(ranked) - len(shown)} more topics, {_loss(rest)}; --all shows them"


def _loss(rows: Sequence[Mapping[str, Any]]) -> str:
    """Records, batches and bytes in words."""
    batches, unread = _sum(rows, "batches"), _sum(rows, "unread_bytes")
    parts = []
    if batches:
        parts.append(f"up to {counted(_sum(rows, 'records'), 'record')} in "
                     f"{counted(batches, 'batch')}")
    size = render.human_bytes(_sum(rows, "bytes"))
    if unread and batches:
        size += f", {render.human_bytes(unread)} of it without a readable batch header"
    elif unread:
        size += " without a readable batch header"
    return ", ".join([*parts, size])


def _names(numbers: Sequence[object]) -> str:
    shown = ", ".join(map(str, numbers[:_NAMES_MAX]))
    rest = len(numbers) - _NAMES_MAX
    return f"{shown} and {rest:,} more" if rest > 0 else shown


# --- findings ------------------------------------------------------------------------------------

def _sorted(findings: Sequence[Row]) -> list[Row]:
    return sorted(findings, key=lambda row: (_ORDER.index(row["severity"]),
                                             row["directory"] or "", row["file"] or ""))


def _groups(part: Part) -> Iterator[str]:
    """Findings above `info`; equal ones once, with their number, places and first example."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in _sorted([row for row in part.findings if row["severity"] != "info"]):
        key = (row["severity"], row["code"], row["kafka_error"], row["action"], _shape(row))
        groups.setdefault(key, []).append(row)
    shown = list(groups.values())
    for rows in shown[:_GROUPS_MAX]:
        if len(rows) > 1:
            directories = {row["directory"] for row in rows if row["directory"] is not None}
            topics = sorted({row["topic"] for row in rows if row["topic"] is not None})
            where = f" in {counted(len(directories), 'partition')}" if directories else ""
            of = f" of {_names(topics)}" if topics else ""
            yield f"  {_label(rows[0])} {len(rows):,} times{where}{of}; the first:"
            yield "    " + _finding_text(rows[0])
        else:
            yield "  " + _finding_line(rows[0])
    hidden = shown[_GROUPS_MAX:]
    if hidden:
        yield (f"  ... {counted(sum(map(len, hidden)), 'more finding')} of "
               f"{counted(len(hidden), 'other kind')}, --all shows them")


def _shape(row: Row) -> str:
    """A message without the names, paths and numbers that distinguish equal findings."""
    text = str(row["message"])
    for name in (row["directory"], row["file"]):
        text = text.replace(name, "*") if name else text
    return re.sub(r"\d[\d,.]*", "#", text).replace("s ", " ")


def _finding_line(row: Row) -> str:
    return f"{_label(row)} {_finding_text(row)}"


def _label(row: Row) -> str:
    severity = row["severity"]
    return f"{render.paint(f'{severity:7}', _COLORS[severity], sys.stdout)} {row['code']}:"


def _finding_text(row: Row) -> str:
    """The place, the message and Kafka's reaction."""
    where = "/".join(part for part in (row["directory"], row["file"]) if part) or "."
    if row["position"] is not None:
        where += f"@{row['position']}"
    facts = [f"{name} {row[name]}" for name in ("expected", "found", "bytes")
             if row[name] is not None and str(row[name]) not in row["message"]]
    detail = f" ({', '.join(facts)})" if facts else ""
    error = row["kafka_error"]
    failed = f"{error}: " if error and error not in row["message"] else ""
    message = " ".join(row["message"].split())  # Kafka's may have several lines
    return f"{where}: {failed}{message}{detail}; Kafka: {row['action']}"


def _counts(totals: Mapping[str, Any], show_all: bool) -> str:
    number = totals["findings"]
    hidden = "" if show_all or not number["info"] else " (--all shows them)"
    return (f"findings: {number['fatal']} fatal, {counted(number['error'], 'error')}, "
            f"{counted(number['warning'], 'warning')}, {number['info']} info{hidden}")


# --- the end -------------------------------------------------------------------------------------

def _end(verb: str, part: Part) -> str:
    """The state in which a recovery leaves, or would leave, the directory."""
    directory = part.directory
    if directory["error"] is not None:
        return f"stopped: {directory['message']}"
    if not directory["clean_after"]:
        failed = [row["directory"] for row in part.partitions if row["error"] is not None]
        what = f" ({_names(failed)})" if failed else ""
        return (f"no clean shutdown marker, as not every log is loaded{what}: a broker recovers "
                "this directory again")
    if verb == "dry-run":
        text = "nothing was changed; with --recover a broker would have nothing left to recover"
    else:
        text = "clean shutdown marker written: a broker has nothing left to recover"
    if any(row["code"] in _NO_IDENTITY for row in part.findings):
        text += ", but does not start before meta.properties is there and sound"
    return text


def _verdict(verb: str, parts: Sequence[Part]) -> str:
    """One sentence that says whether all is well, and the next steps if not."""
    directories, partitions, findings = joined(parts)
    totals = totals_of(partitions, findings)
    said = list(_verdicts(verb, directories, findings, totals))
    of = f"{totals['partitions'] - totals['errors']:,} of " if totals["errors"] else ""
    scope = (f"{of}{counted(totals['partitions'], 'partition')}, "
             f"{counted(totals['segments'] or 0, 'segment')}")
    if totals["batches"] is not None:
        scope += (f", {counted(totals['batches'], 'batch')} and "
                  f"{counted(totals['records'], 'record')} read and sound")
    elif verb == "load":
        scope += "; batches not read (seglog verify reads all)"
    elif totals["unread_segments"]:
        scope += (f"; {counted(totals['unread_segments'], 'segment')} not read "
                  "(seglog verify reads all)")
    if not said:
        return render.paint(f"no errors were found: {scope}", "green", sys.stdout)
    return render.paint(f"{'; '.join(said)} ({scope})", "red", sys.stdout)


def _verdicts(verb: str, directories: Sequence[Row], findings: Sequence[Row],
              totals: Mapping[str, Any]) -> Iterator[str]:
    lost = [row for row in findings if row["code"] in LOSS_CODES and row["severity"] == "error"]
    damaged = [row for row in findings if row["code"] in DAMAGE_CODES]
    if lost:
        what = _loss(lost)
        if verb == "recover":
            yield f"data was lost: {what} were cut; another replica may have them"
        else:
            yield (f"data would be lost: a start cuts {what}; keep a copy, or recover with "
                   "seglog load --recover --quarantine DIR, which keeps what is cut")
    if damaged and (not lost or verb in ("recover", "dry-run")):
        yield (f"damaged batches stay in the log: {_loss(damaged)}; readers fail there, take the "
               "partition from another replica")
    failed = totals["errors"]
    if failed:
        if verb == "recover":
            yield (f"not recovered: {counted(failed, 'log')}; mend what is named above and run it "
                   "again")
        else:
            yield f"a broker does not load {counted(failed, 'log')}, for the causes named above"
    others = [row["path"] for row in directories if row["error"] is not None]
    if others:
        yield f"stopped in {_names(others)}"
    worse = totals["findings"]["fatal"] + totals["findings"]["error"]
    if not (lost or damaged or failed or others) and worse:
        yield f"errors were found: {counted(worse, 'finding')} above, each with what Kafka does"
    yield from _advice(verb, [row for row in findings if row["severity"] in ("error", "fatal")])


def _advice(verb: str, findings: Sequence[Row]) -> Iterator[str]:
    codes = {row["code"] for row in findings}
    yield from (steps[verb == "recover"] for code, steps in _ADVICE.items() if code in codes)
    if any(is_denied(row["message"], row["found"]) for row in findings):
        yield ("this user may not read everything, so run it again as the broker's user or as "
               "root")


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(row[name] or 0 for row in rows)

