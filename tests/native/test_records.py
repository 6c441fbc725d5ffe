"""Records into columns: the golden truth, known bytes, and what a consumer makes of bad ones."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog._native.records import COLUMNS, DEFAULT_COLUMNS, RecordColumns, RecordDecoder
from seglog.storage.codecs import decompress
from tests.oracle import log
from tests.support import golden as golden_data

Rows = list[dict[str, Any]]


def as_rows(columns: RecordColumns) -> Rows:
    lists = columns.to_pylists()
    if "headers" in lists:
        lists["headers"] = [[{"key": key, "value": value} for key, value in headers]
                            for headers in lists["headers"]]
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def decode_file(path: Path, **options: Any) -> Iterator[RecordColumns]:
    fd = os.open(path, os.O_RDONLY)
    try:
        options = {"decompress": decompress, "file": path, **options}
        yield from RecordDecoder(fd, 0, os.fstat(fd).st_size, **options)
    finally:
        os.close(fd)


def read_partition(folder: Path, **options: Any) -> Rows:
    return [row for base in log.base_offsets(folder)
            for columns in decode_file(folder / f"{base:020d}.log", **options)
            for row in as_rows(columns)]


@pytest.mark.parametrize("name, partition", golden_data.real_partitions())
@pytest.mark.parametrize("limits", [{}, {"max_rows": 7}, {"max_bytes": 500}])
def test_real_partitions_read_as_consumers_saw_them(
        golden: Path, name: str, partition: str, limits: dict[str, int]) -> None:
    folder, truth = golden / "real" / name / partition, golden / "real" / "truth" / name
    start, end = json.loads((truth / "watermarks.json").read_text())[partition]
    rows = read_partition(folder, start_offset=start, end_offset=end, **limits)
    assert rows == golden_data.read_truth(truth / f"{partition}.jsonl")
    aborted = [(t.producer_id, t.first_offset, t.last_offset)
               for t in log.transactions(folder).aborted]
    stable = min(end, log.last_stable_offset(folder, end))
    rows = read_partition(folder, start_offset=start, end_offset=stable, aborted=aborted, **limits)
    assert rows == golden_data.read_truth(truth / f"{partition}.jsonl", "read_committed")


@pytest.mark.parametrize("name, partition", golden_data.real_partitions())
def test_every_column_agrees_with_the_oracle(golden: Path, name: str, partition: str) -> None:
    folder = golden / "real" / name / partition
    rows = read_partition(folder, columns=COLUMNS, include_control=True)
    assert rows == [{column: row[column] for column in COLUMNS} for row in log.read(folder).rows]


@pytest.mark.parametrize("limits", [{}, {"max_rows": 3}, {"max_bytes": 200}])
@pytest.mark.parametrize("name", [
    *(f"old-v{magic}-{codec}-0" for magic in (0, 1)
      for codec in ("none", "gzip", "snappy", "lz4")), "old-mixed-0"])
def test_old_partitions_read_as_they_were_written(
        golden: Path, name: str, limits: dict[str, int]) -> None:
    rows = read_partition(golden / "old" / name, **limits)
    assert rows == golden_data.read_truth(golden / "old" / "truth" / f"{name}.jsonl")
    assert set(DEFAULT_COLUMNS) == set(rows[0])
