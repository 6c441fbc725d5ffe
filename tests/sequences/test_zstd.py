"""What docs/differences.md says of zstd: the bytes are libzstd's, and two versions of it differ."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import batch as v2
from tests.sequences import drivers
from tests.sequences.test_sequences import MET
from tests.support.effort import quick_first

#: An append that is encoded again with zstd, where 1.5.6 and 1.5.7 write other bytes.
MET_WITH = {"s8101-0", "s31337-562"}


def log_after(sequence: dict[str, Any], home: Path, command: Callable[[Path], list[str]]) -> bytes:
    """The first segment that one side leaves."""
    (home / sequence["name"]).mkdir(parents=True)
    with drivers.Side(home, command) as side:
        side.ask(sequence)
        answer = side.answer()
    assert isinstance(answer, dict)
    assert not any("error" in result for result in answer["results"])
    return (home / sequence["name"] / "t-0" / f"{0:020}.log").read_bytes()


def batches(data: bytes) -> list[v2.Batch]:
    found, at = [], 0
    while at < len(data):
        end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
        found.append(v2.decode(data[at:end]))
        at = end
    return found


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("sequence", quick_first([
    pytest.param(sequence, id=sequence["name"])
    for sequence in map(json.loads, MET.read_text().splitlines())
    if sequence["name"] in MET_WITH], 1))
def test_the_bytes_are_libzstds_and_the_records_the_same(
        sequence: dict[str, Any], tmp_path: Path) -> None:
    mine = log_after(sequence, tmp_path / "ours", drivers.ours)
    assert mine == log_after(sequence, tmp_path / "same", drivers.kafka)
    theirs = log_after(sequence, tmp_path / "released", drivers.kafka_as_released)
    assert mine != theirs
    assert batches(mine) == batches(theirs)
