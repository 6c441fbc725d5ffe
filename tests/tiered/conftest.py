"""The golden directory of a broker with remote storage, and what its consumers got."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from seglog._native.columns import RecordColumns
from seglog.storage.isolation import Isolation
from seglog.storage.partition_log import PartitionLog
from tests.support import golden as golden_data
from tests.support.golden import decode


class Row(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Tiered(NamedTuple):
    """`data` and `remote` of a broker. The rows of a partition by isolation level."""

    root: Path

    @property
    def data(self) -> Path:
        """The broker's log directory."""
        return self.root / "data"

    @property
    def remote(self) -> Path:
        """What LocalTieredStorage holds."""
        return self.root / "remote"

    def marks(self) -> dict[str, tuple[int, int]]:
        """(log start offset, high watermark) of each partition."""
        return {name: (low, high) for name, (low, high) in json.loads(
            (self.root / "truth/watermarks.json").read_text()).items()}

    def rows(self, name: str, isolation: Isolation) -> list[Row]:
        """What a consumer got of a partition."""
        found = []
        with gzip.open(self.root / f"truth/{name}.jsonl.gz", "rt") as lines:
            for line in lines:
                row = json.loads(line)
                if isolation == "read_uncommitted" or row["committed"]:
                    found.append(Row(row["offset"], row["timestamp"], decode(row["key"]),
                                     decode(row["value"]), tuple(
                                         (key, decode(value)) for key, value in row["headers"])))
        return found

    def objects(self, name: str, suffix: str = ".log") -> list[Path]:
        """The objects of a partition, by name."""
        return sorted(self.remote.glob(f"kafka-tiered-storage/{name}-*/*{suffix}"))


def read(log: PartitionLog, isolation: Isolation = "read_uncommitted", threads: int = 0
         ) -> list[Row]:
    """All rows of a log."""
    found = []
    for batch in log.to_arrow(isolation=isolation, threads=threads, columns=[
            "offset", "timestamp", "key", "value", "headers"]):
        found += rows_of(batch)
    return found


def rows_of(batch: RecordColumns) -> list[Row]:
    """The rows of one batch with the columns of a Row."""
    rows = batch.to_pylists()
    return [Row(offset, timestamp, key, value, tuple(_header(one) for one in headers))
            for offset, timestamp, key, value, headers in zip(
                rows["offset"], rows["timestamp"], rows["key"], rows["value"],
                rows["headers"], strict=True)]


def _header(one: object) -> tuple[str, bytes | None]:
    if isinstance(one, dict):
        return one["key"], one["value"]
    key, value = one  # type: ignore[misc]
    return key, value


@pytest.fixture(scope="session")
def tiered() -> Tiered:
    """The unpacked golden directory; tests must not write there."""
    return Tiered(golden_data.unpack(archive_path=golden_data.TIERED_ARCHIVE) / "tiered")


@pytest.fixture
def tiered_copy(tiered: Tiered, tmp_path: Path) -> Tiered:
    """A copy that a test may damage."""
    shutil.copytree(tiered.root, tmp_path / "tiered")
    return Tiered(tmp_path / "tiered")
