"""What every bench file uses: sizes, comparisons in turns, and the rows of the table.

A bench is a test. It asserts what was computed, never how long it took: seglog and everything it
is compared with take turns in one process (or say themselves how long they took), and the ratio of
the medians becomes a row, which pytest-benchmark carries in its JSON.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")
_Result = Callable[[], object]

SIZES = ("smoke", "default", "full")


def size() -> str:
    """Which size runs: SEGLOG_BENCH_SIZE, one of SIZES."""
    chosen = os.environ.get("SEGLOG_BENCH_SIZE", "default")
    if chosen not in SIZES:
        raise ValueError(f"SEGLOG_BENCH_SIZE={chosen}: there are {', '.join(SIZES)}")
    return chosen


def pick(smoke: _T, default: _T, full: _T) -> _T:
    """The value for the size that runs."""
    return (smoke, default, full)[SIZES.index(size())]


@dataclass(frozen=True)
class Timed:
    """A result that brings its own time: of another process, without that process's start."""

    seconds: float
    result: Any = None


def _anything(result: object) -> None:
    pass


@dataclass(frozen=True)
class Against:
    """A floor, a peer, or seglog done another way; `goal` is the ratio that ours shall reach.

    `work` is what one run of it does, in the units of the measure, when that is not what ours
    does: peers that are slow get a part. `once` runs it in one round alone. `check` gets the
    result of every run, outside of the time.
    """

    name: str
    run: _Result
    goal: float | None = None
    work: float | None = None
    once: bool = False
    check: Callable[[Any], None] = _anything


@dataclass(frozen=True)
class Row:
    """One line of the table. Rates are in `unit` a second; `at_most` turns the goal around.

    `ratio` is of the median rounds, `best` of the fastest ones, which other work on the machine
    disturbs less.
    """

    measure: str
    unit: str
    ours: float
    other: str
    other_rate: float
    ratio: float
    best: float | None = None
    goal: float | None = None
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without one."""
        if self.goal is None:
            return None
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal


@dataclass
class _Taken:
    """The times of one `Against`."""

    other: Against
    seconds: list[float] = field(default_factory=list)

    def run(self) -> None:
        if self.other.once and self.seconds:
            return
        seconds, result = timed(self.other.run)
        self.other.check(result)
        self.seconds.append(seconds)


def timed(run: _Result) -> tuple[float, object]:
    """Seconds and result of one run; a Timed brings its own."""
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    return (result.seconds, result.result) if isinstance(result, Timed) else (seconds, result)


def _turn(taken: Sequence[_Taken], before: Callable[[], object] | None) -> None:
    """Runs everything that ours is compared with; `before` comes first, and before ours."""
    for one in taken:
        if before is not None:
            before()
        one.run()
    if before is not None:
        before()


class Compare:
    """The fixture `compare`: rows for one measure."""

    def __init__(self, benchmark: Any) -> None:
        self._benchmark = benchmark
        self._rows: list[dict[str, Any]] = []
        self._seconds: dict[str, dict[str, list[float]]] = {}
        benchmark.extra_info["rows"], benchmark.extra_info["seconds"] = self._rows, self._seconds

    def __call__(self, measure: str, ours: _Result, others: Sequence[Against], *, work: float,
                 unit: str, check: Callable[[Any], None], rounds: int = 5,
                 before: Callable[[], object] | None = None) -> None:
        """Takes turns: every other, then ours, `rounds` times after one round to warm up.

        `work` is what one run of ours does, in `unit` (GB, records, segments). `before` runs
        before each single run, and with it there is no warming up: the cache shall be cold.
        """
        taken = [_Taken(other) for other in others]
        own: list[float] = []

        def run() -> object:
            seconds, result = timed(ours)
            own.append(seconds)
            return result

        check(self._benchmark.pedantic(run, setup=partial(_turn, taken, before), rounds=rounds,
                                       warmup_rounds=0 if before is not None else 1))
        self._note(measure, unit, work, own, taken, rounds)

    def again(self, measure: str, ours: _Result, others: Sequence[Against], *, work: float,
              unit: str, check: Callable[[Any], None], rounds: int = 5) -> None:
        """One more measure in the same test: pytest-benchmark times one alone."""
        taken, own = [_Taken(other) for other in others], []
        for _ in range(rounds + 1):
            _turn(taken, None)
            seconds, result = timed(ours)
            check(result)
            own.append(seconds)
        self._note(measure, unit, work, own, taken, rounds)

    def _note(self, measure: str, unit: str, work: float, own: list[float],
              taken: Sequence[_Taken], rounds: int) -> None:
        own = own[-rounds:]
        for one in taken:
            other_work, others_took = one.other.work or work, one.seconds[-rounds:]
            share = work / other_work
            ratio, best = (share * pick_one(others_took) / pick_one(own)
                           for pick_one in (statistics.median, min))
            self.add(Row(measure, unit, work / statistics.median(own), one.other.name,
                         other_work / statistics.median(others_took), ratio, best,
                         one.other.goal))
        self._seconds[measure] = {"ours": own, **{one.other.name: one.seconds for one in taken}}

    def add(self, row: Row) -> None:
        """A row that was measured otherwise."""
        self._rows.append({**asdict(row), "met": row.met})

    def run_once(self, run: _Result) -> object:
        """For what is no matter of time: pytest-benchmark still wants to have timed something."""
        return self._benchmark.pedantic(run, rounds=1)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor for reading."""
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
