"""Does everything that a reader can do to damaged directories, and writes down how it went.

    python -m tests.hostile.probe OUT ROOT/PARTITION ...

OUT/NAME-OF-ROOT.pickle holds {operation: Outcome}. It runs in a process of its own, under limits of
memory, descriptors and time: a crash, a hang or a leak of one case is the end of the process, and
stderr says where. It checks nothing itself.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import resource
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import seglog
from seglog.errors import CorruptDataError, SeglogError
from tests.oracle.batch import Row
from tests.support import reading

CASE_SECONDS = 300.0
MEMORY_BYTES = 6 << 30
DESCRIPTORS = 256


@dataclass
class Outcome:
    """How one operation went: its rows or value, and the error that ended it."""

    rows: list[Row] = field(default_factory=list)
    value: Any = None
    #: class name of the error, and what it carries
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    #: traceback of an error that is not one of seglog's
    untyped: str | None = None
    seconds: float = 0.0


def attempt(action: Callable[[Outcome], None]) -> Outcome:
    outcome, begin = Outcome(), time.monotonic()
    try:
        action(outcome)
    except SeglogError as error:
        outcome.error = type(error).__name__
        outcome.facts = {"message": str(error), "is_corrupt": isinstance(error, CorruptDataError)}
        for name in ("file", "position", "expected", "found", "code"):
            outcome.facts[name] = getattr(error, name, None)
    except Exception as error:
        outcome.error, outcome.untyped = type(error).__name__, traceback.format_exc()
    outcome.seconds = time.monotonic() - begin
    return outcome


def _read(partition: Path, isolation: str, threads: int) -> Callable[[Outcome], None]:
    def action(outcome: Outcome) -> None:
        with seglog.PartitionLog.open(partition) as log:
            try:
                reading.collect(log.to_arrow(columns=reading.ALL_COLUMNS, isolation=isolation,
                                             threads=threads), outcome.rows)
            finally:
                outcome.value = [gap.kind for gap in log.gaps]

    return action


def _facts(partition: Path) -> Callable[[Outcome], None]:
    def action(outcome: Outcome) -> None:
        with seglog.PartitionLog.open(partition) as log:
            outcome.value = {"segments": len(log.segments), "start": log.log_start_offset,
                             "end": log.log_end_offset}
            outcome.value["stable"] = log.last_stable_offset
            outcome.value["open"] = len(log.open_transactions)
            outcome.value["epochs"] = str(log.leader_epochs)

    return action


def _lookups(partition: Path) -> Callable[[Outcome], None]:
    def action(outcome: Outcome) -> None:
        with seglog.PartitionLog.open(partition) as log:
            log.offset_for_timestamp(0)
            log.offset_for_timestamp(2**62)
            middle = (log.log_start_offset + log.log_end_offset) // 2
            outcome.value = len(log.fetch(middle, 10_000).records)
            log.offset_for_timestamp(4_000_000_030_000)

    return action


def _batches(partition: Path) -> Callable[[Outcome], None]:
    def action(outcome: Outcome) -> None:
        with seglog.PartitionLog.open(partition) as log:
            outcome.value = sum(1 for _ in log.batches())

    return action


def _ranges(partition: Path) -> Callable[[Outcome], None]:
    def action(outcome: Outcome) -> None:
        with seglog.PartitionLog.open(partition) as log:
            outcome.value = len(log.ranges(4096))

    return action


def _data_dir(root: Path, level: str) -> Callable[[Outcome], None]:
    def action(outcome: Outcome) -> None:
        with seglog.open_data_dir(root, level=level, num_segment_loading_threads=2) as found:
            outcome.value = [{"code": one.code, "file": one.file, "message": str(one)}
                             for one in found.report.findings]
            for name in ("topics", "recovery_points", "log_start_offsets", "high_watermarks",
                         "meta_properties", "had_clean_shutdown"):
                getattr(found, name)
            for log in found.logs.values():
                log.close()

    return action


def probe(partition: Path) -> dict[str, Outcome]:
    """Every operation, on its own, so that one error does not hide the next."""
    actions = {"facts": _facts(partition), "lookups": _lookups(partition),
               "batches": _batches(partition), "ranges": _ranges(partition),
               **{level: _data_dir(partition.parent, level)
                  for level in ("kafka", "full", "verify")}}
    for isolation in ("read_uncommitted", "read_committed"):
        for threads in (0, 2):
            actions[f"{isolation} {threads}"] = _read(partition, isolation, threads)
    return {name: attempt(action) for name, action in actions.items()}


def main() -> None:
    out = Path(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    for name in sys.argv[2:]:
        partition = Path(name)
        print(f"case {partition.parent.name}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(CASE_SECONDS, exit=True)
        outcomes = probe(partition)
        gc.collect()
        descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
        outcomes["descriptors"] = Outcome(value=descriptors)
        (out / f"{partition.parent.name}.pickle").write_bytes(pickle.dumps(outcomes))
    faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    from tests.hostile import probe as named  # so that what is pickled has a name elsewhere

    faulthandler.enable()
    named.main()
