"""seglog's verdicts on seeded appends, and their recording for tests without Java.

    python -m tests.kafka.verdicts       records again; then tests/kafka/test_validation_in_kafka.py

The recording has a line for each case of its seed: a digest of what Kafka said too, and one of what
only we have: numbers and codes of the exceptions, and what the meters counted.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from seglog.config import LogConfig
from seglog.errors import RecordValidationError, SeglogError
from seglog.log.append_info import AppendOrigin
from seglog.log.stats import BrokerTopicStats
from seglog.log.validator import (
    analyze_and_validate_records, validate_messages_and_assign_offsets,
)
from seglog.metrics import Meter, MetricsRegistry
from seglog.model import TopicPartition
from tests.kafka import validation_cases
from tests.oracle import batch as v2
from tests.support.recorded import digest, libraries

RECORDING = Path(__file__).parent / "verdicts.txt"
SEED, COUNT = 0, 600
#: Java's own words for these are those of its buffers.
_WITHOUT_TEXT = {"IndexOutOfBoundsException", "IllegalArgumentException", "KafkaException"}

Case = dict[str, Any]
Verdict = dict[str, Any]


def ours(case: Case) -> tuple[Verdict, Verdict]:
    """What Validate.java would print for a case, and what only we have."""
    config = LogConfig.from_properties(case["config"])
    origin, where = AppendOrigin[case["origin"]], TopicPartition("t", 0)
    data = base64.b64decode(case["records"])
    before, stats = bytes(data), BrokerTopicStats(MetricsRegistry())
    try:
        info, batches = analyze_and_validate_records(
            data, topic_partition=where, origin=origin, leader_epoch=case["epoch"],
            max_message_bytes=config.max_message_bytes,
            ignore_record_size=origin is AppendOrigin.REPLICATION,
            requires_offset_assignment=case["assign"], stats=stats)
        found: Verdict = {"info": [
            info.first_offset, info.last_offset, info.last_leader_epoch, info.max_timestamp,
            info.source_compression, info.valid_bytes, info.first_or_last_offset_of_first_batch]}
        if not case["assign"] or info.valid_bytes <= 0:
            return found, {"counted": _counted(stats)}
        made = validate_messages_and_assign_offsets(
            memoryview(data)[:info.valid_bytes], batches, topic_partition=where, origin=origin,
            next_offset=case["offset"], now_ms=case["now"], leader_epoch=case["epoch"],
            config=config, source_compression=info.source_compression, stats=stats)
    except SeglogError as error:
        return _failed(error), {"counted": _counted(stats), "text": str(error), **{
            name: repr(getattr(error, name, None))
            for name in ("code", "file", "position", "expected", "found")}}
    assert data == before
    _check_rows(bytes(made.records), made.batches)
    return {**found, "made": base64.b64encode(made.records).decode(), "next": made.next_offset,
            "max_timestamp": made.max_timestamp, "changed": made.message_size_maybe_changed}, {
        "counted": _counted(stats), "time": made.log_append_time_ms}


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


def _failed(error: SeglogError) -> Verdict:
    found: Verdict = {"error": error.kafka_name, "message": str(error)}
    if isinstance(error, RecordValidationError):
        found["cause"] = error.invalid_exception.kafka_name
        found["errors"] = [[one.batch_index, one.message] for one in error.record_errors]
    return found


def _counted(stats: BrokerTopicStats) -> dict[str, int]:
    return {str(name): meter.count for name, meter in stats.registry
            if isinstance(meter, Meter) and meter.count}


def comparable(verdict: Verdict) -> Verdict:
    """A verdict without what need not be Kafka's."""
    found = dict(verdict)
    if found.get("error") in _WITHOUT_TEXT:
        del found["message"]
    return found


def lines_of(cases: list[Case]) -> list[str]:
    """The recording's line for each case."""
    return [" ".join(map(digest, (comparable(verdict), own))) for verdict, own in map(ours, cases)]


def recorded() -> tuple[dict[str, str], list[str]]:
    """What the recording depends on, and its lines."""
    first, *lines = RECORDING.read_text().splitlines()
    head: dict[str, str] = json.loads(first)
    return head, lines


def head_of(cases: list[Case]) -> dict[str, str]:
    """What a recording of these cases depends on."""
    return {"libraries": libraries(), "questions": digest(cases)}


def main() -> None:
    """Records."""
    cases = validation_cases.cases(SEED, COUNT)
    RECORDING.write_text("\n".join([json.dumps(head_of(cases)), *lines_of(cases), ""]))


if __name__ == "__main__":
    main()
