"""Settings: Kafka's defaults, bounds and texts (compared with Kafka's own in tests/kafka)."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest

from seglog.config import BrokerConfig, LoadConfig, LogConfig, read_properties
from seglog.errors import ConfigError, KafkaStorageError

HOUR = 3_600_000


def test_defaults() -> None:
    log = LogConfig()
    assert (log.segment_bytes, log.internal_segment_bytes, log.segment_index_bytes,
            log.index_interval_bytes, log.preallocate) == (
        1073741824, None, 10485760, 4096, False)
    load = LoadConfig()
    assert (load.num_segment_loading_threads_per_data_dir, load.num_recovery_threads_per_data_dir,
            load.producer_id_expiration_ms, load.sanity_check_all_logs_enabled,
            load.sanity_check_level) == (1, 2, 86400000, True, "kafka")
    broker = BrokerConfig()
    assert isinstance(broker, LoadConfig)
    assert broker.data_dirs == ("/tmp/kafka-logs",)
    assert broker.log_config() == LogConfig()


@pytest.mark.parametrize("cls", [LogConfig, LoadConfig, BrokerConfig])
def test_a_field_is_the_name_in_pythons_spelling(
        cls: type[LogConfig] | type[BrokerConfig]) -> None:
    assert all(one.name.replace(".", "_") == name for name, one in cls.settings().items())
    assert all(one.read(one.default) == one.default for one in cls.settings().values())


def test_from_properties() -> None:
    found = LogConfig.from_properties({
        "segment.bytes": " 2000000 ", "preallocate": "TRUE", "segment.index.bytes": 4,
        "cleanup.policy": " compact , delete"})
    assert found == LogConfig(segment_bytes=2000000, preallocate=True, segment_index_bytes=4,
                              cleanup_policy=("compact", "delete"))
    assert found.compact and found.delete
    assert found.segment_size == 2000000
    assert LogConfig.from_properties({"internal.segment.bytes": "5"}).segment_size == 5
    assert LogConfig.from_properties({"segment.bytes": "+2000000"}).segment_bytes == 2000000
    load = LoadConfig.from_properties({"num.segment.loading.threads.per.data.dir": "8"})
    assert load.num_segment_loading_threads_per_data_dir == 8
    assert pickle.loads(pickle.dumps(load)) == load
    assert LogConfig.from_properties(found.to_properties()) == found
    assert "internal.segment.bytes" not in found.to_properties()


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("segment.bytes", "13", "Value must be at least 1048576"),
    ("segment.bytes", "x", "Not a number of type INT"),
    ("segment.bytes", "", "Not a number of type INT"),
    ("segment.bytes", "1_000", "Not a number of type INT"),
    ("segment.bytes", "99999999999", "Not a number of type INT"),
    ("segment.bytes", "9" * 5000, "Not a number of type INT"),
    ("segment.bytes", 2e6, "Expected value to be a 32-bit integer, but it was a float"),
    ("segment.bytes", True, "Expected value to be a 32-bit integer, but it was a bool"),
    ("segment.ms", 1 << 63, "Not a number of type LONG"),
    ("segment.index.bytes", "3", "Value must be at least 4"),
    ("index.interval.bytes", -1, "Value must be at least 0"),
    ("preallocate", "yes", "Expected value to be either true or false"),
    ("preallocate", 1, "Expected value to be either true or false"),
    ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
    ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
    ("compression.type", "lzma", "String must be one of: uncompressed, zstd, lz4, snappy, gzip, "
                                 "producer"),
    ("cleanup.policy", 7, "Expected a comma separated list."),
])
def test_refused(name: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_properties({name: value})
    shown = "true" if value is True else value
    assert str(caught.value) == f"Invalid value {shown} for configuration {name}: {reason}"


def test_a_constructor_checks_too() -> None:
    with pytest.raises(ConfigError, match="num.recovery.threads.per.data.dir: Value must be at"):
        LoadConfig(num_recovery_threads_per_data_dir=0)
    with pytest.raises(ConfigError):
        dataclasses.replace(LogConfig(), segment_index_bytes=0)
    with pytest.raises(ConfigError, match="Invalid value null for .*: Value must be non-null"):
        LogConfig(segment_bytes=None)  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogConfig().preallocate = True  # type: ignore[misc]


def test_a_topics_own_settings() -> None:
    defaults = LogConfig(segment_ms=5, retention_ms=7)
    found = defaults.override({"segment.ms": "6"})
    assert (found.segment_ms, found.retention_ms) == (6, 7)
    assert found.overridden_configs == {"segment.ms"}
    assert defaults.override({}) is defaults
    with pytest.raises(ConfigError, match="Unknown topic config name: no.such"):
        LogConfig.validate({"no.such": "1"})
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms \(3\) > max.compaction.lag.ms"):
        LogConfig.validate({"min.compaction.lag.ms": "3", "max.compaction.lag.ms": "2"})


@pytest.mark.parametrize(("properties", "message"), [
    ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
    ({"retention.bytes": "9", "local.retention.bytes": "-1"},
     "local.retention.bytes: Value must not be -1 as retention.bytes value is set as 9."),
    ({"retention.ms": "9", "local.retention.ms": "10"},
     "local.retention.ms: Value must not be more than retention.ms property value: 9"),
    ({"remote.log.copy.disable": "true", "retention.ms": "9", "local.retention.ms": "8"},
     "`local.retention.ms` and `retention.ms` must be set to the identical value"),
    ({"remote.storage.enable": "false"}, "without deleting remote data"),
])
def test_settings_of_a_tiered_topic(properties: dict[str, str], message: str) -> None:
    before = LogConfig.from_properties({"remote.storage.enable": "true"})
    before.check_tiering(None)
    with pytest.raises(ConfigError, match=message):
        LogConfig.from_properties({"remote.storage.enable": "true", **properties}).check_tiering(
            before)
    for good in ({"cleanup.policy": ""}, {"retention.bytes": "-1", "local.retention.bytes": "-1"},
                 {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}):
        LogConfig.from_properties({"remote.storage.enable": "true", **good}).check_tiering(before)


@pytest.mark.parametrize(("properties", "retention"), [
    ({}, 168 * HOUR), ({"log.retention.hours": "1"}, HOUR),
    ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
    ({"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
    ({"log.retention.hours": "-7"}, -1), ({"log.retention.ms": "-1"}, -1),
])
def test_synonyms(properties: dict[str, str], retention: int) -> None:
    assert BrokerConfig.from_properties(properties).log_config().retention_ms == retention


def test_a_brokers_own_rules() -> None:
    for name, value in [("log.roll.ms", "0"), ("log.roll.jitter.ms", "-1"),
                        ("log.retention.minutes", "0")]:
        with pytest.raises(ConfigError):
            BrokerConfig.from_properties({name: value})
    assert BrokerConfig.from_properties({"log.dirs": "/a, /b"}).data_dirs == ("/a", "/b")
    assert BrokerConfig.from_properties({"log.dirs": "/a,/b,/a"}).data_dirs == ("/a", "/b")
    with pytest.raises(ConfigError, match="'log.dirs' must not be empty"):
        BrokerConfig.from_properties({"log.dirs": ""})
    # What a broker may have and a topic may not.
    broker = BrokerConfig.from_properties({"log.flush.interval.ms": "-1"})
    with pytest.raises(ConfigError, match="flush.ms: Value must be at least 0"):
        broker.log_config()


def test_server_properties(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# a broker\nlog.dirs=/data/k1,\\\n    /data/k2\nlog.segment.bytes : 2000000\n"
                    "num.recovery.threads.per.data.dir 4\nprocess.roles=broker\n"
                    "log.message.timestamp.type=Log\\u0041ppendTime\n")
    broker = BrokerConfig.from_file(path)
    assert broker.data_dirs == ("/data/k1", "/data/k2")
    assert broker.num_recovery_threads_per_data_dir == 4
    log = broker.log_config({"segment.bytes": "3000000"})
    assert log.segment_bytes == 3000000 and log.message_timestamp_type == "LogAppendTime"
    assert broker.log_config().segment_bytes == 2000000
    with pytest.raises(KafkaStorageError) as missing:
        BrokerConfig.from_file(tmp_path / "missing.properties")
    assert missing.value.filename == str(tmp_path / "missing.properties")
    path.write_text("a=\\u00")
    with pytest.raises(ConfigError, match="server.properties: Malformed"):
        read_properties(path)
