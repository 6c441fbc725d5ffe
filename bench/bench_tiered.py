"""Records out of remote segments (KIP-405), against the same segments on the local disk; and
segments into a tier."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.data import START_MS, Log, write_log
from bench.harness import Against, Compare, pick
from seglog._native.crc32c import crc32c
from seglog.storage import codecs
from seglog.storage.partition_log import PartitionLog
from seglog.storage.producer_state import encode_snapshot
from seglog.tiered import (
    LOCAL_TIERED_STORAGE, AivenWriter, LayoutStorageManager, LogSegmentData, RemoteLogSegmentId,
    RemoteLogSegmentMetadata, RemoteTree, TopicIdPartition, open_bucket,
)
from seglog.tiered.aiven_writer import zstd_frame
from seglog.tiered.storage_manager import WritableLayout

RECORDS = pick(20_000, 2_000_000, 8_000_000)
PARTITION = TopicIdPartition(bytes(range(16)), "orders", 0)
CHUNK = 4 << 20  # Aiven's default
LOCAL_GOAL, COPY_GOAL = 0.9, 0.7
LAYOUTS: dict[str, WritableLayout] = {
    "local": LOCAL_TIERED_STORAGE, "aiven": AivenWriter(),
    "aiven, zstd": AivenWriter(compression=True)}


@dataclass(frozen=True)
class Tier:
    """A log on the disk, and as it lies in tiers by layout."""

    log: Log
    roots: dict[str, Path]
    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData


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
    roots = {}
    for name, layout in LAYOUTS.items():
        roots[name] = scratch / "tiered" / base64.b16encode(name.encode()).decode()
        LayoutStorageManager(RemoteTree(roots[name]), layout).copy_log_segment_data(metadata, data)
    return Tier(log, roots, metadata, data)


def read(log: PartitionLog) -> int:
    """Records of a log, all default columns."""
    with log:
        return sum(columns.num_rows for columns in log.to_arrow())


@pytest.mark.parametrize("name", ["local", "aiven", "aiven, zstd"])
def test_read(compare: Compare, tier: Tier, name: str) -> None:
    """All columns by Arrow, from opening on."""

    def has_all(records: int) -> None:
        assert records == tier.log.records

    def local() -> int:
        return read(PartitionLog.open(tier.log.path.parent))

    others = [Against("local segments", local, goal=None if "zstd" in name else LOCAL_GOAL,
                      check=has_all)]
    if "zstd" in name:
        frames, into = zstd_frames(tier), bytearray(CHUNK)

        def alone() -> int:
            return sum(len(codecs.decompress(codecs.ZSTD, 2, frame, into, max_bytes=CHUNK))
                       for frame in frames)

        def has_bytes(size: int) -> None:
            assert size == tier.log.size

        others += [Against("its zstd frames alone", alone, check=has_bytes),
                   Against("its zstd frames, then local segments",
                           lambda: (alone(), local())[1], goal=LOCAL_GOAL, check=has_all)]
    compare(f"tier, layout {name}: {tier.log.size / 1e6:.0f} MB of records of 100 B",
            lambda: read(open_bucket(tier.roots[name]).log("orders", 0)), others,
            work=tier.log.size / 1e6, unit="MB", check=has_all)


def zstd_frames(tier: Tier) -> list[bytes]:
    """The chunks of the log, each compressed as the layout does."""
    with tier.log.path.open("rb") as stream:
        return [zstd_frame(chunk) for chunk in iter(lambda: stream.read(CHUNK), b"")]


@pytest.mark.parametrize("name", ["local", "aiven"])
def test_copy(compare: Compare, tier: Tier, scratch: Path, name: str) -> None:
    """A closed segment into a tier on the same file system, against cp, a sync and a checksum."""
    target, copied = scratch / "copied", scratch / "cp"

    def ours() -> Path:
        LayoutStorageManager(RemoteTree(target), LAYOUTS[name]).copy_log_segment_data(
            tier.metadata, tier.data)
        log, = target.rglob("*.log")
        return log

    def floor() -> Path:
        subprocess.run(["cp", tier.log.path, copied], check=True)
        with copied.open("rb") as stream:
            os.fsync(stream.fileno())
            value = 0
            while block := stream.read(1 << 20):
                value = crc32c(block, value)
        return copied

    def is_whole(path: Path) -> None:
        assert path.stat().st_size == tier.log.size

    def clear() -> None:
        shutil.rmtree(target, ignore_errors=True)
        copied.unlink(missing_ok=True)

    compare(f"copy a segment of {tier.log.size / 1e6:.0f} MB, layout {name}", ours,
            [Against("cp, fsync and CRC-32C", floor, goal=COPY_GOAL, check=is_whole)],
            work=tier.log.size / 1e6, unit="MB", check=is_whole, before=clear)
    clear()
