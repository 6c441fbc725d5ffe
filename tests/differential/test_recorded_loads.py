"""seglog's loader on damaged directories that a real Kafka loaded the same when they were recorded:
all that was compared then is the same now, and no JVM is needed to see it.

CONTRIBUTING.md says how to record again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.differential import recorder, registry
from tests.differential.cases import plan
from tests.differential.judge import Judge
from tests.differential.recorder import MET, Recorder
from tests.support import recorded
from tests.support.effort import quick_each

SLICE = 20
LIBRARIES, LINES = recorded.read(recorder.RECORDING)


@pytest.fixture(scope="module")
def ours(golden: Path) -> Iterator[Recorder]:
    """Our side. Skips where compressed bytes are others: directories are full of them."""
    if recorded.libraries() != LIBRARIES:
        pytest.skip("recorded with a library that compresses the same records to other bytes")
    with Recorder(golden) as running:
        yield running


@pytest.mark.parametrize("first", quick_each(range(0, len(LINES), SLICE), 2))
def test_ours_loads_as_recorded(ours: Recorder, first: int) -> None:
    lines = LINES[first:first + SLICE]
    wrong = [f"{name}: {said}" for name, said in ours.replayed(lines)]
    assert not wrong, f"{len(wrong)} of {len(lines)} differ\n" + "\n".join(wrong)


def test_what_was_met_and_every_kind_of_damage_are_recorded(ours: Recorder) -> None:
    cases = [(line["seed"], line["number"]) for line in LINES]
    assert cases[:len(MET)] == MET
    assert len(set(cases)) == len(cases) > 150
    damages = {kind for case in cases for kind, _ in plan(ours.sources, *case).damages}
    assert len(damages) > .9 * len(registry.kinds()), set(registry.kinds()) - damages


def test_a_line_tells_the_file_that_differs(ours: Recorder) -> None:
    line = json.loads(json.dumps(LINES[-1]))
    line["state"]["log_end_offset"] = line["file"]["0.gone"] = "000000"
    [(name, said)] = ours.replayed([line])
    assert name == line["name"] and "state log_end_offset: " in said
    assert "file 0.gone: not the recorded answer (none, recorded 000000)" in said
    assert f"tests.differential --seed {line['seed']} --first {line['number']} --cases 1" in said
    [(_, said)] = ours.replayed([{**line, "question": "000000"}])
    assert "record again" in said and "state" not in said


@pytest.mark.judge
def test_kafka_still_loads_as_recorded(judge: Judge) -> None:
    """Records a part again: the stored lines are the same, to the byte."""
    assert recorded.libraries() == LIBRARIES, "other compressed bytes: record again"
    part = LINES[::4]
    again = recorder.record(judge, [(line["seed"], line["number"]) for line in part])
    assert [json.dumps(line) for line in again] == [json.dumps(line) for line in part]
