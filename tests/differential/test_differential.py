"""Kafka's loader and seglog's on the same damaged directories: nothing may differ.

Any other seed: `make differential SEED=N [CASES=N]`.
"""

from __future__ import annotations

import pytest

from tests.differential.judge import Judge
from tests.differential.recorder import MET
from tests.support.effort import how_many, quick_first

SEED = 2026
CASES, SLICE = 1100, how_many("SEGLOG_DIFFERENTIAL_SLICE", 110, 44)


@pytest.mark.parametrize("first", quick_first(range(0, CASES, SLICE), 1))
def test_both_arrive_at_the_same_log(judge: Judge, first: int) -> None:
    verdicts = list(judge.judge(SEED, range(first, first + SLICE)))
    wrong = [str(verdict) for verdict in verdicts if verdict.wrong]
    # Some damages find nothing to do, and some directories are refused by both.
    assert len(verdicts) > SLICE * .85
    refused = sum("error" in state for verdict in verdicts for state in verdict.kafka.values())
    assert 0 < refused < len(verdicts) / 2
    assert not wrong, f"{len(wrong)} of {len(verdicts)} differ\n" + "\n".join(wrong)


@pytest.mark.parametrize(("seed", "number"), MET)
def test_what_was_met_once(judge: Judge, seed: int, number: int) -> None:
    verdict, = judge.judge(seed, range(number, number + 1))
    assert not verdict.wrong, str(verdict)
