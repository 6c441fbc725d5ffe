"""The verdicts of Kafka's LogValidator on seeded appends, as they were recorded: the same answers,
exceptions and texts, and what only we have with them, without a JVM.

CONTRIBUTING.md says how to record again.
"""

from __future__ import annotations

import pytest

from tests.kafka import validation_cases, verdicts

SLICE = 150


@pytest.fixture(scope="module")
def cases() -> list[verdicts.Case]:
    """The recorded appends. Skips where compressed bytes are others: appends are full of them."""
    found, head = validation_cases.cases(verdicts.SEED, verdicts.COUNT), verdicts.recorded()[0]
    now = verdicts.head_of(found)
    if head["libraries"] != now["libraries"]:
        pytest.skip("recorded with a library that compresses the same records to other bytes")
    assert head == now, "the generator changed: record again"
    return found


@pytest.mark.parametrize("first", range(0, verdicts.COUNT, SLICE))
def test_appends_get_the_recorded_verdicts(cases: list[verdicts.Case], first: int) -> None:
    part, lines = cases[first:first + SLICE], verdicts.recorded()[1][first:first + SLICE]
    wrong = [f"{number}: {verdicts.ours(case)}" for number, (case, mine, line) in enumerate(
        zip(part, verdicts.lines_of(part), lines, strict=True), first) if mine != line]
    assert not wrong, f"{len(wrong)} of {len(part)} differ\n" + "\n".join(wrong[:3])
