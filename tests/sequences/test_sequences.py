"""Kafka's UnifiedLog and seglog's through the same sequences of operations: nothing may differ.

Any other seed: `make sequences SEED=N [CASES=N]`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sequences.generator import generate
from tests.sequences.judge import Judge
from tests.sequences.settings import CRASHED_THEMES, REMOTE_THEMES, TIERED_THEMES, Theme
from tests.support.effort import how_many, quick_first

SEED = 2026
CASES, SLICE = 200, how_many("SEGLOG_SEQUENCES_SLICE", 50, 20)
MET = Path(__file__).parent / "met.jsonl"


@pytest.mark.parametrize("first", quick_first(range(0, CASES, SLICE), 1))
def test_both_do_the_same(judge: Judge, first: int) -> None:
    verdicts = list(judge.judge(generate(SEED, range(first, first + SLICE))))
    assert sum(verdict.counts for verdict in verdicts) >= SLICE - 2
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    shown = "\n".join(str(judge.minimise(verdict)) for verdict in wrong[:3])
    assert not wrong, f"{len(wrong)} of {len(verdicts)} differ\n{shown}"


@pytest.mark.parametrize("themes", quick_first([
    pytest.param(TIERED_THEMES, id="tiered"), pytest.param(CRASHED_THEMES, id="crashed"),
    pytest.param(REMOTE_THEMES, id="remote")], 1))
def test_other_logs(judge: Judge, themes: tuple[Theme, ...]) -> None:
    verdicts = list(judge.judge(generate(SEED, range(SLICE), themes)))
    assert all(verdict.counts for verdict in verdicts)
    # Segments with the same start come in the order of their random ids: a difference that does not
    # come again is only that.
    repeats = 5 if themes is REMOTE_THEMES else 0
    wrong = [str(judge.minimise(verdict)) for verdict in verdicts if verdict.wrong and all(
        judge.judge_one(verdict.sequence).wrong for _ in range(repeats))]
    assert not wrong, "\n".join(wrong[:3])


def test_what_was_met_once(judge: Judge) -> None:
    """Sequences that differed once, as short as they were made then."""
    verdicts = list(judge.judge(map(json.loads, MET.read_text().splitlines())))
    assert all(verdict.counts for verdict in verdicts)
    wrong = [str(verdict) for verdict in verdicts if verdict.wrong]
    assert not wrong, "\n".join(wrong)
