"""Options of batch queries for both sources: a table of single options, and random combinations."""

from __future__ import annotations

import json
import random
from typing import Any

Options = dict[str, Any]

#: The topics of `write_topics`: number of records by partition, one second apart.
WIDE = {0: 200, 1: 40, 2: 0}
FIRST_MS = 1_700_000_000_000
TRIMMED, TRIMMED_END = 30, 100

_EACH = '{"wide":{"0":%s,"1":%s,"2":%s}}'
_ONE = {"assign": '{"wide":[0]}'}


def _at(second: int) -> int:
    return FIRST_MS + 1000 * second


TABLE: list[Options] = [
    # which partitions
    {"assign": "{}"}, {"assign": '{"wide":[0,1],"txn":[0]}'}, {"assign": '{"nope":[0]}'},
    {"subscribe": "wide,wide, trimmed"}, {"subscribe": "wide,nope"}, {"subscribe": " , "},
    {"subscribePattern": ".*"}, {"subscribePattern": " id "}, {"subscribePattern": "^zzz"},
    {"subscribePattern": ""}, {"subscribe": "wide", "assign": '{"wide":[0]}'},
    {"assign": "wide:0"}, {"assign": '{"wide":0}'}, {"assign": '{"wide":[0'},
    # offsets
    {**_ONE, "startingOffsets": "latest"}, {**_ONE, "endingOffsets": "earliest"},
    {"subscribe": "wide", "startingOffsets": "Earliest ", "endingOffsets": " LATEST"},
    {"subscribe": "wide", "startingOffsets": _EACH % (1, -2, 0), "endingOffsets": _EACH % (
        90, -1, 0)},
    {"subscribe": "wide", "startingOffsets": '{"wide":{"0":1,"1":1}}'},
    {"subscribe": "wide", "endingOffsets": '{"wide":{"0":1,"1":1}}'},
    {"subscribe": "wide", "startingOffsets": _EACH % (1, -1, 0)},
    {"subscribe": "wide", "endingOffsets": _EACH % (1, -2, 0)},
    {"subscribe": "wide", "startingOffsets": _EACH % (1, '"1"', 0)},
    {**_ONE, "startingOffsets": '{"wide":{"0":150}}', "endingOffsets": '{"wide":{"0":100}}'},
    {**_ONE, "startingOffsets": '{"wide":{"0":150}}', "endingOffsets": '{"wide":{"1":200}}'},
    {**_ONE, "startingOffsets": '{"wide":{"0":500}}'},
    {**_ONE, "startingOffsets": '{"wide":{"0":500}}', "failOnDataLoss": "false"},
    {**_ONE, "startingOffsets": '{"wide":{"0":200}}'},
    {**_ONE, "startingOffsets": '{"wide":{"0":300}}', "endingOffsets": '{"wide":{"0":400}}'},
    {**_ONE, "endingOffsets": '{"wide":{"0":400}}'},
    {**_ONE, "endingOffsets": '{"wide":{"0":400}}', "failOnDataLoss": "false"},
    {"subscribe": "trimmed", "endingOffsets": '{"trimmed":{"0":10}}'},
    {"subscribe": "trimmed", "startingOffsets": '{"trimmed":{"0":10}}'},
    {"subscribe": "trimmed", "startingOffsets": '{"trimmed":{"0":10}}', "failOnDataLoss": "False"},
    # times, and what comes first
    {"subscribe": "wide", "startingTimestamp": _at(0)},
    {"subscribe": "wide", "startingTimestamp": _at(20), "startingOffsets": "latest",
     "startingOffsetsByTimestampStrategy": "Latest"},
    {**_ONE, "startingTimestamp": f" +{_at(20)} ", "endingTimestamp": _at(30)},
    {**_ONE, "startingTimestamp": _at(30), "endingTimestamp": _at(20)},
    {**_ONE, "startingTimestamp": _at(30), "endingOffsets": '{"wide":{"0":5}}'},
    {**_ONE, "startingTimestamp": "noon"}, {**_ONE, "startingOffsetsByTimestampStrategy": "guess"},
    *({**_ONE, "startingTimestamp": special} for special in (-1, -2, -3, -4, -5)),
    *({**_ONE, "endingTimestamp": special} for special in (-1, -2, -3)),
    {"subscribe": "wide", "startingOffsetsByTimestamp": _EACH % (_at(5), _at(6), 0),
     "startingOffsetsByTimestampStrategy": "latest",
     "endingOffsetsByTimestamp": _EACH % (_at(150), _at(1000), 0)},
    {"subscribe": "wide", "startingOffsetsByTimestamp": '{"wide":{"0":5}}'},
    {**_ONE, "startingOffsetsByTimestamp": json.dumps({"wide": {"0": _at(9)}}),
     "endingOffsetsByTimestamp": json.dumps({"wide": {"0": _at(8)}})},
    {**_ONE, "startingTimestamp": _at(190), "startingOffsetsByTimestamp": '{"x":{"0":1}}'},
    # the rest
    {"subscribe": "wide,txn", "minPartitions": 11}, {"subscribe": "wide", "minPartitions": "+5"},
    {"subscribe": "wide", "minPartitions": "0"}, {"subscribe": "wide", "minPartitions": " 5"},
    {"subscribe": "wide,trimmed", "maxRecordsPerPartition": 50, "minPartitions": 12},
    {"subscribe": "wide", "maxRecordsPerPartition": "-1"},
    {"subscribe": "wide", "failOnDataLoss": "yes"}, {"subscribe": "wide", "includeHeaders": "no"},
    {"subscribe": "txn", "INCLUDEHEADERS": "TRUE", "Kafka.Isolation.Level": "read_committed"},
    {"subscribe": "txn", "kafka.isolation.level": "serializable"},
    {"subscribe": "wide", "kafka.auto.offset.reset": "earliest"},
    {"subscribe": "wide", "kafka.key.deserializer": "x"},
    {"subscribe": "wide", "kafka.value.deserializer": "x"},
    {"subscribe": "wide", "kafka.enable.auto.commit": "false"},
    {"subscribe": "wide", "kafka.interceptor.classes": "x"},
    {"subscribe": "wide", "kafka.group.id": "g", "groupIdPrefix": "p",
     "maxOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"},
    {"subscribe": "wide", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "9"},
]


