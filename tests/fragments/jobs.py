"""Jobs run as by Spark, but without Spark, and the expected contents of the logs afterwards."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.fragments import (
    Fragment, FragmentWriter, Job, StreamBatch, check_target, partition_count, publish,
)
from seglog.model import TopicPartition
from tests.support import reading

pa = pytest.importorskip("pyarrow")

Row = dict[str, Any]
Truth = dict[TopicPartition, list[Row]]

#: A moment in ms.
NOW = 1_700_000_000_000


def make_rows(rng: random.Random, count: int) -> list[Row]:
    """Records of every shape, with timestamps that go backwards."""
    return [{"key": rng.choice([None, b"", rng.randbytes(rng.randint(1, 9))]),
             "value": rng.choice([None, rng.randbytes(rng.randint(0, 120))]),
             "timestamp": NOW + rng.randint(-10**6, 10**6),
             "headers": [{"key": rng.choice(["", "h", "é"]), "value": rng.choice([None, b"x"])}
                         for _ in range(rng.choice([0, 0, 0, 1, 3]))]} for _ in range(count)]


def table(rows: list[Row]) -> pa.Table:
    """The rows as a table from Spark."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.table({
        "key": pa.array([row["key"] for row in rows], pa.binary()),
        "value": pa.array([row["value"] for row in rows], pa.binary()),
        "timestamp": pa.array([row["timestamp"] * 1000 for row in rows],
                              pa.timestamp("us", "UTC")),
        "headers": pa.array([row["headers"] or None for row in rows], pa.list_(header))})


class Written:
    """The fragments of a job, and their rows by partition."""

    def __init__(self, data_dir: Path, *, segment_bytes: int = 1 << 30, codec: str = "none",
                 batch_bytes: int = 16384, partitions: int = 3) -> None:
        self.job = Job.begin(check_target(str(data_dir)), os.getpid())
        self.fragments: list[Fragment] = []
        self.rows: Truth = {}
        self.counts: dict[str, int] = {}
        self.partitions, self.segment_bytes = partitions, segment_bytes
        self._codec, self._batch_bytes = codec, batch_bytes
        self._tasks = 0

    def task(self, given: Mapping[TopicPartition, list[Row]], *, reported: bool = True) -> None:
        """Runs one attempt of a task; it does not count unless `reported`."""
        self._tasks += 1
        with FragmentWriter(self.job, str(self._tasks), codec=self._codec,
                            max_batch_bytes=self._batch_bytes, segment_bytes=self.segment_bytes,
                            max_message_bytes=1 << 20) as writer:
            for key, rows in given.items():
                self.counts[key.topic] = partition_count(self.job.data_dir, key.topic,
                                                         self.partitions)
                middle = len(rows) // 2
                for part in (rows[:middle], rows[middle:]):
                    if part:
                        writer.append(key, table(part))
            found = writer.finish()
        if reported:
            self.fragments += found
            for key, rows in given.items():
                self.rows.setdefault(key, []).extend(rows)

    def publish(self, stream: StreamBatch | None = None) -> dict[TopicPartition, tuple[int, int]]:
        """Commits the job."""
        return publish(self.job, self.fragments, self.counts, new_partitions=self.partitions,
                       segment_bytes=self.segment_bytes, index_interval_bytes=4096, stream=stream)


def contents(data_dir: Path) -> Truth:
    """Every record of every log, without offset and timestamp type."""
    if not any(data_dir.glob("*-[0-9]")):
        return {}
    found: Truth = {}
    with seglog.open_data_dir(data_dir) as opened:
        for key, log in opened.logs.items():
            rows = reading.read_rows(log)
            assert [row["offset"] for row in rows] == list(range(len(rows))), key
            found[key] = [{name: row[name] for name in ("key", "value", "timestamp", "headers")}
                          for row in rows]
    return found


def add(truth: Truth, rows: Truth, partitions: int = 3) -> Truth:
    """Adds rows to the expected contents of the logs; a new topic gets all of its partitions."""
    result = {key: list(found) for key, found in truth.items()}
    for key, more in rows.items():
        for number in range(partitions):
            result.setdefault(TopicPartition(key.topic, number), [])
        result[key] += more
    return result


def left_over(data_dir: Path) -> list[str]:
    """The names at the top that a clean data directory does not have."""
    return sorted(path.name for path in data_dir.iterdir()
                  if path.name.startswith((".seglog-job", ".seglog-fragment", ".seglog-prepared",
                                           ".seglog-journal", "seglog_"))
                  or path.name.endswith("-delete") or path.name == ".lock")


def members(path: Path) -> dict[str, object]:
    """The members of a job file, as an earlier release wrote them: without a checksum."""
    found: dict[str, object] = json.loads(path.read_bytes())
    found.pop("crc32c", None)
    return found
