"""seglog's log on sequences that a real Kafka answered the same when they were recorded: all that
was compared then is the same now, and no JVM is needed to see it.

CONTRIBUTING.md says how to record again.
"""

from __future__ import annotations

import json

import pytest

from tests.sequences import recorder
from tests.sequences.judge import Judge
from tests.sequences.settings import CLEANED_THEMES, THEMES
from tests.support import recorded
from tests.support.effort import quick_each

SLICE = 20
LINES = {clean: recorded.read(path) for clean, path in recorder.RECORDINGS.items()}
SLICES = [pytest.param(clean, first, id=f"{'cleaned' if clean else 'log'}-{first}")
          for clean, (_, lines) in LINES.items() for first in range(0, len(lines), SLICE)]


@pytest.fixture(scope="module")
def same_libraries() -> None:
    """Skips where compressed bytes are others: sequences and files are full of them."""
    if {libraries for libraries, _ in LINES.values()} != {recorded.libraries()}:
        pytest.skip("recorded with a library that compresses the same records to other bytes")


@pytest.mark.usefixtures("same_libraries")
@pytest.mark.parametrize(("clean", "first"), quick_each(SLICES, 2))
def test_ours_answers_as_recorded(clean: bool, first: int) -> None:
    lines = LINES[clean][1][first:first + SLICE]
    wrong = [f"{name}: {said}" for name, said in recorder.replayed(lines)]
    assert not wrong, f"{len(wrong)} of {len(lines)} differ\n" + "\n".join(wrong)


@pytest.mark.parametrize("clean", [False, True])
def test_all_that_was_met_is_recorded(clean: bool) -> None:
    lines = LINES[clean][1]
    assert [line["met"] for line in lines if "met" in line] == [*range(len(recorder.met(clean)))]
    assert len({line["name"] for line in lines}) == len(lines) > 80
    themes = {recorder.sequence_of(line)["theme"] for line in lines if "met" not in line}
    assert themes == {theme.name for theme in (CLEANED_THEMES if clean else THEMES)}


def test_a_line_tells_the_part_that_differs() -> None:
    line = next(line for line in LINES[False][1] if "met" not in line and line.get("file"))
    other = json.loads(json.dumps(line))
    ops = other["op"].split()
    other["op"] = " ".join([*ops[:-1], "000000"])
    other["state"]["log_end_offset"] = other["file"]["0.gone"] = "000000"
    [(name, said)] = recorder.replayed([other])
    assert name == line["name"]
    assert f"op {len(ops) - 1} " in said and "state log_end_offset: " in said
    assert "file 0.gone: not the recorded answer (none, recorded 000000)" in said
    assert f"tests.sequences --seed {line['seed']} --first {line['number']} --cases 1" in said
    [(_, said)] = recorder.replayed([{**other, "question": "000000"}])
    assert "record again" in said and "state" not in said


@pytest.mark.judge
@pytest.mark.parametrize("clean", [False, True])
def test_kafka_still_answers_as_recorded(judge: Judge, clean: bool) -> None:
    """Records a part again: the stored lines are the same, to the byte."""
    libraries, lines = LINES[clean]
    assert libraries == recorded.libraries(), "other compressed bytes: record again"
    part = [line for line in lines if "met" not in line][::4]
    met = [line for line in lines if "met" in line]
    again = recorder.record(judge, part[0]["seed"], [line["number"] for line in part], clean)
    assert [json.dumps(line) for line in again] == [json.dumps(line) for line in met + part]