def draw(seed: int) -> Options:
    """A meaningful combination of options, as often valid as slightly wrong."""
    rnd = random.Random(f"options-{seed}")
    partitions = sorted(rnd.sample(range(3), rnd.randint(1, 3)))
    options: Options = rnd.choice([
        {"subscribe": "wide"}, {"subscribePattern": "^w"}, {"subscribe": "txn"},
        {"assign": json.dumps({"wide": partitions})}, {"subscribe": "trimmed"}])
    if "assign" not in options:
        partitions = [0, 1, 2] if options.get("subscribe", "wide") == "wide" else [0]
    topic = options.get("subscribe", "wide")
    for side in ("starting", "ending"):
        kind = rnd.choice(["", "", "Offsets", "Offsets", "Timestamp", "OffsetsByTimestamp"])
        if kind == "Offsets":
            options[f"{side}Offsets"] = json.dumps({topic: {
                str(number): _offset(rnd, topic, number, side) for number in partitions}})
        elif kind == "Timestamp":
            options[f"{side}Timestamp"] = _time(rnd)
        elif kind:
            options[f"{side}OffsetsByTimestamp"] = json.dumps({topic: {
                str(number): _time(rnd) for number in partitions}})
    for name, values in {
            "startingOffsetsByTimestampStrategy": ["latest", "latest", "error"],
            "failOnDataLoss": ["false", "FALSE", "true"], "includeHeaders": ["true", "True"],
            "kafka.isolation.level": ["read_committed", "read_uncommitted"],
            "minPartitions": ["2", "4", "9", "17"]}.items():
        if rnd.random() < 0.4:
            options[name] = rnd.choice(values)
    if "minPartitions" in options and rnd.random() < 0.4:
        options["maxRecordsPerPartition"] = rnd.choice(["7", "40", "1000"])
    cased = [(name.upper() if rnd.random() < 0.1 else name, value)
             for name, value in options.items()]
    rnd.shuffle(cased)
    return dict(cased)


def _offset(rnd: random.Random, topic: str, partition: int, side: str) -> int:
    end = {"wide": WIDE[partition], "trimmed": TRIMMED_END, "txn": 90}[topic]
    if rnd.random() < 0.2:
        return -2 if side == "starting" else -1
    if rnd.random() < 0.1:
        return end + rnd.randint(1, 50)
    return rnd.randint(0, end // 2) if side == "starting" else rnd.randint(end // 2, end)


def _time(rnd: random.Random) -> int:
    return rnd.choice([0, -2, _at(-5), _at(rnd.randint(0, 220)), _at(rnd.randint(0, 40)) + 1])
