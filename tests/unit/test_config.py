"""Settings: Kafka's defaults, bounds and texts (compared with Kafka 4.3.1's LogConfig)."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from seglog.config import LoadConfig, LogConfig
from seglog.errors import ConfigError


def test_defaults() -> None:
    log = LogConfig()
    assert (log.segment_bytes, log.internal_segment_bytes, log.segment_index_bytes,
            log.index_interval_bytes, log.preallocate) == (
        1073741824, None, 10485760, 4096, False)
    load = LoadConfig()
    assert (load.num_segment_loading_threads_per_data_dir, load.num_recovery_threads_per_data_dir,
            load.producer_id_expiration_ms) == (1, 2, 86400000)


def test_from_properties() -> None:
    found = LogConfig.from_properties({
        "segment.bytes": " 2000000 ", "log.segment.bytes": "3000000", "preallocate": "TRUE",
        "log.index.size.max.bytes": 4, "foo": "bar"})
    assert found == LogConfig(segment_bytes=2000000, preallocate=True, segment_index_bytes=4)
    assert found.segment_size == 2000000
    assert LogConfig.from_properties({"internal.segment.bytes": "5"}).segment_size == 5
    assert LogConfig.from_properties({"segment.bytes": "+2000000"}).segment_bytes == 2000000
    load = LoadConfig.from_properties({"num.segment.loading.threads.per.data.dir": "8"})
    assert load.num_segment_loading_threads_per_data_dir == 8
    assert pickle.loads(pickle.dumps(load)) == load


@pytest.mark.parametrize(("name", "value", "reason"), [
    ("segment.bytes", "13", "Value must be at least 1048576"),
    ("segment.bytes", "x", "Not a number of type INT"),
    ("segment.bytes", "", "Not a number of type INT"),
    ("segment.bytes", "1_000", "Not a number of type INT"),
    ("segment.bytes", "99999999999", "Not a number of type INT"),
    ("segment.bytes", "9" * 5000, "Not a number of type INT"),
    ("segment.bytes", 2e6, "Not a number of type INT"),
    ("segment.index.bytes", "3", "Value must be at least 4"),
    ("index.interval.bytes", -1, "Value must be at least 0"),
    ("preallocate", "yes", "Expected value to be either true or false"),
])
def test_refused(name: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_properties({name: value})
    assert str(caught.value) == f"Invalid value {value} for configuration {name}: {reason}"


def test_a_constructor_checks_too() -> None:
    with pytest.raises(ConfigError, match="num.recovery.threads.per.data.dir: Value must be at"):
        LoadConfig(num_recovery_threads_per_data_dir=0)
    with pytest.raises(ConfigError):
        dataclasses.replace(LogConfig(), segment_index_bytes=0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogConfig().preallocate = True  # type: ignore[misc]
