"""Settings against Apache Kafka's own definitions: names, types, defaults, what is refused."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from seglog.config import BrokerConfig, LogConfig
from seglog.config.definition import Config, Setting
from seglog.errors import ConfigError
from seglog.remote_log.metadata_config import TopicBasedRemoteLogMetadataManagerConfig
from seglog.remote_log.remote_config import RemoteLogManagerConfig
from tests.kafka import harness

pytestmark = pytest.mark.usefixtures("kafka_lib")

# What no released Kafka has: KIP-1346, KIP-263, and seglog's own.
OURS = {"num.segment.loading.threads.per.data.dir", "sanity.check.all.logs.enabled",
        "sanity.check.level"}
# Given to plug-ins, and of another default in a broker.
OURS.add("broker.id")
VALUES = [
    "", " ", "0", "-0", "+1", "-1", "-2", "-3", "1", "2", "3", "4", "9", "10", "17", "18", "22",
    "23", "-131072", "-131073", "1048575", "1048576", " 5000000\t", "5 000", "1_0", "0x10",
    "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "\u0663", "\u00a07", "0.5", "1.0", "1.5", "1e3", "-1E-3", ".5", "5.", "0x1p3", "0x.8p-1d", "1d",
    "1f", "NaN", "nan", "Infinity", "-Infinity", "inf", "1e400", "x", "true", "TRUE", " false ",
    "yes", "a", "a,b", "a , b", "a,,b", ",", "a,a", "*", "*,1:2", "1:2", "1:2,3:4", "1:x", "1:",
    "compact", "delete", "delete,compact", "compact,delete", "compact,compact", "COMPACT",
    "producer", "gzip", "none", "uncompressed", "zstd", "lz4", "snappy", "CreateTime",
    "LogAppendTime", "createtime",
]


def ask(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What Config.java answers to each."""
    given = "".join(json.dumps(request) + "\n" for request in requests)
    done = subprocess.run(harness.command("Config"), input=given, capture_output=True, text=True,
                          encoding="utf-8", check=True, timeout=1800)
    return [json.loads(line) for line in done.stdout.splitlines()]


