"""The harness of all bench files: sizes, comparisons in turns, and the rows of the table.

A bench is a test. It asserts results, never times. seglog and its peers take turns in one process
(or time themselves). The ratio of the medians becomes a row in pytest-benchmark's JSON.
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
    """The size of this run: SEGLOG_BENCH_SIZE, one of SIZES."""
    chosen = os.environ.get("SEGLOG_BENCH_SIZE", "default")
    if chosen not in SIZES:
        raise ValueError(f"SEGLOG_BENCH_SIZE={chosen}: there are {', '.join(SIZES)}")
    return chosen


def pick(smoke: _T, default: _T, full: _T) -> _T:
    """The value for the size of this run."""
    return (smoke, default, full)[SIZES.index(size())]


#: Options of a JVM that runs Spark: where no times count, quick to be up.
SPARK_JVM = pick("-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "", "")


@dataclass(frozen=True)
class Timed:
    """A result with its own time: that of another process, without its start."""

    seconds: float
    result: Any = None


def anything(result: object) -> None:
    """A check of a run that needs only to end well."""


def equals(wanted: object) -> Callable[[object], None]:
    """A check of a result that is known."""
    def check(result: object) -> None:
        assert result == wanted, (result, wanted)

    return check


@dataclass(frozen=True)
class Against:
    """A floor, a peer, or a variant of seglog; `goal` is the ratio that ours should reach.

    `work` is the work of one run, in units of the measure, if it differs from ours: slow peers get
    a part. `once` runs it in only one round. `check` gets the result of every run and is not timed.
    """

    name: str
    run: _Result
    goal: float | None = None
    work: float | None = None
    once: bool = False
    check: Callable[[Any], None] = anything


@dataclass(frozen=True)
class Row:
    """One line of the table. Rates are in `unit` a second; with `at_most` the goal is a maximum.

    `ratio` compares the median rounds, `best` the fastest ones, which other work on the machine
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
        """Whether the goal is reached; None without a goal."""
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
    """The seconds and result of one run; a Timed has its own seconds."""
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    return (result.seconds, result.result) if isinstance(result, Timed) else (seconds, result)


def _turn(taken: Sequence[_Taken], before: Callable[[], object] | None) -> None:
    """Runs all peers; calls `before` before each of them and before ours."""
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
                 unit: str, check: Callable[[Any], None] = anything, rounds: int = 5,
                 before: Callable[[], object] | None = None) -> None:
        """Takes turns: all peers, then ours, `rounds` times after a warm-up round.

        `work` is the work of one run of ours in `unit` (GB, records, segments). `before` runs
        before each run and disables the warm-up, to keep the cache cold. The size `smoke` has one
        round without a warm-up.
        """
        rounds = pick(1, rounds, rounds)
        taken = [_Taken(other) for other in others]
        own: list[float] = []

        def run() -> object:
            seconds, result = timed(ours)
            own.append(seconds)
            return result

        check(self._benchmark.pedantic(run, setup=partial(_turn, taken, before), rounds=rounds,
                                       warmup_rounds=pick(0, before is None, before is None)))
        self._note(measure, unit, work, own, taken, rounds)

    def again(self, measure: str, ours: _Result, others: Sequence[Against], *, work: float,
              unit: str, check: Callable[[Any], None], rounds: int = 5) -> None:
        """Another measure in the same test, because pytest-benchmark times only one."""
        taken, own = [_Taken(other) for other in others], []
        rounds = pick(1, rounds, rounds)
        for _ in range(pick(1, rounds + 1, rounds + 1)):
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
        """Adds a row that was measured another way."""
        self._rows.append({**asdict(row), "met": row.met})

    def run_once(self, run: _Result) -> object:
        """Runs an untimed check once, because pytest-benchmark requires a timed call."""
        return self._benchmark.pedantic(run, rounds=1)


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[int]:
    """A descriptor for reading."""
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)
