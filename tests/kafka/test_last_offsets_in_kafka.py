"""Appends at the end of all offsets, by Kafka's UnifiedLog and by ours: both throw
IllegalArgumentException at the same ones. Kafka has written the batch by then, and its log's end
wraps below 0; ours is as it was (docs/differences.md, tests/log/test_last_offsets.py)."""

from __future__ import annotations

import base64
from itertools import product
from typing import Any

import pytest

from tests.log.test_last_offsets import TOP, batch, shifted
from tests.sequences.judge import Judge

pytestmark = pytest.mark.usefixtures("kafka_lib")


def sequences() -> list[dict[str, Any]]:
    found = []
    for room, count, codec, follows in product((0, 1, 2), (1, 2, 3), ("none", "gzip"),
                                               (False, True)):
        start = TOP - room
        data = batch(count, codec=codec)
        append: dict[str, Any] = {"op": "append", "epoch": 0, "origin": "CLIENT"}
        if follows:
            if count > room + 1:
                continue  # its own offsets wrap
            data, append = shifted(data, start), {"op": "append_follower", "epoch": 0}
        append["records"] = base64.b64encode(data).decode()
        found.append({"name": f"top{len(found)}", "config": {}, "fits": count <= room, "ops": [
            {"op": "truncate_fully", "offset": start}, append]})
    return found


@pytest.mark.judge
def test_the_same_appends_are_refused() -> None:
    with Judge() as judge:
        for sequence in sequences():
            verdict = judge.judge_one(sequence)
            assert isinstance(verdict.kafka, dict) and isinstance(verdict.ours, dict)
            ours, kafka = verdict.ours["results"][1], verdict.kafka["results"][1]
            if sequence["fits"]:
                assert not verdict.wrong and "error" not in ours
            else:
                assert ours == kafka == {"error": "IllegalArgumentException"}
                start = sequence["ops"][0]["offset"]
                assert verdict.ours["state"]["log_end_offset"] == start
                assert verdict.kafka["state"]["log_end_offset"] < 0
