"""How `seglog load --recover` and `--dry-run` show what they did, or would do."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from seglog.cli import render
from seglog.cli.recover import DirectoryOutcome, Total
from seglog.cli.report import finding_line
from seglog.recovery.callbacks import LoadListener
from seglog.recovery.findings import Severity

__all__ = ["RecoveryBar", "print_outcomes", "print_states"]

# Findings that tell of bytes of logs that are gone afterwards, and of other files that are.
_CUTS = ("log-truncated", "segment-emptied", "segments-removed", "log-end-below-start")
_DELETED = ("temporary-deleted", "temporary-cleaned", "swap-incomplete", "swap-replaced",
            "orphan-index", "snapshot-stray", "snapshot-corrupt")
_REBUILT = ("segment-rebuilt",)


class RecoveryBar(LoadListener):
    """Segments that are through with their check or their recovery, of those known so far."""

    def __init__(self, label: str) -> None:
        self._progress = render.Progress(label, 0, detail=self._detail)
        self._partitions = self._started = self._recovered = 0
        self._lock = threading.Lock()

    def __enter__(self) -> RecoveryBar:
        self._progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.__exit__(None, None, None)

    def _detail(self) -> str:
        recovered = f", {self._recovered} recovered" if self._recovered else ""
        return f"segments, {self._started}/{self._partitions} partitions{recovered}"

    def load_started(self, partitions: int, threads: int) -> None:
        """More partition directories."""
        with self._lock:
            self._partitions += partitions

    def partition_started(self, directory: str) -> None:
        """One of them is on its way."""
        with self._lock:
            self._started += 1

    def segments_listed(self, directory: str, count: int) -> None:
        """More segments to check."""
        self._expect(count)

    def recovery_started(self, directory: str, count: int, size: int) -> None:
        """More segments to recover."""
        self._expect(count)

    def _expect(self, count: int) -> None:
        with self._lock:
            self._progress.total = (self._progress.total or 0) + count

    def segments_loaded(self, directory: str, count: int, thread: int) -> None:
        """Some are checked."""
        with self._lock:
            self._progress.advance(count)

    def segments_recovered(self, directory: str, count: int, size: int) -> None:
        """Some are recovered."""
        with self._lock:
            self._recovered += count
            self._progress.advance(count)


# --- JSON ----------------------------------------------------------------------------------------

def print_states(outcomes: Sequence[DirectoryOutcome]) -> None:
    """One object by partition directory; of several data directories one of those by name."""
    shown: dict[str, Any] = {name: _states(outcome) for name, outcome
                             in zip(_names(outcomes), outcomes, strict=True)}
    document = shown if len(outcomes) > 1 else _states(outcomes[0])
    out = render.stdout()
    out.write(json.dumps(document, indent=2).encode("ascii") + b"\n")
    out.flush()


def _names(outcomes: Sequence[DirectoryOutcome]) -> list[str]:
    """The last parts of the paths; whole paths where one of those is there twice."""
    names = [os.path.basename(outcome.path) for outcome in outcomes]
    return names if len(set(names)) == len(names) else [outcome.path for outcome in outcomes]


def _states(outcome: DirectoryOutcome) -> dict[str, Any]:
    findings: dict[str, list[dict[str, Any]]] = {}
    for found in outcome.findings:
        findings.setdefault(found.directory or "", []).append(found.to_dict())
    return {name: {**outcome.states[name], "findings": findings.get(name, [])}
            for name in sorted(outcome.states)}


# --- text ----------------------------------------------------------------------------------------

def print_outcomes(outcomes: Sequence[DirectoryOutcome], *, is_rehearsal: bool,
                   show_all: bool) -> None:
    """Of each directory what was found and done, then what that comes to."""
    out = render.stdout()
    for outcome in outcomes:
        for line in _lines(outcome, is_rehearsal, show_all):
            out.write(line.encode("utf-8", "surrogateescape") + b"\n")
    out.flush()


def _lines(outcome: DirectoryOutcome, is_rehearsal: bool, show_all: bool) -> Iterator[str]:
    states = [state for state in outcome.states.values() if "error" not in state]
    shutdown = "clean" if outcome.had_clean_shutdown else "unclean"
    verb = "rehearsed" if is_rehearsal else "loaded"
    yield (f"{outcome.path}: {len(outcome.states)} partitions, "
           f"{sum(state['segment_count'] for state in states)} segments, "
           f"{render.human_bytes(sum(state['size'] for state in states))}, {shutdown} shutdown, "
           f"{verb} in {outcome.seconds:.3f} s")
    for found in outcome.findings:
        if show_all or is_rehearsal or found.severity > Severity.INFO:
            yield "  " + finding_line(found)
    for name, state in sorted(outcome.failures.items()):
        yield (f"  {render.paint('not loaded', 'red', sys.stdout)} {name}: {state['error']}: "
               f"{state['message']}")
    would = "would have " if is_rehearsal else ""
    cut, deleted, rebuilt = (_total(outcome, codes) for codes in (_CUTS, _DELETED, _REBUILT))
    what = (f"{cut.bytes} bytes with {cut.records} records in {len(cut.directories)} partitions"
            if cut.count else "nothing of any log")
    yield f"  {would}cut {what}"
    yield (f"  {would}deleted {deleted.count} files ({deleted.bytes} bytes), rebuilt "
           f"{rebuilt.count} segments ({rebuilt.bytes} bytes, {rebuilt.records} records)")
    yield "  " + _end(outcome, is_rehearsal)


def _total(outcome: DirectoryOutcome, codes: tuple[str, ...]) -> Total:
    found = [outcome.totals[code] for code in codes if code in outcome.totals]
    return Total(sum(one.count for one in found), sum(one.bytes for one in found),
                 sum(one.records for one in found),
                 set().union(*(one.directories for one in found)))


def _end(outcome: DirectoryOutcome, is_rehearsal: bool) -> str:
    if outcome.error is not None:
        return f"stopped: {outcome.error}"
    if not outcome.is_clean:
        return ("no clean shutdown marker, as not every log is loaded: a broker recovers this "
                "directory again")
    if is_rehearsal:
        return "nothing was changed; with --recover a broker would have nothing left to recover"
    return "clean shutdown marker written: a broker has nothing left to recover"
