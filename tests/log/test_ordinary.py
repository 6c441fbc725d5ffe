"""Appends with the native path and without: the same answers, errors, states and files."""

from __future__ import annotations

import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seglog.config import LogConfig
from seglog.errors import InvalidRecordError, KafkaStorageError, SeglogError
from seglog.log import ordinary, unified_log
from seglog.log.append_info import AppendOrigin, LogAppendInfo
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from tests.kafka.drive import run_sequence
from tests.oracle import batch as v2
from tests.sequences.generator import generate

NOW = 1_700_000_000_000
SEED, COUNT = 20, 40


def open_log(path: Path, **config: str) -> UnifiedLog:
    time = MockTime(current_time_ms=NOW)
    settings = LogConfig.from_properties({
        "internal.segment.bytes": "8192", "index.interval.bytes": "300",
        **{key.replace("_", "."): value for key, value in config.items()}})
    return UnifiedLog.create(path, settings, scheduler=time.scheduler, time=time)


def batch(count: int = 1, *, size: int = 10, timestamp: int = NOW, producer: int = -1,
          sequence: int = -1, **fields: Any) -> bytes:
    records = [v2.Record(n, timestamp + n, b"k%d" % n, b"v" * size) for n in range(count)]
    return v2.encode(v2.Batch(
        0, count - 1, records, base_timestamp=timestamp, max_timestamp=timestamp + count - 1,
        producer_id=producer, producer_epoch=0 if producer >= 0 else -1, base_sequence=sequence,
        **fields))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each append was ordinary; `taken.append` nothing turns the native path off."""
    found: list[bool] = []

    def spy(*args: Any, **how: Any) -> LogAppendInfo | None:
        info = ordinary.append_ordinary(*args, **how)
        found.append(info is not None)
        return info

    monkeypatch.setattr(unified_log, "append_ordinary", spy)
    yield found


def without_native_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(unified_log, "append_ordinary", lambda *args, **how: None)


def test_sequences_with_and_without(tmp_path: Path, taken: list[bool]) -> None:
    """The judge's sequences: every operation there is between the appends."""
    for sequence in generate(SEED, range(COUNT)):
        fast = run_sequence(tmp_path / "fast", sequence)
        with pytest.MonkeyPatch.context() as patch:
            without_native_path(patch)
            slow = run_sequence(tmp_path / "slow", sequence)
        assert fast == slow
    assert any(taken) and not all(taken)


def outcome(log: UnifiedLog, data: bytes, epoch: int, **how: Any) -> Any:
    try:
        return log.append_as_leader(data, epoch, **how)
    except SeglogError as error:
        return error.kafka_name, str(error)


def producing(rng: random.Random) -> bytes:
    """A batch that is mostly ordinary, of one of three producers that go wrong now and then."""
    kind = rng.random()
    if kind < .5:
        return batch(rng.choice([1, 3, 20]), size=rng.choice([0, 10, 70, 300]),
                     timestamp=NOW + rng.randint(-5000, 5000))
    producer = rng.randrange(3)
    state = PRODUCERS.setdefault(producer, [0])
    count = rng.choice([1, 4])
    sequence = state[0]
    if kind < .9:
        state[0] += count
    elif kind < .95:
        sequence = max(0, sequence - count)
    else:
        sequence += 7
    return batch(count, producer=producer, sequence=sequence)


PRODUCERS: dict[int, list[int]] = {}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("config", [
    {}, {"message_timestamp_type": "LogAppendTime"}, {"cleanup_policy": "compact"},
    {"message_timestamp_before_max_ms": "3000"}, {"segment_ms": "4000"},
    {"segment_index_bytes": "100"}, {"preallocate": "true"}, {"flush_messages": "7"},
    {"index_interval_bytes": "0"}, {"max_message_bytes": "500"}], ids=str)
def test_appends_with_and_without(tmp_path: Path, taken: list[bool], seed: int,
                                  config: dict[str, str]) -> None:
    rng = random.Random(seed)
    PRODUCERS.clear()
    given = [producing(rng) for _ in range(150)]
    fast, slow = open_log(tmp_path / "fast" / "t-0", **config), \
        open_log(tmp_path / "slow" / "t-0", **config)
    for number, data in enumerate(given):
        mine = outcome(fast, data, number // 60)
        with pytest.MonkeyPatch.context() as patch:
            without_native_path(patch)
            assert mine == outcome(slow, data, number // 60)
        assert fast.log_end_offset_metadata == slow.log_end_offset_metadata
        assert fast.recovery_point == slow.recovery_point
    assert sum(taken) > 20
    assert (fast.messages_in, fast.bytes_in) == (slow.messages_in, slow.bytes_in)
    assert {**fast.state(), "path": 0} == {**slow.state(), "path": 0}
    for log in (fast, slow):
        log.close()
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "slow" / "t-0").iterdir()}
    assert {path.name: path.read_bytes()
            for path in (tmp_path / "fast" / "t-0").iterdir()} == theirs


