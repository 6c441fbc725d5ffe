"""Executors that do not have the driver's directory: an error that says so, never lost data."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructType

import seglog
from seglog.errors import KafkaStorageError
from seglog.scrub import DirectoryScrub, LoadLevel, LoadOptions
from seglog.spark import counts, verification
from seglog.spark.directory_tables import TableReader, table_schema
from seglog.spark.plan import plan_partitions
from seglog.spark.read_options import parse_options
from seglog.spark.sink import SeglogWriter
from seglog.spark.source_reader import SeglogReader
from seglog.storage.stream import DecodeOptions

NOT_HERE = "the driver and every executor must see the data under the same path"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with seglog.open(tmp_path / "data" / "t-0") as log:
        log.append(b"value")
    return tmp_path / "data"


def reading(data: Path, **options: str) -> Callable[[], object]:
    given = parse_options({"path": str(data), **options})
    tasks = plan_partitions(given)
    return lambda: [batch for task in tasks
                    for batch in SeglogReader(given, ("offset",)).read(task)]


def counting(data: Path, **options: str) -> Callable[[], object]:
    given = parse_options({"path": str(data), **options})
    tasks = plan_partitions(given)
    decoding = DecodeOptions(on_damage=given.on_damage)
    return lambda: [counts._count(task, decoding, given.storage, False) for task in tasks]


def scanning(data: Path, **options: str) -> Callable[[], object]:
    given = {"path": str(data), **options}
    reader = TableReader(given, table_schema(given))
    tasks = reader.partitions()
    return lambda: [batch for task in tasks for batch in reader.read(task)]


def scrubbing(data: Path, step: str) -> Callable[[], object]:
    scrub = DirectoryScrub(str(data), LoadOptions(LoadLevel.VERIFY))
    pieces: list[Any] = list(scrub.segment_pieces(1) if step == "_check_all"
                             else scrub.partition_pieces({}))
    return lambda: getattr(verification, step)(pieces)


@pytest.mark.parametrize(("begin", "options"), [
    *((begin, {"failOnDataLoss": fails}) for begin in (reading, counting)
      for fails in ("true", "false")),
    *((scanning, {"table": table, "failOnDataLoss": "false"})
      for table in ("segments", "batches", "findings")),
    *((scrubbing, {"step": step}) for step in ("_check_all", "_judge_all"))])
def test_a_task_without_the_data_directory(
        data: Path, begin: Callable[..., Callable[[], object]], options: dict[str, str]) -> None:
    """Also failOnDataLoss=false reads nothing there: nothing is lost."""
    task = begin(data, **options)
    assert task()
    data.rename(data.with_name("elsewhere"))
    with pytest.raises(KafkaStorageError, match=NOT_HERE) as missing:
        task()
    assert missing.value.filename == str(data)


@pytest.mark.parametrize("is_another", [False, True])
def test_a_write_into_another_directory(data: Path, is_another: bool) -> None:
    writer = SeglogWriter({"path": str(data), "topic": "t"},
                          StructType().add("value", BinaryType()), False)
    data.rename(data.with_name("elsewhere"))
    if is_another:
        data.mkdir()
    with pytest.raises(KafkaStorageError, match=f"or this job has ended: {re.escape(NOT_HERE)}"):
        writer.write(iter(()))
    assert not is_another or list(data.iterdir()) == []
