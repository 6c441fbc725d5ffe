"""Sequences with rounds of the log cleaner, by Kafka's Cleaner and by seglog's: nothing may differ.

Any other seed: `make sequences SEED=N CASES=N ARGS=--clean`, or `ARGS=--spoiled`.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.sequences.coverage import paths
from tests.sequences.generator import generate
from tests.sequences.judge import Judge, Verdict
from tests.sequences.settings import CLEANED_THEMES, SPOILED_THEMES
from tests.support.effort import how_many, quick_first

SEED = 2026
CASES, SLICE = 300, how_many("SEGLOG_SEQUENCES_SLICE", 50, 20)
MET = Path(__file__).parent / "met_cleaned.jsonl"
#: The minimum coverage of a slice.
WANTED = {"clean dropped": 20, "clean kept": 5, "clean full": 3, "clean nothing": 5, "aborted": 1}


def shown(judge: Judge, verdicts: list[Verdict]) -> str:
    """The first of those that differ."""
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    return "\n".join(str(judge.minimise(verdict)) for verdict in wrong[:3])


@pytest.mark.parametrize("first", quick_first(range(0, CASES, SLICE), 1))
def test_both_clean_the_same(judge: Judge, first: int) -> None:
    verdicts = list(judge.judge(generate(SEED, range(first, first + SLICE), CLEANED_THEMES)))
    assert sum(verdict.counts for verdict in verdicts) >= SLICE - 2
    assert not any(verdict.wrong for verdict in verdicts), shown(judge, verdicts)
    found: Counter[str] = sum((paths(verdict.sequence, verdict.kafka) for verdict in verdicts
                               if isinstance(verdict.kafka, dict)), Counter())
    missed = {path: (found[path], least) for path, least in WANTED.items()
              if found[path] < least * SLICE // 50}
    assert not missed, missed


@pytest.mark.parametrize("first", quick_first(range(0, CASES, SLICE), 1))
def test_both_clean_damaged_logs_the_same(judge: Judge, first: int) -> None:
    """Also with any buffers, load factors and checkpoints."""
    verdicts = list(judge.judge(generate(SEED, range(first, first + SLICE), SPOILED_THEMES)))
    assert sum(verdict.counts for verdict in verdicts) >= SLICE - 2
    assert not any(verdict.wrong for verdict in verdicts), shown(judge, verdicts)
    found = sum((paths(verdict.sequence, verdict.kafka) for verdict in verdicts
                 if isinstance(verdict.kafka, dict)), Counter[str]())
    assert found["spoil done"] >= SLICE // 3
    assert sum(count for path, count in found.items() if path.startswith("clean ")
               and path.endswith("Exception")) >= SLICE // 10


def test_what_was_met_once(judge: Judge) -> None:
    """Sequences that differed once, as short as they were made then."""
    verdicts = list(judge.judge(map(json.loads, MET.read_text().splitlines())))
    assert all(verdict.counts for verdict in verdicts)
    assert not any(verdict.wrong for verdict in verdicts), shown(judge, verdicts)


def test_every_theme_comes_up() -> None:
    themes = {sequence["theme"] for sequence in generate(1, range(CASES), CLEANED_THEMES)}
    assert themes == {theme.name for theme in CLEANED_THEMES}
