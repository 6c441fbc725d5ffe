"""The order of producers in a snapshot: that of two Java hash maps, one inside the replay of a
segment, in which a key comes before the older ones of its bucket, and the one that is written."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from seglog.storage.producer_state import encode_snapshot, read_snapshot
from tests.differential.compare import differences
from tests.differential.kafka import Oracle
from tests.differential.ours import load
from tests.oracle import batch as v2

_CASES = 120
#: Nine of them share a bucket in many buckets, whatever the size of the map.
_IDS = [low + high for low in (0, 1, 7, 2000, 2**40) for high in range(0, 160, 16)] + [*range(70)]


def _log(rng: random.Random) -> bytes:
    """A batch without a producer, then one of each producer."""
    count = rng.choice([2, 2, 3, 5, 9, 12, 13, 14, 15, 24, 25, 26, 40, 60])
    ids = [-1, *rng.sample(sorted(set(_IDS)), count)]
    return b"".join(v2.encode(v2.Batch(
        offset, 0, [v2.Record(offset, 1, b"k", b"v")], base_timestamp=1, max_timestamp=1,
        producer_id=one, producer_epoch=0, base_sequence=0)) for offset, one in enumerate(ids))


@pytest.mark.usefixtures("kafka_lib")
def test_a_replay_lists_producers_as_kafkas_does(home: Path) -> None:
    rng, theirs = random.Random(5), home / "kafka"
    theirs.mkdir()
    (theirs / ".kafka_cleanshutdown").touch()
    for number in range(_CASES):
        partition = theirs / f"case-{number}"
        partition.mkdir()
        (partition / f"{0:020d}.log").write_bytes(_log(rng))
        (partition / f"{0:020d}.index").touch()
        (partition / f"{0:020d}.timeindex").touch()
        # Without a snapshot a log that was shut down would not be read.
        (partition / f"{1:020d}.snapshot").write_bytes(encode_snapshot([]))
    shutil.copytree(theirs, home / "ours")
    config = {"segment.index.bytes": "1024"}
    with Oracle() as oracle:
        kafka = oracle.load(theirs, config)
    ours = load(home / "ours", config)
    wrong = [f"{name}: {line}" for name, state in kafka.items()
             for line in differences(state, ours[name])]
    assert not wrong, "\n".join(wrong)
    kept = [len(read_snapshot(max((home / "ours" / name).glob("*.snapshot")))) for name in kafka]
    assert len(kept) == _CASES and min(kept) == 2 and max(kept) == 60
