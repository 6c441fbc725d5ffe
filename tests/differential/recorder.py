"""Our loads of damaged directories as lines of a recording, and the cases of such lines again."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from seglog.cli.recover import dry_run
from seglog.recovery.callbacks import NullListener
from tests.differential.cases import Case, plan
from tests.differential.compare import OWN, is_free, plain
from tests.differential.judge import Judge
from tests.support.scratch import scratch
from tests.differential.ours import State, load_aloud
from tests.differential.sources import Sources
from tests.differential.told import settings_of, told
from tests.support import golden, recorded, transcript
from tests.support.recorded import Branches, Line, digest, short_name

RECORDING = Path(__file__).parent / "recorded.jsonl"
_FILES = ("files_loaded", "files_closed")
# Cases of other seeds that have differed once, or had no end.
MET = [(203, 598), (204, 24), (402, 2008), (404, 1845), (502, 1603), (504, 345),
       (610, 1221), (611, 90), (620, 1063), (640, 2551), (650, 1929)]


def unworded(state: State) -> State:
    """Without what depends on more than the bytes: the time of a file that a message tells, and the
    words of lz4's library."""
    return {key: plain(value) for key, value in plain(state).items()}


def line_of(question: str, states: dict[str, State], predicted: str) -> Line:
    """Digests of what a load comes to: of the directories together, and of each file when the log
    is loaded and when it is closed. `told` is what only we have, `predicted` by a dry run first."""
    state: dict[str, list[Any]] = {}
    own: dict[str, list[Any]] = {"dry_run": [predicted]}
    files: dict[str, list[Any]] = {}
    for directory, whole in sorted(states.items()):
        answer = unworded(whole)
        for key, value in answer.items():
            if key in OWN:
                own.setdefault(key, []).append([directory, value])
            elif key not in _FILES:
                state.setdefault(key, []).append([directory, value])
        for key in _FILES:
            for name, file in answer.get(key, {}).items():
                if not is_free(name, file, answer.get("error")):
                    files.setdefault(short_name(name), []).append([directory, key, file])
    return {"question": question, **{part: {key: digest(value) for key, value in of.items()}
                                     for part, of in (("state", state), ("file", files),
                                                      ("told", own))}}


def question_of(case: Case, root: Path) -> str:
    """A digest of the directory that a case makes, and of its configuration."""
    return digest([case.config, [
        [str(path.relative_to(root)),
         hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""]
        for path in sorted(root.rglob("*"))]])


def dry_run_of(case: Case, root: Path) -> str:
    """All that a dry run tells, with each segment read."""
    settings = settings_of(case.config, "verify", threads=1)
    outcome = dry_run(str(root), settings, NullListener())
    return transcript.plain(json.dumps(told(outcome, settings), default=str), str(root))


class Recorder:
    """Makes cases and loads them; `with` removes all copies and keeps the loads silent."""

    def __init__(self, golden_home: Path) -> None:
        self.home = scratch()
        self.sources = Sources(golden_home, self.home / "sources")
        self._logger = logging.getLogger("seglog")
        self._level = self._logger.level

    def __enter__(self) -> Recorder:
        self._logger.setLevel(logging.CRITICAL)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.setLevel(self._level)
        shutil.rmtree(self.home, ignore_errors=True)

    def loaded(self, seed: int, number: int) -> tuple[list[str], Line]:
        """What was done to the directory of a case, and the line of its load."""
        case = plan(self.sources, seed, number)
        root = self.home / case.name / "data"
        try:
            done = case.build(self.sources, root)
            question = question_of(case, root)
            predicted = dry_run_of(case, root)
            return done, line_of(question, load_aloud(root, dict(case.config)), predicted)
        finally:
            shutil.rmtree(root.parent, ignore_errors=True)

    def replayed(self, lines: Iterable[Line]) -> Iterator[tuple[str, str]]:
        """(name, what differs) of lines that our loader does not answer as it was recorded."""
        for line in lines:
            now = self.loaded(line["seed"], line["number"])[1]
            wrong = list(recorded.differences({key: line[key] for key in now}, now))
            if wrong:
                yield line["name"], f"{'; '.join(wrong[:8])}\n    {command(line)}"

    def retold(self, lines: Iterable[Line]) -> Iterator[Line]:
        """The lines with what only we have as it is now."""
        for line in lines:
            yield recorded.retold(line, self.loaded(line["seed"], line["number"])[1])

    def choose(self, seed: int, numbers: range, most: int) -> list[int]:
        """Of these cases those that take the most paths of the package."""
        branches = Branches()

        def things(number: int) -> set[Any]:
            kept: list[list[str]] = []
            found: set[Any] = branches.of(lambda: kept.append(self.loaded(seed, number)[0]))
            kinds = {line.partition(":")[0] for line in kept[0]}
            return found | kinds if kinds else set()

        return recorded.chosen(((number, things(number)) for number in numbers), most)


def command(line: Line) -> str:
    """How to run the case of a line beside Kafka."""
    return f"python -m tests.differential --seed {line['seed']} --first {line['number']} --cases 1"


def record(judge: Judge, cases: Iterable[tuple[int, int]]) -> Iterator[Line]:
    """The lines of cases in which nothing differs from Kafka."""
    for seed, number in cases:
        case = plan(judge.sources, seed, number)
        verdict = judge.judge_case(case)
        if verdict is None or verdict.wrong:
            print(f"{case.name}: left out, {verdict.wrong[0] if verdict else 'nothing to do'}",
                  flush=True)
            continue
        root = judge.home / f"{case.name}-question" / "data"
        case.build(judge.sources, root)
        question, predicted = question_of(case, root), dry_run_of(case, root)
        shutil.rmtree(root.parent)
        yield {"name": case.name, "seed": seed, "number": number,
               **line_of(question, verdict.ours, predicted)}


def write(path: Path, seed: int, numbers: range, most: int) -> int:
    """Records the best of these cases and those of `MET`; how many were recorded."""
    home = golden.unpack()
    with Recorder(home) as recorder:
        kept = recorder.choose(seed, numbers, most)
    with Judge(home, load_aloud) as judge:
        lines = list(record(judge, [*MET, *((seed, number) for number in kept)]))
    lines = recorded.steady("tests.differential", lines, path)
    recorded.write(path, lines)
    return len(lines)
