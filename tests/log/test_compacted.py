"""seglog.open with cleanup.policy=compact: a durable key-value store."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seglog
from seglog.cleaner.cleaning_states import ABORTED
from seglog.errors import IllegalStateError, KafkaStorageError, RecordValidationError
from seglog.model import TopicPartition
from tests.manager.support import entries
from tests.support.effort import examples, how_many
from tests.support.waiting import wait_for

COMPACT: dict[str, Any] = {"cleanup.policy": "compact"}
SMALL = {**COMPACT, "internal.segment.bytes": 2000, "index.interval.bytes": 200}


def last(log: seglog.EmbeddedLog) -> dict[bytes, bytes]:
    """The last committed value of each key, from all records."""
    found: dict[bytes, bytes | None] = {
        one.key or b"": one.value for one in log.records(isolation="read_committed")}
    return {key: value for key, value in found.items() if value is not None}


def test_what_stays_before_a_refused_batch_is_committed(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT, batch_bytes=1000) as log:
        with pytest.raises(RecordValidationError, match="without key"):
            log.append_many([(b"a", b"1" * 900), (None, b"2" * 900)])
        assert log.log_end_offset == log.last_stable_offset == 1
        assert log.latest(b"a") == b"1" * 900 and log.keys() == [b"a"]


def test_latest_after_a_truncation_and_as_many_new_records(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        log.append_many([(b"a", b"old"), (b"b", b"1")])
        log.append(None, key=b"b")
        assert log.latest(b"a") == b"old" and log.keys() == [b"a"]
        log.log.truncate_to(2)
        log.append_many([(b"a", b"new"), (b"c", b"2")])
        assert last(log) == {key: log.latest(key) for key in (b"b", b"a", b"c")}
        assert log.keys() == [b"b", b"a", b"c"]


def test_latest_while_the_log_is_truncated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                           ) -> None:
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        for number in range(6):  # one batch each: a batch is truncated as a whole
            log.append(b"%d" % number, key=b"a")
        assert log.latest(b"a") == b"5"
        log.append(None, key=b"a")
        read = log.to_arrow

        def truncated(*args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            log.log.truncate_to(3)
            return read(*args, **options)

        monkeypatch.setattr(log, "to_arrow", truncated)
        assert log.latest(b"a") == b"2" and log.keys() == [b"a"]


def test_put_get_delete(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        assert log.latest(b"a") is None and log.keys() == [] and log.compact() == []
        log.append(b"1", key=b"a")
        log.append_many([(b"b", b"1"), (b"a", b"2"), (b"c", b"3")])
        assert log.latest(b"a") == b"2" and log.latest(bytearray(b"c")) == b"3"
        assert log.keys() == [b"b", b"a", b"c"]
        log.append(None, key=b"c")
        assert log.latest(b"c") is None and log.keys() == [b"b", b"a"]
        rounds = log.compact(threads=2)
        assert len(rounds) == 1 and rounds[0].messages_written == 3
        assert [(one.offset, one.key) for one in log.records()] == [(1, b"b"), (2, b"a"), (4, b"c")]
        assert log.latest(b"a") == b"2" and log.latest(b"c") is None
        assert log.compact() == []
        for wrong in ("a", 3, None):
            with pytest.raises(TypeError):
                log.latest(wrong)  # type: ignore[arg-type]
    assert entries(tmp_path / "d" / "cleaner-offset-checkpoint") == {TopicPartition("t", 0): 5}
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        assert log.latest(b"a") == b"2" and log.compact() == []
        log.append(b"3", key=b"a")
        assert log.latest(b"a") == b"3" and len(log.compact()) == 1
        assert log.keys() == [b"b", b"a"]
    with pytest.raises(KafkaStorageError):
        log.latest(b"a")


def test_tombstones_that_go_before_they_are_read(tmp_path: Path) -> None:
    """Two rounds between two calls, as beside a nightly job that lists the keys."""
    with seglog.open(tmp_path / "d" / "t-0", config={**COMPACT, "delete.retention.ms": 0}) as log:
        log.append_many([(b"a", b"1"), (b"b", b"1")])
        assert log.keys() == [b"a", b"b"]
        log.append(None, key=b"a")
        for value in (b"2", b"3"):
            log.append(value, key=b"b")
            log.compact()
        assert [one.key for one in log.records()] == [b"b"]
        assert log.keys() == [b"b"] and log.latest(b"a") is None


def cleaners() -> set[threading.Thread]:
    """The running threads of cleaners, those of other tests included."""
    return {one for one in threading.enumerate() if "cleaner" in one.name}


def test_other_logs_are_not_compacted(tmp_path: Path) -> None:
    before = cleaners()
    with seglog.open(tmp_path / "d" / "t-0") as log:
        log.append(b"1", key=b"a")
        assert log.latest(b"a") == b"1"
        with pytest.raises(IllegalStateError, match="its cleanup.policy is delete"):
            log.compact()
        assert not cleaners() - before


def test_transactions(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        log.append(b"1", key=b"a")
        with pytest.raises(ZeroDivisionError), log.transaction() as aborted:
            aborted.append(b"aborted", key=b"a")
            raise ZeroDivisionError
        assert log.latest(b"a") == b"1"
        with log.transaction() as begun:
            begun.append(b"2", key=b"a")
            log.append(b"1", key=b"b")
            assert log.latest(b"a") == b"1" and log.latest(b"b") is None
            log.compact()
        assert log.latest(b"a") == b"2" and log.latest(b"b") == b"1"
        log.compact()
        assert last(log) == {b"a": b"2", b"b": b"1"} and log.latest(b"a") == b"2"


def test_deleted_and_truncated_records(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        for number in range(4):
            log.append(b"%d" % number, key=b"%d" % number)
        assert log.keys() == [b"0", b"1", b"2", b"3"]
        log.delete_before(2)
        assert log.latest(b"1") is None and log.keys() == [b"2", b"3"]
        log.log.truncate_to(3)
        assert log.latest(b"3") is None and log.latest(b"2") == b"2"
        log.append(b"new", key=b"2")
        log.append(b"5", key=b"5")
        assert log.latest(b"2") == b"new"
        log.log.truncate_to(3)  # and written again up to the same end
        log.append(b"6", key=b"6")
        log.append(b"7", key=b"7")
        assert log.latest(b"5") is None and log.latest(b"6") == b"6" and log.latest(b"2") == b"2"


def test_keys_below_the_start_take_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                             ) -> None:
    """With `compact,delete` keys may come and go for ever. Nor is the log read again for them."""
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        for number in range(10):
            log.append(b"v", key=b"%d" % (number % 9))
        assert len(log.keys()) == 9
        log.delete_before(7)
        monkeypatch.setattr(log, "to_arrow", None)
        assert log.latest(b"3") is None and log.keys() == [b"7", b"8", b"0"]
        assert len(log._latest._offsets) == 3


def test_it_compacts_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While threads put and get; and a second log of the directory beside it."""
    monkeypatch.setattr("seglog.embedded.embedded_cleaning.CleanerConfig",
                        lambda: __import__("seglog.cleaner").cleaner.CleanerConfig(backoff_ms=5))
    home, before = tmp_path / "d", cleaners()
    with (seglog.open(home / "t-0", config=SMALL) as log,
          seglog.open(home / "u-0", config=SMALL) as other,
          seglog.open(home / "v-0") as plain):
        wrong: list[BaseException] = []

        def work(name: bytes) -> None:
            try:
                for number in range(400):
                    key = b"%s %d" % (name, number % 7)
                    log.append(b"%d" % number, key=key)
                    assert log.latest(key) == b"%d" % number
                    other.append(b"%d" % number, key=key)
                    plain.append(b"%d" % number, key=key)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in (b"x", b"y", b"z")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        wait_for(lambda: len(list(log.records())) <= 300 >= len(list(other.records())))
        assert len(log.keys()) == 21 and len(list(plain.records())) == 1200
        assert last(log) == {key: log.latest(key) for key in log.keys()} == last(other)
    assert not cleaners() - before
    assert set(entries(home / "cleaner-offset-checkpoint")) == {
        TopicPartition("t", 0), TopicPartition("u", 0)}


