"""Kafka's LogManager and ours on the same damaged data directories: nothing may differ.

Any other seed: `python -m tests.differential --loader manager --seed N [--cases N]`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.differential.managers import ManagerJudge

SEED, CASES = 2026, 40


@pytest.mark.judge
@pytest.mark.usefixtures("kafka_lib")
def test_both_serve_the_same_logs(golden: Path) -> None:
    with ManagerJudge(golden) as judge:
        verdicts = list(judge.judge(SEED, range(CASES)))
        wrong = [str(judge.minimise(verdict)) for verdict in verdicts if verdict.wrong]
    refused = sum("error" in verdict.kafka for verdict in verdicts)
    assert 0 < refused < CASES / 2
    assert not wrong, f"{len(wrong)} of {CASES} differ\n" + "\n".join(wrong)