def plain(value: Any) -> Any:
    """As JSON has it, so that NaN is equal to itself."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    return list(value) if isinstance(value, tuple) else value


def compared(cls: type[Config]) -> list[Setting]:
    return [one for one in cls.settings().values() if one.name not in OURS]


def test_names_types_and_defaults() -> None:
    topic, broker, metadata = ask({"op": "keys", "of": of}
                                  for of in ("topic", "broker", "metadata"))
    for cls, kafka in ((LogConfig, topic), (BrokerConfig, broker),
                       (RemoteLogManagerConfig, broker),
                       (TopicBasedRemoteLogMetadataManagerConfig, metadata)):
        for one in compared(cls):
            assert [one.kind.value, plain(one.default)] == kafka[one.name], one.name
    # Of a topic nothing is missing; of a broker, of the names that are about logs.
    names = {one.name for one in LogConfig.settings().values()}
    assert set(topic) == names
    about_logs = {name for name in broker if name.startswith(("log.", "compression."))}
    assert about_logs - {one.name for one in BrokerConfig.settings().values()} == set()


@pytest.mark.parametrize(("of", "cls"), [
    ("topic", LogConfig), ("broker", BrokerConfig), ("broker", RemoteLogManagerConfig),
    ("metadata", TopicBasedRemoteLogMetadataManagerConfig)])
def test_every_value_is_read_or_refused_as_kafka_does(of: str, cls: type[Config]) -> None:
    cases = [(one, value) for one in compared(cls) for value in VALUES]
    answers = ask({"op": "value", "of": of, "name": one.name, "value": value}
                  for one, value in cases)
    wrong = []
    for (one, value), kafka in zip(cases, answers, strict=True):
        try:
            ours = {"value": plain(one.read(value))}
        except ConfigError as error:
            ours = {"error": str(error)}
        if ours != kafka:
            wrong.append(f"{one.name}={value!r}: {ours}; Kafka {kafka}")
    assert not wrong, f"{len(wrong)} of {len(cases)} differ\n" + "\n".join(wrong[:200])


TOGETHER: list[tuple[dict[str, str], dict[str, str]]] = [
    ({}, {}),
    ({"log.retention.hours": "1"}, {}),
    ({"log.retention.hours": "1", "log.retention.minutes": "2"}, {}),
    ({"log.retention.minutes": "2", "log.retention.ms": "3"}, {}),
    ({"log.retention.ms": "-5"}, {}), ({"log.retention.hours": "-1"}, {}),
    ({"log.retention.ms": "0"}, {}), ({"log.retention.minutes": "0"}, {}),
    ({"log.retention.hours": "2147483647"}, {}),
    ({"log.roll.hours": "2"}, {}), ({"log.roll.hours": "2", "log.roll.ms": "7"}, {}),
    ({"log.roll.ms": "0"}, {}), ({"log.roll.jitter.ms": "-1"}, {}),
    ({"log.roll.jitter.hours": "3"}, {}),
    ({"log.roll.jitter.hours": "3", "log.roll.jitter.ms": "4"}, {}),
    ({"log.flush.scheduler.interval.ms": "9"}, {}),
    ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, {}),
    ({"log.flush.interval.ms": "-1"}, {}), ({"log.flush.interval.messages": "5"}, {}),
    ({"log.cleanup.policy": "compact,delete"}, {}), ({"log.cleanup.policy": ""}, {}),
    ({"log.segment.bytes": "2000000"}, {"segment.bytes": "3000000"}),
    ({"log.segment.bytes": "2000000"}, {"retention.ms": "3"}),
    ({"log.segment.bytes": "2000000"}, {"internal.segment.bytes": "5"}),
    ({"log.index.size.max.bytes": "8", "log.index.interval.bytes": "0",
      "log.preallocate": "true"}, {}),
    ({"log.segment.delete.delay.ms": "1", "message.max.bytes": "77",
      "min.insync.replicas": "2", "unclean.leader.election.enable": "true"}, {}),
    ({"compression.type": "gzip", "compression.gzip.level": "5", "compression.lz4.level": "4",
      "compression.zstd.level": "-9"}, {}),
    ({"log.message.timestamp.type": "LogAppendTime", "log.message.timestamp.before.max.ms": "5",
      "log.message.timestamp.after.max.ms": "6"}, {}),
    ({"log.cleaner.min.cleanable.ratio": "0.25", "log.cleaner.delete.retention.ms": "11",
      "log.cleaner.min.compaction.lag.ms": "12", "log.cleaner.max.compaction.lag.ms": "13"}, {}),
    ({"log.local.retention.ms": "5", "log.local.retention.bytes": "6"}, {}),
    ({"log.dirs": ""}, {}), ({"log.dirs": "/a,/a"}, {}), ({"log.dir": ""}, {}),
    ({"cordoned.log.dirs": "/b", "log.dirs": "/a"}, {}),
    ({"cordoned.log.dirs": "/a", "log.dirs": "/a,/b"}, {}),
    ({"cordoned.log.dirs": "*", "log.dirs": "/a,/b"}, {}),
    ({"cordoned.log.dirs": "*,/a", "log.dirs": "/a,/b"}, {}),
    ({}, {"segment.bytes": "1"}), ({}, {"no.such": "1"}),
]


def test_what_a_topic_gets() -> None:
    answers = ask({"op": "log", "broker": broker, "topic": topic} for broker, topic in TOGETHER)
    for (broker, topic), kafka in zip(TOGETHER, answers, strict=True):
        try:
            found = BrokerConfig.from_properties(broker).log_config(topic)
        except ConfigError as error:
            assert kafka.get("error", "").removeprefix("requirement failed: ") == str(error), broker
            continue
        ours = {one.name: plain(getattr(found, name)) for name, one in found.settings().items()}
        assert {name: value for name, value in kafka.items() if name in ours} == ours, broker


def test_what_a_topic_may_have(tmp_path: Path) -> None:
    topics = [
        {"no.such": "1"}, {"segment.bytes": "1"}, {"segment.bytes": "2000000"},
        {"min.compaction.lag.ms": "3", "max.compaction.lag.ms": "2"},
        {"min.compaction.lag.ms": "3", "max.compaction.lag.ms": "3"},
        {"cleanup.policy": ""}, {"cleanup.policy": "compact,compact"},
    ]
    for topic, kafka in zip(topics, ask({"op": "validate", "topic": topic} for topic in topics),
                            strict=True):
        try:
            LogConfig.validate(topic)
            error = None
        except ConfigError as caught:
            error = str(caught)
        assert error == kafka.get("error"), topic
