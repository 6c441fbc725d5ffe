"""The generator: the same for a seed, and its sequences come by the paths that there are."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support.scratch import scratch
from tests.sequences import drivers
from tests.sequences.coverage import paths
from tests.sequences.generator import generate
from tests.sequences.settings import THEMES

CASES = 160
#: The minimum coverage of 160 sequences, whatever the seed: some of each kind, and many of the
#: usual ones.
WANTED = {
    "append done": 1200, "append CorruptRecordException": 5, "append InvalidRecordException": 20,
    "append RecordValidationException": 20, "append OutOfOrderSequenceException": 10,
    "append InvalidProducerEpochException": 5, "append RecordBatchTooLargeException": 2,
    "append_follower done": 40, "append_follower UnexpectedAppendOffsetException": 5,
    "append_follower OffsetsOutOfOrderException": 2, "config done": 40,
    "config ConfigException": 4, "flush done": 20, "roll done": 30, "reopen clean": 20,
    "reopen unclean": 20, "retention deleted": 5, "retention kept": 30, "truncate_to moved": 20,
    "truncate_to stayed": 5, "truncate_fully done": 5, "start_offset moved": 5,
    "start_offset stayed": 5, "start_offset OffsetOutOfRangeException": 3, "read bytes": 60,
    "read empty": 60, "read aborted": 2, "read OffsetOutOfRangeException": 20,
    "timestamp found": 60, "timestamp none": 15, "high_watermark done": 150, "epoch_start done": 20,
    "expire_producers done": 6, "segments": 250, "producers": 200, "open transactions": 30,
    "aborted": 10, "time index entries": 100, "several epochs": 15, "unstable": 5,
    "deleted files": 20, "snapshots": 100,
}


def test_a_seed_is_a_sequence() -> None:
    once, again = (list(generate(5, range(3, 6))) for _ in range(2))
    assert once == again
    assert once[1:2] == list(generate(5, range(4, 5)))
    assert once != list(generate(6, range(3, 6)))
    assert json.loads(json.dumps(once)) == once


def test_every_theme_comes_up() -> None:
    themes = Counter(sequence["theme"] for sequence in generate(1, range(CASES)))
    assert set(themes) == {theme.name for theme in THEMES}


@pytest.mark.parametrize("seed", [7])
@pytest.mark.judge
def test_the_paths_of_a_log(kafka_lib: Path, seed: int) -> None:
    home, found, ended = scratch(), Counter[str](), 0
    try:
        with drivers.Side(home, drivers.kafka) as kafka:
            for sequence in generate(seed, range(CASES)):
                kafka.ask(sequence)
                answer = kafka.answer()
                if isinstance(answer, str):
                    ended += 1
                else:
                    found += paths(sequence, answer)
                shutil.rmtree(home / sequence["name"], ignore_errors=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert ended <= CASES / 50
    missed = {path: (found[path], least) for path, least in WANTED.items() if found[path] < least}
    assert not missed, missed
