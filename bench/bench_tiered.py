"""Records out of remote segments (KIP-405), against the same segments on the local disk."""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.data import START_MS, Log, write_log
from bench.harness import Against, Compare, pick
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import encode_snapshot
from seglog.tiered import (
    LOCAL_TIERED_STORAGE, AivenWriter, LayoutStorageManager, LogSegmentData, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteTree, TopicIdPartition, open_bucket,
)
from seglog.tiered.storage_manager import WritableLayout

RECORDS = pick(20_000, 2_000_000, 8_000_000)
PARTITION = TopicIdPartition(bytes(range(16)), "orders", 0)
LOCAL_GOAL = 0.9


@dataclass(frozen=True)
class Tier:
    """A log on the disk, and as it lies in tiers by layout."""

    log: Log
    roots: dict[str, Path]


@pytest.fixture(scope="module")
def tier(scratch: Path) -> Tier:
    """One segment of records of 100 B in every layout."""
    log = write_log(scratch / "tiered" / "orders-0", RECORDS)
    epochs = b"0\n1\n0 0\n"
    files = {suffix: log.path.with_suffix(suffix) for suffix in (".timeindex", ".snapshot")}
    files[".timeindex"].touch()
    files[".snapshot"].write_bytes(encode_snapshot(()))
    data = LogSegmentData(os.fspath(log.path), os.fspath(log.path.with_suffix(".index")),
                          os.fspath(files[".timeindex"]), None, os.fspath(files[".snapshot"]),
                          epochs)
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, bytes(16)), 0, log.records - 1, START_MS, 1, START_MS,
        log.size, {0: 0})
    layouts: dict[str, WritableLayout] = {
        "local": LOCAL_TIERED_STORAGE, "aiven": AivenWriter(),
        "aiven, zstd": AivenWriter(compression=True)}
    roots = {}
    for name, layout in layouts.items():
        roots[name] = scratch / "tiered" / base64.b16encode(name.encode()).decode()
        LayoutStorageManager(RemoteTree(roots[name]), layout).copy_log_segment_data(metadata, data)
    return Tier(log, roots)


def read(log: PartitionLog) -> int:
    """Records of a log, all default columns."""
    with log:
        return sum(columns.num_rows for columns in log.to_arrow())


@pytest.mark.parametrize("name", ["local", "aiven", "aiven, zstd"])
def test_read(compare: Compare, tier: Tier, name: str) -> None:
    """All columns by Arrow, from opening on."""

    def has_all(records: int) -> None:
        assert records == tier.log.records

    compare(f"tier, layout {name}: {tier.log.size / 1e6:.0f} MB of records of 100 B",
            lambda: read(open_bucket(tier.roots[name]).log("orders", 0)),
            [Against("local segments", lambda: read(PartitionLog.open(tier.log.path.parent)),
                     goal=None if "zstd" in name else LOCAL_GOAL, check=has_all)],
            work=tier.log.size / 1e6, unit="MB", check=has_all)
