"""Batches behind a CRC that holds, read by Kafka's FileRecords, by seglog and by the oracle.

Where Kafka reads, seglog reads the same; where Kafka refuses, seglog refuses. What seglog refuses
alone is in `decode_fuzz.STRICTER`: header fields that contradict each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import decode_fuzz
from tests.kafka import harness
from tests.oracle.batch import Row
from tests.support import reading

COLUMNS = ("offset", "timestamp", "key", "value", "headers", "sequence")
SEEDS, COUNT = range(3), 1500


def _rows(rows: list[Row]) -> list[Row]:
    return reading.project(rows, COLUMNS)


@pytest.mark.parametrize("seed", SEEDS)
def test_mutated_batches(kafka: harness.Client, tmp_path: Path, seed: int) -> None:
    given = list(decode_fuzz.mutations(seed, COUNT, tmp_path))
    wrong, refused = [], 0
    said = kafka.records(data for _, data in given)
    for number, ((magic, data), (theirs, error)) in enumerate(zip(given, said, strict=True)):
        path = tmp_path / "mutated.log"
        path.write_bytes(data)
        rows, stopped = decode_fuzz.seglog_rows(path)
        ours = _rows(rows)
        refused += error is not None
        note = f"seed {seed} round {number} magic {magic}: kafka {len(theirs)} rows, {error}; " \
               f"seglog {len(ours)} rows, {stopped!r}"
        if error and "OutOfMemoryError" in error:
            # Kafka allocates what a length says before it reads. Only in an old wrapper is it no
            # error when the bytes are not there: a message that is cut ends the wrapper quietly.
            if (magic == 2 and not stopped) or ours[:len(theirs)] != _rows(theirs):
                wrong.append(f"{note}: read on where Kafka dies")
            continue
        if error and not stopped:
            wrong.append(f"{note}: only Kafka refuses")
        elif stopped and not error and getattr(stopped, "code", "") not in decode_fuzz.STRICTER:
            wrong.append(f"{note}: only seglog refuses")
        shared = min(len(ours), len(theirs))
        if ours[:shared] != _rows(theirs)[:shared]:
            wrong.append(f"{note}: rows differ")
        elif not stopped and not error and len(ours) != len(theirs):
            wrong.append(f"{note}: not the same number of rows")
    assert COUNT // 10 < refused < COUNT, f"{refused} of {COUNT} refused: the mutations are no test"
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])
