"""A check of a tier finds an index that is wrong, though its bytes are those of an index."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from seglog.storage.partition_log import PartitionLog
from seglog.tiered import open_bucket
from seglog.tiered.tier_check import check_partition
from tests.tiered.conftest import Tiered
from tests.tiered.test_tiered_reading import REMOTE

OFFSET, TIME, ABORTED = ">ii", ">qi", ">hqqqq"


def changed(form: str, change: Callable[[tuple[int, ...]], tuple[int, ...]]
            ) -> Callable[[bytes], bytes]:
    """Changes the last entry of an index."""
    size = struct.calcsize(form)
    return lambda content: content[:-size] + struct.pack(
        form, *change(struct.unpack(form, content[-size:])))


@pytest.mark.parametrize(("name", "suffix", "change"), [
    ("t-gzip-0", ".index", changed(OFFSET, lambda one: (one[0] + 1000, one[1]))),
    ("t-gzip-0", ".index", changed(OFFSET, lambda one: (0, one[1]))),
    ("t-gzip-0", ".timeindex", changed(TIME, lambda one: (one[0] + 1, one[1]))),
    ("t-gzip-0", ".timeindex", changed(TIME, lambda one: (one[0], one[1] + 1000))),
    ("t-gzip-0", ".timeindex", lambda content: content[:-1]),
    ("t-txn-0", ".txnindex", changed(ABORTED, lambda one: (*one[:3], 1 << 40, one[4]))),
    ("t-txn-0", ".txnindex", lambda content: content[:-1]),
    ("t-epochs-0", ".leader_epoch_checkpoint", lambda content: b"0\n1\n9 0\n")])
def test_a_wrong_index_is_found(tiered_copy: Tiered, name: str, suffix: str,
                                change: Callable[[bytes], bytes]) -> None:
    path: Path = next(one for one in tiered_copy.objects(name, suffix) if one.stat().st_size)
    path.write_bytes(change(path.read_bytes()))
    log = PartitionLog.open(tiered_copy.data / name, remote=tiered_copy.remote)
    found, = check_partition(log).findings
    assert (found.code, path.name[:43] in str(found)) == ("index_wrong", True)


@pytest.mark.parametrize("name", REMOTE)
def test_what_a_broker_wrote_is_sound(tiered: Tiered, name: str) -> None:
    topic, _, partition = name.rpartition("-")
    for log in (PartitionLog.open(tiered.data / name, remote=tiered.remote),
                open_bucket(tiered.remote).log(topic, int(partition))):
        found = check_partition(log)
        assert found.is_sound and found.segments
        assert not [one for one in found.findings if one.code == "index_wrong"]
