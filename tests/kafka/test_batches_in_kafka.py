"""Compares the builder and the column encoder with Kafka's MemoryRecordsBuilder, call by call.

Without compression the bytes are the same. With it Kafka's reader returns the same records, and
only the length and the CRC in the header differ.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from seglog.errors import SeglogError
from seglog.log.batch_builder import RecordBatchBuilder, end_transaction_marker
from seglog.log.column_batches import encode_batches
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.markers import ControlType
from tests.kafka import harness
from tests.support.effort import how_many, quick_first
from tests.support.golden import decode

Case = dict[str, Any]

CASES = how_many("SEGLOG_BUILDER_CASES", 800, 200)
HEADER_BYTES = 61
KEYS = ["", "k", "trace", "имя", "\U0001f600", "x" * 70]


class _Cases:
    """Seeded sequences of calls."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def blob(self) -> str | None:
        kind = self.random.random()
        if kind < .15:
            return None
        size = self.random.choice([0, 1, 5, 62, 63, 64, 65, 200, 8190, 8192, 9000])
        raw = self.random.randbytes(size) if kind < .3 else b"seglog " * (size // 7 + 1)
        return base64.b64encode(raw[:size]).decode()

    def headers(self) -> list[list[str | None]]:
        count = self.random.choice([0, 0, 0, 1, 2, 70])
        return [[self.random.choice(KEYS), self.blob() if count < 3 else ""] for _ in range(count)]

    def timestamp(self) -> int:
        return self.random.choice([-1, 0, 1, self.random.randrange(2**41), 2**63 - 1,
                                   1_700_000_000_000 + self.random.randrange(-99, 99)])

    def options(self) -> Case:
        draw = self.random.choice
        producer = draw([-1, -1, 7, 2**62])
        return {
            "base_offset": draw([0, 3, 2**40, 2**62]), "codec": draw(["none", *CODEC_NAMES]),
            "level": None, "log_append_time": draw([None, None, 0, 123456789]),
            "producer_id": producer, "producer_epoch": draw([-1, 0, 5, 32767])
            if producer < 0 else draw([-1, 0, 0, 5, 32767]),
            "base_sequence": draw([-1, 0, 5, 2**31 - 1]) if producer < 0 or draw([0, 0, 1])
            else draw([0, 5, 2**31 - 1]),
            "is_transactional": draw([False, False, True]),
            "is_control_batch": self.random.random() < .1,
            "partition_leader_epoch": draw([-1, 0, 9]),
            "write_limit": draw([0, 200, 1000, 20000, 2**31 - 1]),
            "delete_horizon_ms": draw([-1, -1, -1, 0, 99])}

    def append(self, last: int) -> list[Any]:
        offset = self.random.choice([None, None, None, last + 1, last + 5, last, last - 3])
        timestamp = self.timestamp() if self.random.random() < .97 else -5
        return ["append", offset, timestamp, self.blob(), self.blob(), self.headers()]

    def call(self, options: Case, last: int) -> list[Any]:
        kind = self.random.random()
        state = [self.random.choice([-1, 8]), 3, self.random.choice([-1, 4]),
                 self.random.random() < .5]
        if kind < .1 and options["is_control_batch"] or kind < .01:
            return ["control", self.timestamp(), self.random.choice(
                [kind.name for kind in ControlType]), self.blob()]
        if kind < .3 and options["is_control_batch"] or kind < .02:
            return ["marker", self.timestamp(), self.random.choice(
                ["ABORT", "COMMIT", "LEADER_CHANGE"]), self.random.choice([-1, 0, 2**31 - 1])]
        if kind < .4:
            return ["room", self.timestamp(), self.blob(), self.blob(), self.headers()]
        if kind < .45:
            return ["room_bytes", self.random.choice([0, 100, 900, 18000])]
        if kind < .5:
            return ["ratio", self.random.choice([0.1, 0.33, 1.0, 0.987])]
        if kind < .52:
            return ["state", *state]
        if kind < .53:
            return ["reopen", *state]
        if kind < .54:
            return ["close_appends"]
        if kind < .55:
            return ["abort"]
        if kind < .57:
            return ["override", max(last, options["base_offset"]) + self.random.choice([0, 1, 50])]
        if kind < .59:
            return ["build"]
        return self.append(last)

    def case(self) -> Case:
        options = self.options()
        calls, last = [], options["base_offset"] - 1
        for _ in range(self.random.randrange(12)):
            call = self.call(options, last)
            if call[0] == "append":
                last = max(last, last + 1 if call[1] is None else call[1])
            # Below the base offset Kafka writes a batch that ends before it begins; refused here.
            if not (call[0] == "append" and call[1] is not None
                    and call[1] < options["base_offset"]):
                calls.append(call)
        if self.random.random() < .1:
            # Last, for Kafka's builder is broken by them: half of the record is in its stream.
            calls.append(self.random.choice([
                ["append", options["base_offset"] + 2**31, 5, None, None, []],
                ["append", None, 5, None, None, [[None, None]]]]))
        else:
            calls.append(["build"])
        return {"options": options, "calls": calls}


def _headers(given: list[list[str | None]]) -> list[Any]:
    return [(key, decode(value)) for key, value in given]


def _call(builder: RecordBatchBuilder, call: list[Any]) -> Any:
    name, *rest = call
    if name == "append":
        offset, timestamp, key, value, headers = rest
        fields = timestamp, decode(key), decode(value), _headers(headers)
        if offset is None:
            builder.append(*fields)
        else:
            builder.append_with_offset(offset, *fields)
    elif name == "control":
        builder.append_control_record(rest[0], ControlType[rest[1]], decode(rest[2]))
    elif name == "marker":
        builder.append_end_txn_marker(rest[0], ControlType[rest[1]], rest[2])
    elif name == "room":
        return builder.has_room_for(rest[0], decode(rest[1]), decode(rest[2]), _headers(rest[3]))
    elif name == "room_bytes":
        return builder.has_room_for_bytes(rest[0])
    elif name == "ratio":
        builder.estimated_compression_ratio = rest[0]
    else:
        method = {"override": builder.override_last_offset, "state": builder.set_producer_state,
                  "reopen": builder.reopen_and_rewrite_producer_state, "abort": builder.abort,
                  "close_appends": builder.close_for_record_appends, "build": builder.build}[name]
        return method(*rest)  # type: ignore[operator]
    return None


def _answer(case: Case) -> list[Case]:
    builder, results = RecordBatchBuilder(**case["options"]), []
    for call in case["calls"]:
        said: Case = {}
        try:
            result = _call(builder, call)
            if result is not None:
                said["result"] = result
        except SeglogError as error:
            said = {"error": error.kafka_name, "message": str(error)}
        said |= {name: getattr(builder, name) for name in (
            "num_records", "is_full", "is_closed", "uncompressed_bytes_written",
            "estimated_size_in_bytes")}
        if builder.num_records:
            info = builder.info
            said |= {"max_timestamp": info.max_timestamp, "shallow_offset_of_max_timestamp":
                     info.shallow_offset_of_max_timestamp}
        results.append(said)
    return results


def _comparable(call: list[Any], said: Case, codec: str) -> Case:
    """Compressed bytes are the codec's: what is compared of them is the header."""
    said = dict(said)
    if call[0] == "build" and "result" in said:
        data = said["result"] if isinstance(said["result"], bytes) else decode(said["result"])
        assert data is not None
        said["result"] = data
        if codec != "none" and data:
            said["result"] = data[:8] + data[12:17] + data[21:HEADER_BYTES]
    if codec != "none" and said["is_closed"]:
        del said["estimated_size_in_bytes"]
    return said


def _ask(given: list[Case]) -> list[Case]:
    said = harness.run("Builder", given="".join(json.dumps(case) + "\n" for case in given))
    return [json.loads(line) for line in said.splitlines()]


def test_the_builder_call_by_call(kafka: harness.Client) -> None:
    cases = _Cases(20260801)
    given = [cases.case() for _ in range(CASES)]
    answers = _ask(given)
    built: list[tuple[bytes, bytes]] = []
    refused = 0
    for number, (case, answer) in enumerate(zip(given, answers, strict=True)):
        codec = case["options"]["codec"]
        for call, theirs, ours in zip(case["calls"], answer["results"], _answer(case),
                                      strict=True):
            refused += "error" in theirs
            assert _comparable(call, ours, codec) == _comparable(call, theirs, codec), \
                f"case {number}, call {str(call)[:200]}: {case['options']}"
            if call[0] == "build" and codec != "none" and ours.get("result"):
                built.append((ours["result"], decode(theirs["result"]) or b""))
    assert refused > CASES // 10 and len(built) > CASES // 4
    rows = kafka.records(data for pair in built for data in pair)
    for number, (ours, theirs) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
        assert ours == theirs and ours[1] is None, number


def test_markers(kafka_lib: Path) -> None:
    given = [[kind, 5, epoch, coordinator, timestamp, offset, leader]
             for kind in ("COMMIT", "ABORT") for epoch in (0, 32767)
             for coordinator in (-1, 0, 2**31 - 1) for timestamp in (-1, 0, 2**41)
             for offset, leader in ((0, -1), (2**50, 7))]
    for marker, answer in zip(given, _ask([{"marker": one} for one in given]), strict=True):
        kind, producer, epoch, coordinator, timestamp, offset, leader = marker
        assert decode(answer["result"]) == end_transaction_marker(
            producer, epoch, ControlType[kind], timestamp=timestamp,
            coordinator_epoch=coordinator, base_offset=offset, partition_leader_epoch=leader)


@pytest.mark.parametrize("codec", quick_first(CODEC_NAMES, 2))
def test_columns_become_what_the_builder_makes_of_records(kafka: harness.Client,
                                                          codec: str) -> None:
    """The same records by Kafka's builder, as many to a batch as the column encoder took."""
    pa = pytest.importorskip("pyarrow")
    cases = _Cases(7)
    records = [(cases.timestamp(), cases.blob(), cases.blob(), cases.headers())
               for _ in range(400)]
    item = pa.struct([("key", pa.string()), ("value", pa.binary())])
    table = pa.table({
        "timestamp": pa.array([record[0] for record in records], pa.timestamp("ms", "UTC")),
        "key": pa.array([decode(record[1]) for record in records], pa.binary()),
        "value": pa.array([decode(record[2]) for record in records], pa.large_binary()),
        "headers": pa.array([[{"key": key, "value": decode(value)} for key, value in record[3]]
                             for record in records], pa.list_(item))})
    ours = encode_batches(table, codec=codec, max_records=40, max_batch_bytes=2**30,
                          base_offset=99, producer_id=3, producer_epoch=1, base_sequence=2**31 - 9)
    options = {**cases.options(), "codec": codec, "log_append_time": None, "producer_id": 3,
               "producer_epoch": 1, "is_transactional": False, "is_control_batch": False,
               "partition_leader_epoch": -1, "delete_horizon_ms": -1, "write_limit": 2**31 - 1}
    given = []
    for first in range(0, 400, 40):
        calls: list[Any] = [["append", None, *record] for record in records[first:first + 40]]
        sequence = (2**31 - 9 + first) % 2**31
        given.append({"options": {**options, "base_offset": 99 + first, "base_sequence": sequence},
                      "calls": [*calls, ["build"]]})
    theirs = b"".join(decode(answer["results"][-1]["result"]) or b"" for answer in _ask(given))
    if codec == "none":
        assert ours == theirs
    (mine, one), (kafkas, two) = kafka.records([ours, theirs])
    assert mine == kafkas and len(mine) == 400 and one is two is None


@pytest.mark.parametrize("level", [("gzip", 1), ("gzip", 9), ("gzip", -1), ("lz4", 1), ("lz4", 17),
                                   ("zstd", -7), ("zstd", 19), ("zstd", 22)])
def test_levels(kafka: harness.Client, level: tuple[str, int]) -> None:
    builder = RecordBatchBuilder(codec=level[0], level=level[1])
    value = random.Random(1).randbytes(3000) * 60
    for number in range(3):
        builder.append(number, None, value)
    rows, error = kafka.records([builder.build()])[0]
    assert error is None and [row["value"] for row in rows] == [value] * 3