def test_lines_of_other_logs_stay(tmp_path: Path) -> None:
    path = tmp_path / "d" / "cleaner-offset-checkpoint"
    with seglog.open(tmp_path / "d" / "t-0", config=COMPACT) as log:
        written = tmp_path / "written"
        written.write_text("0\n1\n__consumer_offsets 7 99\n")
        written.replace(path)  # the cleaner's thread may read it at any moment
        log.append(b"1", key=b"a")
        log.compact()
    assert entries(path) == {TopicPartition("__consumer_offsets", 7): 99,
                             TopicPartition("t", 0): 1}


def test_a_close_ends_a_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seglog.cleaner.record_filter import RecordFilter
    from seglog.errors import LogCleaningAbortedError
    reached, real = threading.Event(), RecordFilter.filter

    def slow(*args: Any, **kwargs: Any) -> Any:
        reached.set()
        wait_for(lambda: cleaner.manager.cleaning_state(TopicPartition("t", 0)) == ABORTED)
        return real(*args, **kwargs)

    monkeypatch.setattr(RecordFilter, "filter", slow)
    log = seglog.open(tmp_path / "d" / "t-0", batch_bytes=1000,
                      config={**SMALL, "min.cleanable.dirty.ratio": 1})  # no other round
    cleaner = log._directory.cleaning._cleaner
    log.append_many([(b"%d" % (number % 200), bytes(200)) for number in range(400)])
    errors: list[BaseException] = []

    def compact() -> None:
        try:
            log.compact()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    assert reached.wait(120)
    log.close()
    thread.join(120)
    assert [type(one) for one in errors] == [LogCleaningAbortedError]
    assert not list(Path(log.path).glob("*.cleaned"))
    with seglog.open(tmp_path / "d" / "t-0", config=SMALL) as log:
        monkeypatch.undo()
        log.compact()
        assert len(log.keys()) == 200


KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"\0\0\0\0"])
STEPS = st.lists(st.one_of(
    st.tuples(st.just("put"), KEYS, st.none() | st.binary(max_size=300)),
    st.tuples(st.just("commit"), KEYS, st.binary(max_size=300)),
    st.tuples(st.just("abort"), KEYS, st.binary(max_size=300)),
    st.tuples(st.just("compact")), st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("reopen"))), max_size=30)


@settings(max_examples=examples(100))
@given(STEPS, st.sampled_from(["producer", "lz4", "zstd"]))
def test_a_dict(steps: list[tuple[Any, ...]], codec: str) -> None:
    """What a dict would have, whatever is done in which order."""
    import tempfile
    model: dict[bytes, bytes] = {}
    config = {**SMALL, "internal.segment.bytes": 700, "compression.type": codec,
              "delete.retention.ms": 0}
    with tempfile.TemporaryDirectory(prefix="seglog-store-") as home:
        log = seglog.open(Path(home) / "d" / "t-0", config=config)
        for name, *args in steps:
            if name == "put":
                log.append(args[1], key=args[0])
                if args[1] is None:
                    model.pop(args[0], None)
                else:
                    model[args[0]] = args[1]
            elif name in ("commit", "abort"):
                try:
                    with log.transaction() as transaction:
                        transaction.append(args[1], key=args[0])
                        if name == "abort":
                            raise ZeroDivisionError
                    model[args[0]] = args[1]
                except ZeroDivisionError:
                    pass
            elif name == "compact":
                log.compact()
                assert last(log) == model
            elif name == "get":
                assert log.latest(args[0]) == model.get(args[0])
            else:
                log.close()
                log = seglog.open(Path(home) / "d" / "t-0", config=config)
        assert last(log) == model == {key: log.latest(key) for key in log.keys()}
        log.close()


_KILLED = """
import itertools, sys
import seglog
log = seglog.open(sys.argv[1], config={"cleanup.policy": "compact", "delete.retention.ms": 0,
                                       "internal.segment.bytes": 3000})
start = int(sys.argv[2])
for number in itertools.count(start):
    key = b"%d" % (number % 23)
    log.append(None if number % 5 == 0 else b"%d" % number, key=key)
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    if number % 11 == 0:
        log.compact()
"""


def test_killed_at_any_time(tmp_path: Path) -> None:
    """Whatever an append returned is there, and no key twice in what was cleaned."""
    place, drawn, number = tmp_path / "d" / "t-0", random.Random(9), 0
    model: dict[bytes, bytes] = {}
    for _ in range(how_many("COMPACT_KILLS", 8, 2)):
        writer = subprocess.Popen([sys.executable, "-c", _KILLED, place, str(number)],
                                  stdout=subprocess.PIPE)
        assert writer.stdout is not None
        for _ in range(drawn.randrange(1, 200)):
            assert writer.stdout.readline()
        time.sleep(drawn.random() / 100)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        with seglog.open(place, config=SMALL) as log:
            done = log.log_end_offset  # a number is its offset
            assert done >= number, f"the log ended at {number}, and ends at {done}"
            for one in range(number, done):
                key = b"%d" % (one % 23)
                if one % 5 == 0:
                    model.pop(key, None)
                else:
                    model[key] = b"%d" % one
            number = done
            assert last(log) == model
            log.compact()
            assert last(log) == model
            keys = [one.key for one in log.records()]
            assert len(keys) == len(set(keys)), "each once"
            assert not [*Path(place).glob("*.cleaned"), *Path(place).glob("*.swap")]
