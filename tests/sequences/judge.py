"""Runs sequences through both sides, compares, and makes what differs as short as it gets."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.scratch import scratch
from tests.sequences import drivers
from tests.sequences.compare import differences, short, told

Sequence = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """One sequence, both answers, and where they differ."""

    sequence: Sequence
    kafka: dict[str, Any] | str
    ours: dict[str, Any] | str
    wrong: list[str]

    @property
    def counts(self) -> bool:
        """Whether Kafka had an answer: a few sequences end Driver.java itself."""
        return not isinstance(self.kafka, str)

    @property
    def signature(self) -> str:
        """What kind of difference it is, offsets and times left out."""
        if not self.wrong:
            return ""
        first = re.sub(r"@.*?]", "", self.wrong[0])
        return re.sub(r"[0-9a-fx-]*\d[0-9a-fx]*|\{.*?\}", "", first)[:80]

    def __str__(self) -> str:
        sequence = self.sequence
        lines = [f"{sequence['name']} {sequence.get('theme', '')} {sequence['config']}"]
        results = self.kafka["results"] if isinstance(self.kafka, dict) else []
        for number, op in enumerate(sequence["ops"]):
            result = short(results[number]) if number < len(results) else "?"
            lines.append(f"  {number} {told(op)} -> {result}")
        return "\n".join([*lines, *(f"    {one}" for one in self.wrong)])


class Judge:
    """One Kafka and one of ours; `with` ends both and removes their logs."""

    def __init__(self) -> None:
        self.home = scratch()
        self.kafka = drivers.Side(self.home / "kafka", drivers.kafka)
        self.ours = drivers.Side(self.home / "ours", drivers.ours)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.kafka.close()
        self.ours.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def judge(self, sequences: Iterable[Sequence]) -> Iterator[Verdict]:
        """The verdict of each."""
        return map(self.judge_one, sequences)

    def judge_one(self, sequence: Sequence) -> Verdict:
        """Both run it, at the same time, and nothing stays of it."""
        name = sequence["name"]
        homes = [side.home / name for side in (self.kafka, self.ours)]
        try:
            for home in homes:
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir(parents=True)
            self.kafka.ask(sequence)
            self.ours.ask(sequence)
            theirs, mine = self.kafka.answer(), self.ours.answer()
            if isinstance(theirs, str):
                return Verdict(sequence, theirs, mine, [])
            if isinstance(mine, str):
                return Verdict(sequence, theirs, mine, [mine])
            return Verdict(sequence, theirs, mine, list(differences(
                sequence, theirs, mine, homes[0] / "t-0", homes[1] / "t-0")))
        finally:
            for home in homes:
                shutil.rmtree(home, ignore_errors=True)

    def minimise(self, verdict: Verdict) -> Verdict:
        """The shortest part of the sequence that has the same kind of difference."""
        best, step = verdict, max(1, len(verdict.sequence["ops"]) // 2)
        while True:
            at, shrunk = 0, False
            while at < len(best.sequence["ops"]):
                ops = best.sequence["ops"]
                part = self._part(best, ops=ops[:at] + ops[at + step:])
                if part is not None:
                    best, shrunk = part, True
                else:
                    at += step
            if step == 1 and not shrunk:
                break
            step = max(1, step // 2)
        for key in sorted(best.sequence["config"]):
            rest = {one: value for one, value in best.sequence["config"].items() if one != key}
            best = self._part(best, config=rest) or best
        return best

    def _part(self, best: Verdict, **changes: Any) -> Verdict | None:
        part = self.judge_one({**best.sequence, **changes})
        return part if part.wrong and part.signature == best.signature else None


def remember(verdict: Verdict, home: Path) -> Path:
    """Writes a difference where others find it: the line to run, and what it showed."""
    home.mkdir(parents=True, exist_ok=True)
    path = home / f"{verdict.sequence['name']}.jsonl"
    path.write_text(json.dumps(verdict.sequence) + "\n")
    path.with_suffix(".txt").write_text(f"{verdict}\n")
    return path
