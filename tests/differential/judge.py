"""Runs cases: makes each, lets both load a copy, and compares."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential.cases import Case, plan
from tests.differential.compare import differences
from tests.differential.kafka import Oracle
from tests.differential.sources import Sources
from tests.support.scratch import scratch

State = dict[str, Any]
Loader = Callable[[Path, Mapping[str, str]], dict[str, State]]


@dataclass(frozen=True)
class Verdict:
    """One case and where the answers differ."""

    case: Case
    done: list[str]
    kafka: dict[str, State]
    ours: dict[str, State]
    wrong: list[str]

    def __str__(self) -> str:
        lines = [f"{self.case.name} {self.case.source} {dict(self.case.config)}",
                 *(f"  {one}" for one in self.done), *(f"    {one}" for one in self.wrong)]
        return "\n".join(lines)


class Judge:
    """One Kafka and one way to load here; `with` ends the one and removes all copies."""

    def __init__(self, golden: Path, ours: Loader, *, partial: bool = False) -> None:
        self.home = scratch()
        self.sources = Sources(golden, self.home / "sources")
        self.oracle, self.ours, self.partial = Oracle(), ours, partial

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.oracle.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def judge(self, seed: int, numbers: Iterable[int]) -> Iterator[Verdict]:
        """The verdict of each case; one to which nothing could be done is passed over."""
        for number in numbers:
            verdict = self.judge_case(plan(self.sources, seed, number))
            if verdict is not None:
                yield verdict

    def judge_case(self, case: Case, only: set[int] | None = None) -> Verdict | None:
        """The verdict of one case, or of a part of its damages."""
        home = self.home / case.name
        shutil.rmtree(home, ignore_errors=True)
        # Both copies have one name, which a message may hold.
        theirs, mine = home / "kafka" / "data", home / "ours" / "data"
        try:
            done = case.build(self.sources, theirs, only)
            if not done:
                return None
            shutil.copytree(theirs, mine)
            config = dict(case.config)
            self.oracle.ask(theirs, config)
            try:
                ours, wrong = self.ours(mine, config), []
            except Exception as error:
                ours, wrong = {}, ["".join(traceback.format_exception(error)[-4:])]
            kafka = self.oracle.answer()
            return Verdict(case, done, kafka, ours, wrong or list(self._wrong(kafka, ours, theirs)))
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _wrong(self, kafka: dict[str, State], ours: dict[str, State],
               root: Path) -> Iterator[str]:
        for name, state in kafka.items():
            if name in ours:
                for line in differences(state, ours[name], partial=self.partial,
                                        root=str(root)):
                    yield f"{name}: {line}"
            elif not self.partial:
                yield f"{name}: not in our answer"
        for name in set(ours) - set(kafka):
            yield f"{name}: not in Kafka's answer"

    def minimise(self, verdict: Verdict) -> Verdict:
        """The smallest part of the damages that still makes a difference."""
        numbers = set(range(len(verdict.case.damages)))
        best, shrunk = verdict, True
        while shrunk and len(numbers) > 1:
            shrunk = False
            for number in sorted(numbers):
                part = self.judge_case(verdict.case, numbers - {number})
                if part is not None and part.wrong:
                    numbers, best, shrunk = numbers - {number}, part, True
                    break
        return best
