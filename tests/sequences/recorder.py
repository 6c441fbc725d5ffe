"""Our answers to sequences as lines of a recording, and the sequences of such lines again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.scratch import scratch
from tests.kafka.drive import run_sequence
from tests.sequences.compare import closed_at
from tests.sequences.coverage import paths
from tests.sequences.generator import generate
from tests.sequences.judge import Judge, Sequence
from tests.sequences.settings import CLEANED_THEMES, THEMES
from tests.support import recorded
from tests.support.recorded import Branches, Line, digest, short_name

HERE = Path(__file__).parent
#: Recording, the sequences that were met once, and whether all are for the log cleaner.
RECORDINGS = {False: HERE / "recorded.jsonl", True: HERE / "recorded_cleaned.jsonl"}
MET = {False: HERE / "met.jsonl", True: HERE / "met_cleaned.jsonl"}


def met(clean: bool) -> list[Sequence]:
    """The sequences that differed once."""
    return [json.loads(line) for line in MET[clean].read_text().splitlines()]


def line_of(sequence: Sequence, answer: dict[str, Any], until: int) -> Line:
    """Digests of an answer. `until` is the number of operations that count: after a reopening that
    both refuse nothing is compared (tests/sequences/compare.py). `told` has what each did to the
    files and what it logged, of which only a part is Kafka's too."""
    line: Line = {"question": digest(sequence),
                  "op": " ".join(map(digest, answer["results"][:until]))}
    said = answer["said"][:until + 1]
    if until == len(sequence["ops"]):
        said = answer["said"]
        line["state"] = {key: digest(value) for key, value in answer["state"].items()}
        line["file"] = {short_name(name): digest(file) for name, file in answer["files"].items()}
    # The places in both are the operations'; `told` begins with the opening.
    cleaned = {number for number, op in enumerate(sequence["ops"], 1) if op["op"] == "clean"}
    return {**line, "told": " ".join(
        digest(_of_cleaning(lines) if number in cleaned else lines)
        for number, lines in enumerate(said))}


def _of_cleaning(lines: list[str]) -> list[str]:
    """The lines without the cleaner's, which tell times of files. Its threads come in any order,
    and some write more than others before one of them fails."""
    return sorted(line for line in lines
                  if " LogCleaner - " not in line and ".cleaned" not in line)


def sequence_of(line: Line) -> Sequence:
    """The sequence of a line."""
    if "met" in line:
        return met(line["clean"])[line["met"]]
    [sequence] = generate(line["seed"], range(line["number"], line["number"] + 1),
                          CLEANED_THEMES if line["clean"] else THEMES)
    return sequence


def command(line: Line) -> str:
    """How to run the sequence of a line beside Kafka."""
    clean = " --clean" if line["clean"] else ""
    which = f"--file tests/sequences/{MET[line['clean']].name}" if "met" in line else \
        f"--seed {line['seed']} --first {line['number']} --cases 1{clean}"
    return f"python -m tests.sequences {which}"


def answered(lines: Iterable[Line]) -> Iterator[tuple[Line, Sequence, Line]]:
    """Each line with its sequence, and the line that our side makes of it now."""
    home = scratch()
    try:
        for line in lines:
            sequence = sequence_of(line)
            answer = run_sequence(home, sequence)
            shutil.rmtree(home / sequence["name"], ignore_errors=True)
            yield line, sequence, line_of(sequence, answer, len(line["op"].split()))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def replayed(lines: Iterable[Line]) -> Iterator[tuple[str, str]]:
    """(name, what differs) of lines that our side does not answer as it was recorded."""
    for line, sequence, now in answered(lines):
        old = {key: line[key] for key in now}
        names = [f"{number} {op['op']}" for number, op in enumerate(sequence["ops"])]
        for one in (old, now):
            one["op"] = dict(zip(names, one["op"].split(), strict=False))
            one["told"] = dict(zip(["opening", *names, "closing"], one["told"].split(),
                                   strict=False))
        wrong = list(recorded.differences(old, now))
        if wrong:
            yield line["name"], f"{'; '.join(wrong[:8])}\n    {command(line)}"


def retold(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines with what our side says now."""
    for line, _, now in answered(lines):
        yield recorded.retold(line, now)


def choose(seed: int, numbers: range, clean: bool, most: int) -> list[int]:
    """Of these sequences those that come by the most paths of the package."""
    home, branches = scratch(), Branches()

    def things(sequence: Sequence) -> set[Any]:
        answers = []
        found: set[Any] = branches.of(lambda: answers.append(run_sequence(home, sequence)))
        shutil.rmtree(home / sequence["name"], ignore_errors=True)
        [answer] = answers
        known = paths(sequence, answer) if "error" not in answer["state"] else {}
        return found | {path for path, count in known.items() if count}

    try:
        return recorded.chosen(
            ((number, things(sequence)) for number, sequence in zip(
                numbers, generate(seed, numbers, CLEANED_THEMES if clean else THEMES),
                strict=True)), most)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def record(judge: Judge, seed: int, numbers: Iterable[int], clean: bool) -> Iterator[Line]:
    """The lines of what was met once and of these numbers, where nothing differs from Kafka."""
    heads: list[Line] = [{"clean": clean, "met": at} for at in range(len(met(clean)))]
    heads += [{"clean": clean, "seed": seed, "number": number} for number in numbers]
    for head in heads:
        verdict = judge.judge_one(sequence_of(head))
        name = verdict.sequence["name"]
        if verdict.wrong or isinstance(verdict.kafka, str) or isinstance(verdict.ours, str):
            print(f"{name}: left out, {(verdict.wrong or [verdict.kafka])[0]}", flush=True)
            continue
        until = closed_at(verdict.sequence["ops"], verdict.kafka["results"])
        yield {"name": ("met " if "met" in head else "") + name, **head,
               **line_of(verdict.sequence, verdict.ours, until)}
