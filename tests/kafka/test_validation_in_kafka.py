"""Appends before Kafka's own checks and before seglog's: the same verdict, the same bytes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.kafka import harness, validation_cases
from tests.kafka.verdicts import SEED, comparable, ours, recorded
from tests.support.recorded import digest
from tests.support.effort import how_many, quick_first

SEEDS, COUNT = (SEED, SEED + 1), how_many("SEGLOG_VALIDATIONS", 1500, 400)


def kafka(cases: list[dict[str, Any]], directory: Path) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(harness.command("Validate", str(directory)), input=lines, text=True,
                          capture_output=True, check=True, timeout=1800)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("seed", quick_first(SEEDS, 1))
def test_the_same_verdicts_and_bytes(tmp_path: Path, seed: int) -> None:
    given = validation_cases.cases(seed, COUNT)
    lines = (recorded()[1] if seed == SEED else []) + [""] * COUNT
    wrong, accepted = [], 0
    for number, (case, theirs, line) in enumerate(
            zip(given, kafka(given, tmp_path), lines, strict=False)):
        mine = comparable(ours(case)[0])
        accepted += "made" in theirs
        if theirs.get("error") == "OutOfMemoryError":
            continue  # what a JVM has, not what Kafka decides
        said = comparable(theirs)
        if mine != said or (line and line.split()[0] != digest(said)):
            wrong.append(f"{number}: {case}\n  Kafka  {theirs}\n  seglog {mine}\n  {line}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:5])
    assert COUNT * .1 < accepted < COUNT * .9
