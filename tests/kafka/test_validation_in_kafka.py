"""Appends before Kafka's own checks and before seglog's: the same verdict, the same bytes."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from seglog.config import LogConfig
from seglog.errors import RecordValidationError, SeglogError
from seglog.log.append_info import AppendOrigin
from seglog.log.validator import (
    analyze_and_validate_records, validate_messages_and_assign_offsets,
)
from seglog.model import TopicPartition
from tests.kafka import harness, validation_cases
from tests.oracle import batch as v2

SEEDS, COUNT = range(2), 1500
#: Java's own words for these are those of its buffers.
WITHOUT_TEXT = {"IndexOutOfBoundsException", "IllegalArgumentException", "KafkaException"}


def kafka(cases: list[dict[str, Any]], directory: Path) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run(harness.command("Validate", str(directory)), input=lines, text=True,
                          capture_output=True, check=True, timeout=1800)
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(case: dict[str, Any]) -> dict[str, Any]:
    """The same case, and what Validate.java would print."""
    config = LogConfig.from_properties(case["config"])
    origin, where = AppendOrigin[case["origin"]], TopicPartition("t", 0)
    data = base64.b64decode(case["records"])
    before = bytes(data)
    try:
        info, batches = analyze_and_validate_records(
            data, topic_partition=where, origin=origin, leader_epoch=case["epoch"],
            max_message_bytes=config.max_message_bytes,
            ignore_record_size=origin is AppendOrigin.REPLICATION,
            requires_offset_assignment=case["assign"])
        found: dict[str, Any] = {"info": [
            info.first_offset, info.last_offset, info.last_leader_epoch, info.max_timestamp,
            info.source_compression, info.valid_bytes, info.first_or_last_offset_of_first_batch]}
        if not case["assign"] or info.valid_bytes <= 0:
            return found
        made = validate_messages_and_assign_offsets(
            memoryview(data)[:info.valid_bytes], batches, topic_partition=where, origin=origin,
            next_offset=case["offset"], now_ms=case["now"], leader_epoch=case["epoch"],
            config=config, source_compression=info.source_compression)
    except SeglogError as error:
        return _failed(error)
    assert data == before
    _check_rows(bytes(made.records), made.batches)
    return {**found, "made": base64.b64encode(made.records).decode(), "next": made.next_offset,
            "max_timestamp": made.max_timestamp, "changed": made.message_size_maybe_changed}


def _check_rows(data: bytes, batches: Any) -> None:
    end = 0
    for row in batches:
        assert row["position"] == end
        fields = v2.HEADER.unpack_from(data, end)
        assert (row["base_offset"], row["size"], row["crc"], row["attributes"],
                row["max_timestamp"], row["partition_leader_epoch"]) == (
            fields[0], fields[1] + 12, fields[4], fields[5], fields[8], fields[2])
        end += row["size"]
    assert end == len(data)


def _failed(error: SeglogError) -> dict[str, Any]:
    found: dict[str, Any] = {"error": error.kafka_name, "message": str(error)}
    if isinstance(error, RecordValidationError):
        found["cause"] = error.invalid_exception.kafka_name
        found["errors"] = [[one.batch_index, one.message] for one in error.record_errors]
    return found


def _comparable(verdict: dict[str, Any]) -> dict[str, Any]:
    found = dict(verdict)
    if found.get("error") in WITHOUT_TEXT:
        del found["message"]
    return found


@pytest.mark.usefixtures("kafka_lib")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_verdicts_and_bytes(tmp_path: Path, seed: int) -> None:
    given = validation_cases.cases(seed, COUNT)
    wrong, accepted = [], 0
    for number, (case, theirs) in enumerate(zip(given, kafka(given, tmp_path), strict=True)):
        mine = ours(case)
        accepted += "made" in theirs
        if theirs.get("error") == "OutOfMemoryError":
            continue  # what a JVM has, not what Kafka decides
        if _comparable(mine) != _comparable(theirs):
            wrong.append(f"{number}: {case}\n  Kafka  {theirs}\n  seglog {mine}")
    assert not wrong, f"{len(wrong)} differ\n" + "\n".join(wrong[:5])
    assert COUNT * .1 < accepted < COUNT * .9
