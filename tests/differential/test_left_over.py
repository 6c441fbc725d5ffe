"""A split that makes a segment of an old one's base offset finds that one's transaction index.

A segment whose name is above its first offset is split into one that takes the place of the segment
before it. That one's transaction index stays, and Kafka's new segment does not know of it.
"""

from __future__ import annotations

import pytest

from seglog.recovery.index_files import TXN_ENTRY
from tests.differential.cases import Case
from tests.differential.judge import Judge
from tests.differential.sources import GOLDEN_CONFIG, Source

CONFIG = tuple(sorted(GOLDEN_CONFIG.items()))


@pytest.mark.parametrize(("partition", "damages", "index", "entries", "known"), [
    # The new segment aborts nothing: what was left over stays as it is.
    ("compacted-txn-0", (("log_overflowed", "204-175-0"), ("segment_twice", "204-175-1"),
                         ("snapshots_gone", "")), "00000000000000000349.txnindex", 2, 0),
    # It aborts again what the old one did: the entries are there twice, and all count.
    ("txn-0", (("log_overflowed", "x1"), ("segment_twice", "y1")),
     "00000000000000000250.txnindex", 2, 2),
    ("txn-1", (("log_overflowed", "x2"), ("segment_twice", "y2")),
     "00000000000000000253.txnindex", 6, 6),
])
def test_an_index_that_was_left_over(
        judge: Judge, partition: str, damages: tuple[tuple[str, str], ...], index: str,
        entries: int, known: int) -> None:
    verdict = judge.judge_case(Case(0, 0, Source("unclean", partition), damages, CONFIG))
    assert verdict is not None and not verdict.wrong, str(verdict)
    kafka = verdict.kafka[partition]
    [segment] = [one for one in kafka["segments"] if one["base_offset"] == int(index[:20])]
    assert segment["aborted_txns"] == known
    assert kafka["files_closed"][index]["size"] == entries * TXN_ENTRY.size