def test_each_of_a_span(tmp_path: Path) -> None:
    """A span is its batches one by one, rolls and all."""
    rng = random.Random(5)
    PRODUCERS.clear()
    given = [producing(rng) for _ in range(200)]
    log, other = open_log(tmp_path / "a" / "t-0"), open_log(tmp_path / "b" / "t-0")
    good = []
    for data in given:
        before = other.log_end_offset
        if not isinstance(outcome(other, data, 0), tuple) and other.log_end_offset > before:
            good.append(data)
    one_by_one = open_log(tmp_path / "c" / "t-0")
    for data in good:
        one_by_one.append_as_leader(data, 0)
    info = log.append_each_as_leader(b"".join(good), 0)
    assert (info.first_offset, info.last_offset) == (0, one_by_one.log_end_offset - 1)
    assert info.valid_bytes == sum(map(len, good))
    for one in (log, one_by_one):
        one.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "a" / "t-0").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "c" / "t-0").iterdir()}


def test_a_span_ends_at_a_batch_that_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    bad = batch(2, is_control=True)
    with pytest.raises(InvalidRecordError, match="control records") as caught:
        log.append_each_as_leader(batch(3) + batch(4) + bad + batch(5), 0)
    assert caught.value.appended.last_offset == 6
    assert log.log_end_offset == 7
    assert log.append_each_as_leader(batch(1)[:-3], 0).valid_bytes == 0
    assert log.log_end_offset == 7


def test_a_duplicate_in_a_span(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    first, second = (batch(2, producer=1, sequence=n) for n in (0, 2))
    info = log.append_each_as_leader(first + second + first + batch(1), 0)
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 4, 5)
    assert info.valid_bytes == 2 * len(first) + len(second) + len(batch(1))


def test_the_callers_bytes_are_not_changed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    data = bytearray(batch(3))
    before = bytes(data)
    for _ in range(5):
        log.append_as_leader(data, 4)
    assert bytes(data) == before


def test_transactions_with_and_without(tmp_path: Path, taken: list[bool]) -> None:
    """Batches of a transaction that goes on are ordinary; its first and its marker are not."""
    rng = random.Random(9)
    fast, slow = open_log(tmp_path / "fast" / "t-0"), open_log(tmp_path / "slow" / "t-0")
    sequences = [0, 0, 0]
    for _ in range(300):
        producer = rng.randrange(3)
        if rng.random() < .15:
            data = v2.encode(v2.marker(0, producer, 0, rng.randint(0, 1), NOW))
            how: dict[str, Any] = {"origin": AppendOrigin.COORDINATOR, "transaction_version": 1}
        else:
            sequence = sequences[producer] + rng.choice([0] * 20 + [1, -1])
            data = batch(2, producer=producer, sequence=max(sequence, 0),
                         timestamp=NOW + rng.randint(0, 900),
                         is_transactional=rng.random() < .95)
            how = {}
        mine = outcome(fast, data, 0, **how)
        with pytest.MonkeyPatch.context() as patch:
            without_native_path(patch)
            assert mine == outcome(slow, data, 0, **how)
        if not how and not isinstance(mine, tuple):
            sequences[producer] += 2
        end = rng.randint(0, fast.log_end_offset)
        for log in (fast, slow):
            log.update_high_watermark(end)
        assert fast.last_stable_offset == slow.last_stable_offset
        assert [log.has_late_transaction(NOW + 1_200_500) for log in (fast, slow)] in (
            [False, False], [True, True])
    assert sum(taken) > 100 and fast.state() | {"path": 0} == slow.state() | {"path": 0}
    for log in (fast, slow):
        log.close()


def test_what_comes_before_a_refused_batch_of_a_span(tmp_path: Path) -> None:
    """A producer's mistake far behind costs no second look at what comes before."""
    log = open_log(tmp_path / "t-0", internal_segment_bytes="1000000")
    log.append_as_leader(batch(1, producer=1, sequence=0), 0)
    good = [batch(1, producer=1, sequence=n) for n in range(1, 30)]
    wrong = batch(1, producer=1, sequence=99)
    info = ordinary.append_ordinary(log, b"".join([*good, wrong, *good]), 0, is_span=True)
    assert info is not None and info.valid_bytes == sum(map(len, good))
    assert log.log_end_offset == 30
    assert ordinary.append_ordinary(log, wrong, 0, is_span=True) is None


@pytest.mark.parametrize("is_fast", [True, False], ids=["native", "slow"])
def test_a_full_disk_in_the_middle_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              is_fast: bool) -> None:
    """The directory is offline, as in Kafka; the log file ends with its last whole batch."""
    if not is_fast:
        without_native_path(monkeypatch)
    log = open_log(tmp_path / "t-0")
    for _ in range(3):
        log.append_as_leader(batch(2, size=100), 0)
    file = next((tmp_path / "t-0").glob("*.log"))
    before, end = file.read_bytes(), log.log_end_offset
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, hard))
        with pytest.raises(KafkaStorageError):
            log.append_as_leader(batch(2, size=100), 0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (file.read_bytes(), log.log_end_offset) == (before, end)
    with pytest.raises(KafkaStorageError):
        log.append_as_leader(batch(2, size=100), 0)
    log.close_handlers()
    again = open_log(tmp_path / "t-0")
    assert again.log_end_offset == end
    assert again.append_as_leader(batch(2, size=100), 0).first_offset == end
