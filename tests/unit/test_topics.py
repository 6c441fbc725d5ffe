"""`DataDir.to_arrow`: whole topics, by any filter, against a slow filter of what was written."""

from __future__ import annotations

import gc
import random
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, UTC
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog._native.columns import live_columns
from seglog.arrow import COLUMNS, ORIGIN_COLUMNS, TOPIC_COLUMNS, RecordSchema
from seglog.errors import (
    CorruptRecordError, KafkaStorageError, OffsetOutOfRangeError, UnknownTopicOrPartitionError,
)
from seglog.storage.selection import select_partitions, unknown_partition, unknown_topic
from tests.oracle.batch import Batch, Record
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import LogConfig, LogWriter
from tests.support.damage import poke
from tests.support.golden import real_partitions
from tests.support.held import threads_since
from tests.support.reading import collect
from tests.support.waiting import wait_for

TOPICS = {"orders": 3, "orders-eu": 2, "clicks": 1, "__internal": 1}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A data directory, and the rows of each partition with their topic and partition."""
    home = tmp_path_factory.mktemp("data")
    (home / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    rows = {}
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            log = build_log(home / f"{topic}-{partition}", len(rows) + 7,
                            Shape(batches=40, transactions=partition % 2 == 0))
            rows[topic, partition] = {
                isolation: [{**row, "topic": topic, "partition": partition}
                            for row in log.rows(isolation=isolation)]
                for isolation in ("read_uncommitted", "read_committed")}
    return home, rows


@pytest.fixture
def data(built: Any) -> Iterator[seglog.DataDir]:
    with seglog.open_data_dir(built[0]) as opened:
        yield opened


@pytest.mark.parametrize("seed", range(40))
def test_any_filter(built: Any, data: seglog.DataDir, seed: int) -> None:
    chance = random.Random(seed)
    words, topics = chance.choice([
        ("orders", ["orders"]), ("orders*", ["orders", "orders-eu"]), ("^c", ["clicks"]),
        (["clicks", "orders-eu"], ["clicks", "orders-eu"]), ("__*", ["__internal"]),
        (None, ["clicks", "orders", "orders-eu"]), ("*", ["clicks", "orders", "orders-eu"])])
    isolation: Any = chance.choice(("read_uncommitted", "read_committed"))
    chosen = [key for key in sorted(built[1]) if key[0] in topics]
    stamps = sorted(row["timestamp"] for key in chosen for row in built[1][key][isolation])
    offsets = sorted(row["offset"] for key in chosen for row in built[1][key][isolation])
    some: dict[str, Any] = {}
    for name, values in (("timestamp", stamps), ("offset", offsets)):
        for side in ("start", "end"):
            if chance.random() < 0.4:
                some[f"{side}_{name}"] = chance.choice(values) + chance.choice((0, 0, 1))
    if some.get("start_offset", 0) > some.get("end_offset", 1 << 62):
        some["start_offset"], some["end_offset"] = some["end_offset"], some["start_offset"]
    columns = chance.sample((*ORIGIN_COLUMNS, *COLUMNS), chance.randint(1, 15))
    expected = [
        {name: row[name] for name in columns} for key in chosen for row in built[1][key][isolation]
        if some.get("start_offset", 0) <= row["offset"] < some.get("end_offset", 1 << 62)
        and some.get("start_timestamp", -1) <= row["timestamp"]
        and row["timestamp"] < some.get("end_timestamp", 1 << 62)]
    stream = data.to_arrow(words, columns, isolation=isolation, threads=chance.choice((0, 2)),
                           batch_rows=chance.choice((1, 13, 16384)), **some)
    assert collect(stream) == expected
    assert collect(stream) == expected  # and once more


def test_offsets_by_partition(built: Any, data: seglog.DataDir) -> None:
    keys = [seglog.TopicPartition("orders", number) for number in range(3)]
    rows = built[1]["orders", 1]["read_uncommitted"]
    stream = data.to_arrow("orders", ["offset"], start_offset={keys[1]: rows[5]["offset"]},
                           end_offset={keys[0]: 0, keys[2]: 0})
    assert [row["offset"] for row in collect(stream)] == [row["offset"] for row in rows[5:]]
    with pytest.raises(ValueError, match="clicks-0, which is not read here"):
        data.to_arrow("orders", start_offset={seglog.TopicPartition("clicks", 0): 1})


def test_times_of_any_kind(built: Any, data: seglog.DataDir) -> None:
    stamps = sorted(row["timestamp"] for row in built[1]["clicks", 0]["read_uncommitted"])
    middle = stamps[len(stamps) // 2]
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=middle)
    count = sum(stamp >= middle for stamp in stamps)
    for since in (middle, moment, moment - timedelta(microseconds=1),
                  moment.astimezone(timezone(timedelta(hours=-7)))):
        found = collect(data.to_arrow("clicks", ["timestamp"], start_timestamp=since))
        assert len(found) == count
    with pytest.raises(ValueError, match="no time zone"):
        data.to_arrow("clicks", start_timestamp=moment.replace(tzinfo=None))
    with pytest.raises(TypeError, match="milliseconds"):
        data.to_arrow("clicks", end_timestamp=1.5)  # type: ignore[arg-type]
    assert collect(data.to_arrow("clicks", start_timestamp=stamps[-1] + 1)) == []
    for end in (-1 << 63, (-1 << 63) + 1):
        assert collect(data.to_arrow("clicks", end_timestamp=end)) == []


@pytest.mark.parametrize(("wrong", "message"), [
    ({"partitions": 0}, "partitions must be several numbers, not 0"),
    ({"partitions": "0"}, "partitions must be several numbers, not '0'"),
    ({"partitions": ["0"]}, "each of partitions must be an integer, not '0'"),
    ({"columns": "offset"}, "columns must be a list of names, not 'offset'"),
    ({"thread": 2}, "unexpected keyword argument 'thread'"),
    ({"threads": "2"}, "threads must be an integer, not '2'"),
    ({"threads": -1}, "threads must be between 0 and"),
    ({"batch_rows": "2"}, "batch_rows must be an integer, not '2'"),
    ({"batch_bytes": 0}, "batch_bytes must be between 1"),
    ({"on_damage": "stop"}, "on_damage 'stop' is neither raise nor skip")])
def test_wrong_arguments_are_refused_at_once(data: seglog.DataDir, wrong: dict[str, Any],
                                             message: str) -> None:
    """Not at the first record, inside of another library."""
    with pytest.raises((TypeError, ValueError), match=message):
        data.to_arrow("orders", **wrong)


def test_partitions_that_can_be_read_once(built: Any, data: seglog.DataDir) -> None:
    once: Any = iter([1])
    found = collect(data.to_arrow("orders", ["offset"], partitions=once))
    assert len(found) == len(built[1]["orders", 1]["read_uncommitted"])


def test_bounds_at_the_ends_of_64_bits(built: Any, data: seglog.DataDir) -> None:
    rows = len(built[1]["clicks", 0]["read_uncommitted"])
    least, most = -1 << 63, (1 << 63) - 1
    for bounds, count in (({"end_timestamp": least}, 0), ({"start_timestamp": most}, 0),
                          ({"start_timestamp": least, "end_timestamp": most}, rows),
                          ({"start_offset": least, "end_offset": most}, rows)):
        assert len(collect(data.to_arrow("clicks", ["offset"], **bounds))) == count
    one = seglog.TopicPartition("clicks", 0)
    for side in ("start_offset", "end_offset"):
        for value in (least - 1, most + 1):
            for bound in (value, {one: value}):
                with pytest.raises(ValueError, match=f"^{side} must be between"):
                    data.to_arrow("clicks", **{side: bound})
        with pytest.raises(TypeError, match=f"^{side} must be an integer"):
            data.to_arrow("clicks", **{side: "5"})


def test_what_is_not_there_is_named(data: seglog.DataDir) -> None:
    for words, sentence in (("order", "topic order is not here; did you mean 'orders'?"),
                            ("ORDERS-EU", "did you mean 'orders-eu'?"),
                            ("orders-2", "did you mean partition 2 of 'orders'?"),
                            ("zzz", "there are clicks, orders, orders-eu"),
                            ("x*", r"no topic matches 'x\*'; there are clicks, orders"),
                            ("^x", r"no topic matches '\^x'")):
        with pytest.raises(UnknownTopicOrPartitionError, match=sentence.replace("?", r"\?")):
            data.to_arrow(words)
    with pytest.raises(UnknownTopicOrPartitionError, match="orders has 0 to 2"):
        data.to_arrow("orders", partitions=[3])
    with pytest.raises(UnknownTopicOrPartitionError, match="orders has 0 to 2"):
        data.log("orders", 3)
    with pytest.raises(UnknownTopicOrPartitionError, match="did you mean 'orders'"):
        data.log("ordres", 0)
    with pytest.raises(ValueError, match="not a regular expression"):
        data.to_arrow("^(")
    with pytest.raises(OffsetOutOfRangeError, match="clicks-0 holds offsets 0 to"):
        data.to_arrow("clicks", start_offset=10**9)
    with pytest.raises(ValueError, match="no column 'keys'; there are .*, topic, partition"):
        data.to_arrow("clicks", ["keys"])


def test_libraries_take_it(built: Any, data: seglog.DataDir) -> None:
    pa = pytest.importorskip("pyarrow")
    stream = data.to_arrow("orders")
    tables = [pa.table(stream), pa.table(stream)]
    assert tables[0].equals(tables[1]) and tables[0].schema == pa.schema(RecordSchema(
        TOPIC_COLUMNS))
    tables[0].validate(full=True)
    assert tables[0].num_rows == sum(len(built[1]["orders", n]["read_uncommitted"])
                                     for n in range(3))
    assert repr(data.to_arrow("orders", ["offset"])) == (
        "<TopicStream orders: 3 partitions, read_uncommitted, offset>")


def test_a_dropped_stream_ends_its_threads(data: seglog.DataDir) -> None:
    gc.collect()
    gc.disable()
    try:
        running, live = set(threading.enumerate()), live_columns()
        for _ in range(3):
            stream = data.to_arrow("orders", threads=2, batch_rows=3)
            next(stream)
            if _ == 1:
                stream.close()
            del stream
            wait_for(lambda: not threads_since(running) and live_columns() <= live)
    finally:
        gc.enable()


def test_damage_ends_it_after_all_before_it(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\n")
    whole = build_log(tmp_path / "a-0", 3, Shape(batches=30))
    bad = build_log(tmp_path / "a-1", 4, Shape(batches=30))
    path = bad.path / f"{bad.segments[0]:020d}.log"
    content = bytearray(path.read_bytes())
    content[70] ^= 1  # in the first batch
    path.write_bytes(content)
    found: list[Any] = []
    with seglog.open_data_dir(tmp_path) as data, pytest.raises(CorruptRecordError):
        collect(data.to_arrow("a", ["offset"]), found)
    assert [row["offset"] for row in found] == [row["offset"] for row in whole.rows()]


def test_offsets_after_damage_that_is_skipped(tmp_path: Path) -> None:
    """The log ends before its first batch, and for a read that skips damage after its last."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    writer = LogWriter(tmp_path / "a-0", LogConfig())
    for offset in range(4):
        writer.append(Batch(offset, 0, [Record(offset, 5, None, b"v")], base_timestamp=5,
                            max_timestamp=5))
    writer.close()
    path, = (tmp_path / "a-0").glob("*.log")
    poke(path, path.stat().st_size // 4 - 2, b"x")  # in the first batch
    with seglog.open_data_dir(tmp_path) as data:
        assert data.log("a", 0).log_end_offset == 0
        stream = data.to_arrow("a", ["offset"], start_offset=2, on_damage="skip")
        assert collect(stream) == [{"offset": 2}, {"offset": 3}]
        with pytest.raises(OffsetOutOfRangeError):
            data.to_arrow("a", ["offset"], start_offset=5, on_damage="skip")


@pytest.mark.parametrize("name", ["clean", "unclean"])
def test_golden_directories(golden: Path, name: str) -> None:
    keys = [directory for folder, directory in real_partitions() if folder == name]
    with seglog.open_data_dir(golden / "real" / name) as data:
        for topic in {key.rpartition("-")[0] for key in keys}:
            parts = [row for partition in data.topics[topic]
                     for row in collect(data.log(topic, partition).to_arrow())]
            found = collect(data.to_arrow(topic))
            assert [{k: v for k, v in row.items() if k not in ORIGIN_COLUMNS}
                    for row in found] == parts
            assert {(row["topic"], row["partition"]) for row in found} <= {
                (topic, number) for number in data.topics[topic]}


def test_opening_another_kind_of_path_says_what_was_meant(built: Any, tmp_path: Path) -> None:
    home = built[0]
    with pytest.raises(KafkaStorageError, match="this is a data directory.*open_data_dir, or "
                       f"open one of its 7 partitions, such as {home}/clicks-0"):
        seglog.PartitionLog.open(home)
    copy = shutil.copytree(home, tmp_path / "backups" / "b1")
    for opened in (seglog.PartitionLog.open, seglog.open_data_dir):
        with pytest.raises(KafkaStorageError, match=f"did you mean {copy}"):
            opened(copy.parent)
        with pytest.raises(KafkaStorageError):
            opened(tmp_path / "gone")
    with pytest.raises(KafkaStorageError, match="partition directory, not a data directory"):
        seglog.open_data_dir(home / "clicks-0")
    (tmp_path / "new-0").mkdir()  # a partition that has no segment yet
    assert len(seglog.PartitionLog.open(tmp_path / "new-0").segments) == 0
    with seglog.PartitionLog.open(home / "clicks-0") as log:
        first, last = log.log_start_offset, log.log_end_offset
        for offset in (last + 1, -1):
            with pytest.raises(OffsetOutOfRangeError, match=rf"may start at {first} .* to {last} "):
                log.to_arrow(offset)


@pytest.mark.parametrize(("topics", "told"), [
    ((), "this directory has"), (("a",), "a has"), (("a", "b"), "these topics have")])
def test_a_partition_that_is_not_there_is_told_of_what_was_asked_for(
        topics: tuple[str, ...], told: str) -> None:
    assert str(unknown_partition("d", topics, 9, [0, 1, 5])) == (
        f"d: partition 9 is not here; {told} 0 to 1, 5")


@pytest.mark.parametrize(("asked", "hint"), [
    ("plain-3", "did you mean partition 3 of 'plain'?"), ("plain-x", "did you mean 'plain'?"),
    ("PLAIN", "did you mean 'plain'?"), ("zzz-3", "there are other, plain")])
def test_a_topic_that_is_not_there_is_told_of_what_was_meant(asked: str, hint: str) -> None:
    assert str(unknown_topic("d", asked, ["plain", "other"])) == (
        f"d: topic {asked} is not here; {hint}")


@pytest.mark.parametrize(("count", "more"), [
    (1, ""), (8, ""), (9, " and 1 more"), (10, " and 2 more")])
def test_what_is_there_is_named_up_to_eight(count: int, more: str) -> None:
    names = [f"topic{number}" for number in range(count)]
    told = ", ".join(names[:8])
    assert str(unknown_topic("d", "xyzzy", names)) == (
        f"d: topic xyzzy is not here; there {'is' if count == 1 else 'are'} {told}{more}")
    numbers = ", ".join(str(2 * number) for number in range(count)[:8])
    assert str(unknown_partition("d", ("a",), 99, [2 * number for number in range(count)])) == (
        f"d: partition 99 is not here; a has {numbers}{more and more + ' ranges'}")


def test_the_choice_among_many_topics_takes_no_time() -> None:
    """For each partition a set of all topics was made."""
    there = [seglog.TopicPartition(f"t{number}", 0) for number in range(20_000)]
    started = time.process_time()
    assert len(select_partitions(there, None, [0], "here")) == len(there)
    assert time.process_time() - started < 3
