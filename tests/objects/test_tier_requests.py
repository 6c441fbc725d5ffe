"""How many requests a log costs in a tier, next to the same log in a directory of the store."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from seglog.storage.partition_log import PartitionLog
from seglog.tiered import (
    LayoutStorageManager, LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata,
    RemoteTree, TopicIdPartition, open_bucket,
)
from tests.objects.faulty import Faulty
from tests.objects.server import options_of
from tests.tiered.conftest import Tiered, read
from tests.tiered.conftest import tiered as tiered  # the fixture

NAME = "t-gzip-0"
PARTITION = TopicIdPartition(bytes(range(16)), "big", 0)


def counted(faulty: Faulty) -> Counter[str]:
    """The requests since the last call: lists, and others by the suffix of the object."""
    with faulty.lock:
        found = Counter("list" if not one.key else f"{one.method} {Path(one.key).suffix}"
                        for one in faulty.asked)
        faulty.asked.clear()
    return found


@pytest.fixture
def tier(faulty: Faulty, tiered: Tiered) -> str:
    """The golden tier in a bucket."""
    shutil.copytree(tiered.remote, faulty.root / "data" / "tier")
    return "s3://data/tier"


def test_the_bucket_alone(faulty: Faulty, tier: str, tiered: Tiered) -> None:
    """Each list once, each index and checkpoint once, each of these small logs once."""
    log = open_bucket(tier, storage_options=options_of(faulty.port)).log("t-gzip", 0)
    rows = read(log)
    segments = len(tiered.objects(NAME))
    assert rows == [row for row in tiered.rows(NAME, "read_uncommitted")
                    if row.offset < log.log_end_offset]
    found = counted(faulty)
    assert found["list"] == 3  # the tier, its directory, the partition
    assert found["GET .leader_epoch_checkpoint"] == segments
    assert found["GET .index"] <= 2 * segments - 1
    assert sum(found[kind] for kind in found if kind.startswith("HEAD")) == 0
    log.refresh()
    assert read(log) == rows
    assert counted(faulty)["list"] == 1


def test_disk_and_bucket(faulty: Faulty, tier: str, tiered: Tiered) -> None:
    """The metadata topic says the rest."""
    log = PartitionLog.open(tiered.data / NAME, remote=tier,
                            storage_options=options_of(faulty.port))
    assert counted(faulty) == {"list": 3}
    assert read(log) == tiered.rows(NAME, "read_uncommitted")
    segments = len(tiered.objects(NAME))
    found = counted(faulty)
    assert set(found) == {"GET .index", "GET .log"}
    assert found["GET .index"] == segments


def test_a_copy_of_the_disk_and_the_tier_in_a_bucket(faulty: Faulty, tier: str, tiered: Tiered
                                                     ) -> None:
    """The copy is listed once for each state of it."""
    shutil.copytree(tiered.data / NAME, faulty.root / "data" / "copy" / NAME)
    with PartitionLog.open(f"s3://data/copy/{NAME}", remote=tier,
                           storage_options=options_of(faulty.port)) as log:
        assert read(log)[-1] == tiered.rows(NAME, "read_uncommitted")[-1]
        counted(faulty)
        log.refresh()
        assert counted(faulty)["list"] == 2  # the partition's directories in the copy and the tier


def test_a_large_log_costs_what_a_plain_one_does(faulty: Faulty, tmp_path: Path) -> None:
    """From the bucket alone: three lists instead of one, a checkpoint, and the index once more or
    not; the log's bytes as often as of the plain one."""
    from bench.data import START_MS, write_log

    options = {**options_of(faulty.port), "max_requests": "8"}
    written = write_log(faulty.root / "data" / "big-0", 200_000)
    for suffix, content in ((".timeindex", b""), (".snapshot", bytes(10))):
        written.path.with_suffix(suffix).write_bytes(content)
    LayoutStorageManager(RemoteTree("s3://data/big", options)).copy_log_segment_data(
        RemoteLogSegmentMetadata(RemoteLogSegmentId(PARTITION, bytes(16)), 0, written.last_offset,
                                 START_MS, 1, START_MS, written.size, {0: 0}),
        LogSegmentData(str(written.path), str(written.path.with_suffix(".index")),
                       str(written.path.with_suffix(".timeindex")), None,
                       str(written.path.with_suffix(".snapshot")), b"0\n1\n0 0\n"))

    def cost(log: PartitionLog) -> tuple[Counter[str], int]:
        with log:
            assert sum(one.num_rows for one in log.to_arrow(columns=["offset"])) == written.records
        with faulty.lock:
            size = sum(one.end - one.start for one in faulty.asked if one.key.endswith(".log"))
        return counted(faulty), size

    counted(faulty)
    plain, plain_bytes = cost(PartitionLog.open("s3://data/big-0", storage_options=options))
    tier, tier_bytes = cost(open_bucket("s3://data/big", storage_options=options).log("big", 0))
    assert tier["GET .log"] == plain["GET .log"] and tier_bytes == plain_bytes
    assert tier["GET .index"] == plain["GET .index"] == 1
    assert (plain["list"], tier["list"]) == (1, 3)
    assert tier["GET .leader_epoch_checkpoint"] == 1
    assert tier.total() == plain.total() + 2  # two lists, and one checkpoint instead of another
