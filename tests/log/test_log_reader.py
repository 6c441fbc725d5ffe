"""One vocabulary: a directory, a log that is written to and a log inside a program answer the same
questions about the same files alike."""

from __future__ import annotations

import inspect
import itertools
import random
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import LogReader, PartitionLog
from seglog.config import LogConfig
from seglog.errors import IllegalArgumentError, InconsistentTopicIdError, OffsetOutOfRangeError
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from seglog.storage import polling
from seglog.storage.isolation import ISOLATIONS
from seglog.storage.meta import format_uuid, write_partition_metadata
from seglog.storage.paths import PARTITION_METADATA
from tests.support.waiting import PATIENCE, wait_for

LOGS = ["txn-0", "txn-1", "compacted-txn-0", "compacted-0", "outoforder-0", "startoffset-0",
        "appendtime-0", "epochs-0"]
SECONDS = 120.0


@pytest.fixture(params=LOGS)
def readers(request: pytest.FixtureRequest, golden: Path, tmp_path: Path
            ) -> Iterator[list[LogReader]]:
    """Three readers of a log that a real broker wrote, over one directory."""
    data = tmp_path / "clean"
    shutil.copytree(golden / "real" / "clean", data, ignore=lambda folder, names: [
        name for name in names if (golden / "real" / "clean" / name).is_dir()
        and name != request.param])
    with (seglog.open(data / request.param) as program,
          PartitionLog.open(data / request.param) as directory):
        yield [directory, program.log, program]


def alike(readers: list[LogReader], ask: Callable[[LogReader], Any]) -> Any:
    """The answer, which is everyone's: a value, or the type of an error."""
    answers = []
    for reader in readers:
        try:
            answers.append(ask(reader))
        except (OffsetOutOfRangeError, ValueError) as error:
            answers.append(OffsetOutOfRangeError if isinstance(error, OffsetOutOfRangeError)
                           else ValueError)
    assert answers[0] == answers[1] == answers[2]
    return answers[0]


def rows(stream: Any) -> list[tuple[Any, ...]]:
    return [row for columns in stream for row in zip(*columns.to_pylists().values(), strict=True)]


def offsets_of(readers: list[LogReader]) -> list[int]:
    start, end = readers[0].log_start_offset, readers[0].log_end_offset
    drawn = random.Random(1).choices(range(start, end), k=3)
    return [start, *drawn, end - 1, end, end + 1, max(start - 1, 0)]


@pytest.mark.parametrize("reader", [PartitionLog, UnifiedLog, seglog.EmbeddedLog])
@pytest.mark.parametrize("verb", ["fetch", "to_arrow", "records", "offset_for_timestamp", "follow"])
def test_every_reader_has_the_parameters_of_the_vocabulary(reader: type, verb: str) -> None:
    """With the same defaults."""
    promised, found = (inspect.signature(getattr(one, verb)).parameters
                       for one in (LogReader, reader))
    assert {name: found[name].default for name in promised} == {
        name: one.default for name, one in promised.items()}


def test_where_a_log_begins_and_ends(readers: list[LogReader]) -> None:
    for ask in (lambda one: one.path, lambda one: one.topic_partition,
                lambda one: one.log_start_offset, lambda one: one.log_end_offset,
                lambda one: one.last_stable_offset):
        alike(readers, ask)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_fetches(readers: list[LogReader], isolation: Any) -> None:
    fetched = 0
    for offset, size in itertools.product(offsets_of(readers), (0, 3000, 1 << 20)):
        found = alike(readers, lambda one: one.fetch(offset, size, isolation))
        fetched += found is not OffsetOutOfRangeError and len(found.records) > 0
    assert fetched
    start = readers[0].log_start_offset
    assert alike(readers, lambda one: one.fetch(start, -1, isolation)) is ValueError
    assert alike(readers, lambda one: one.fetch(start, 1, "committed")) is ValueError


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_streams(readers: list[LogReader], isolation: Any) -> None:
    pairs = list(itertools.combinations(sorted(offsets_of(readers)), 2))
    bounds = [(None, None), *random.Random(2).sample(pairs, 8)]
    for (start, end), threads in zip(bounds, itertools.cycle([0, 2])):
        alike(readers, lambda one: rows(one.to_arrow(start, end, ["offset", "key", "value"],
                                                     isolation, threads=threads)))
        alike(readers, lambda one: list(one.records(start, end, isolation=isolation)))
    every = alike(readers, lambda one: rows(one.to_arrow(include_control=True, batch_rows=7,
                                                         isolation=isolation)))
    assert every
    assert alike(readers, lambda one: one.to_arrow(isolation="committed")) is ValueError
    assert alike(readers, lambda one: one.records(isolation="committed")) is ValueError
    assert alike(readers, lambda one: one.to_arrow(columns=["colour"])) is ValueError
    assert alike(readers, lambda one: one.to_arrow(batch_rows=0)) is ValueError


def test_offsets_by_time(readers: list[LogReader]) -> None:
    times = {time for _, time in rows(readers[0].to_arrow(columns=["offset", "timestamp"]))}
    for time in (*sorted(times)[::7], max(times) + 1, -1, -2, -3, -4, -5, -6, 2**60):
        alike(readers, lambda one: one.offset_for_timestamp(time))
    assert readers[0].offset_for_timestamp(max(times)) is not None


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_followers(readers: list[LogReader], isolation: Any) -> None:
    start, stable = readers[0].log_start_offset, readers[0].last_stable_offset
    for end in {start + (stable - start) // 2, stable}:
        with_end = alike(readers, lambda one: rows(one.follow(
            start, end_offset=end, isolation=isolation, columns=["offset", "value"])))
        assert with_end == rows(readers[0].to_arrow(start, end, ["offset", "value"], isolation))
    assert alike(readers, lambda one: list(one.follow(start, isolation=isolation, timeout=0.0)
                                           .records()))
    assert alike(readers, lambda one: rows(one.follow(timeout=0.0))) == []
    assert alike(readers, lambda one: one.follow(readers[0].log_end_offset + 1)) is \
        OffsetOutOfRangeError
    assert alike(readers, lambda one: one.follow(isolation="committed")) is ValueError


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_follower_gets_what_is_appended(tmp_path: Path, kind: int) -> None:
    """Each record once and in order, from while nothing was there until the follower is closed."""
    with seglog.open(tmp_path / "t-0", config={"internal.segment.bytes": "2000"}) as program:
        reader: LogReader = [PartitionLog.open(program.path), program.log, program][kind]
        seen: list[bytes | None] = []
        with reader.follow() as follower:
            thread = threading.Thread(
                target=lambda: seen.extend(one.value for one in follower.records()))
            thread.start()
            for number in range(60):
                program.append(b"%d" % number + b"." * 100)
            with reader.follow(0, end_offset=60) as other:
                assert len(list(other.records())) == 60
            wait_for(lambda: len(seen) == 60)
            follower.close()
            thread.join(SECONDS)
            assert not thread.is_alive()
    assert seen == [b"%d" % number + b"." * 100 for number in range(60)]


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_follower_continues_after_a_timeout(tmp_path: Path, kind: int) -> None:
    """A program looks at something else, and iterates again."""
    with seglog.open(tmp_path / "t-0") as program:
        reader: LogReader = [PartitionLog.open(program.path), program.log, program][kind]
        program.append(b"0")
        with reader.follow(0, end_offset=3, timeout=0.0) as follower:
            def more() -> list[bytes | None]:
                return [one.value for one in follower.records()]

            assert (more(), more()) == ([b"0"], [])
            program.append(b"1")
            assert (more(), more()) == ([b"1"], [])
            program.append_many([b"2", b"3"])
            assert (more(), more()) == ([b"2"], [])
        assert more() == []


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_loop_over_records_that_is_left_is_continued(tmp_path: Path, kind: int) -> None:
    """The records of a batch that the first loop did not reach are not lost."""
    with seglog.open(tmp_path / "t-0") as program:
        program.append_many([b"%d" % n for n in range(9)])
        reader: LogReader = [PartitionLog.open(program.path), program.log, program][kind]
        with reader.follow(0, timeout=0.0) as follower:
            assert [next(follower.records()).offset for _ in range(3)] == [0, 1, 2]
            for record in follower.records():
                if record.offset == 5:
                    break
            assert [record.offset for record in follower.records()] == [6, 7, 8]


def test_a_follower_that_has_failed_fails_again(tmp_path: Path) -> None:
    """An end would say that there is nothing more."""
    with seglog.open(tmp_path / "t-0") as program:
        program.append_many([b"x"] * 5)
        for reader in (PartitionLog.open(program.path), program):
            with reader.follow(0, timeout=SECONDS) as follower:
                assert len(next(follower)) == 5
                program.log.truncate_to(0)
                for _ in range(2):
                    with pytest.raises(OffsetOutOfRangeError, match="truncated to offset"):
                        next(follower)
            program.append_many([b"x"] * 5)


def test_a_follower_notices_a_truncation(tmp_path: Path) -> None:
    """The records that it has returned are gone: others may take their offsets."""
    with seglog.open(tmp_path / "t-0") as program:
        program.append_many([b"x"] * 5)
        program.append_many([b"x"] * 5)
        for reader in (PartitionLog.open(program.path), program.log, program):
            with reader.follow(0) as follower:
                assert len(next(follower).to_pylists()["offset"]) == 10
                program.log.truncate_to(5)
                with pytest.raises(OffsetOutOfRangeError, match="truncated to offset 5"):
                    next(follower)
            program.append_many([b"y"] * 5)
            program.log.update_high_watermark(10)


OLD, NEW = uuid.UUID(int=1 << 100), uuid.UUID(int=1 << 101)


def topic(path: Path, topic_id: uuid.UUID | None, values: list[bytes]) -> None:
    """A log with these records, in the place of an older one."""
    if path.exists():
        path.rename(path.with_name("t-0.old"))
    with seglog.open(path, topic_id=topic_id) as program:
        program.append_many(values)
    assert (path / PARTITION_METADATA).exists() == (topic_id is not None)


@pytest.mark.parametrize("count", [1, 3, 10])
def test_a_follower_ends_when_its_topic_is_created_again(tmp_path: Path, count: int) -> None:
    """The new log may be as long as the old one, or longer: no offset says that it is another."""
    topic(tmp_path / "t-0", OLD, [b"old"] * 3)
    with PartitionLog.open(tmp_path / "t-0") as log:
        followers = [log.follow(start, timeout=PATIENCE).records() for start in (0, 2)]
        assert [next(followers[0]).value for _ in range(3)] == [b"old"] * 3
        topic(tmp_path / "t-0", NEW, [b"new"] * count)
        for follower in followers:  # one of them has not read yet
            with pytest.raises(InconsistentTopicIdError, match="deleted and created again"):
                next(follower)


@pytest.mark.parametrize("ids", [(None, None), (None, NEW), (OLD, None), (OLD, OLD)])
def test_a_follower_of_a_log_that_may_be_the_same_continues(
        tmp_path: Path, ids: tuple[uuid.UUID | None, uuid.UUID | None]) -> None:
    """A move to another directory and back, or a directory without an id."""
    topic(tmp_path / "t-0", ids[0], [b"old"] * 3)
    with PartitionLog.open(tmp_path / "t-0") as log:
        follower = log.follow(0, end_offset=5, timeout=PATIENCE).records()
        assert [next(follower).value for _ in range(3)] == [b"old"] * 3
        topic(tmp_path / "t-0", ids[1], [b"new"] * 5)
        assert [one.value for one in follower] == [b"new"] * 2


def test_a_follower_learns_an_id_that_comes_later(tmp_path: Path) -> None:
    """A broker writes it when the first record comes, and ours does not with its first start."""
    topic(tmp_path / "t-0", None, [b"old"] * 3)
    metadata = tmp_path / "t-0" / PARTITION_METADATA
    with PartitionLog.open(tmp_path / "t-0") as log:
        follower = log.follow(0, timeout=PATIENCE).records()
        assert [next(follower).value for _ in range(3)] == [b"old"] * 3
        with seglog.open(tmp_path / "t-0") as program:
            for topic_id in (OLD, b"bad", OLD, OLD):
                if isinstance(topic_id, bytes):
                    metadata.write_bytes(topic_id)
                else:
                    write_partition_metadata(metadata, topic_id)
                program.append(b"more")
                assert next(follower).value == b"more"
            write_partition_metadata(metadata, NEW)
            program.append(b"more")
            with pytest.raises(InconsistentTopicIdError):
                next(follower)


def test_a_log_of_another_topic_is_not_opened(tmp_path: Path) -> None:
    topic(tmp_path / "t-0", OLD, [b"old"])
    with pytest.raises(InconsistentTopicIdError) as caught:
        seglog.open(tmp_path / "t-0", topic_id=NEW)
    assert str(caught.value) == (
        f"Tried to assign topic ID Optional[{format_uuid(NEW)}] to log for topic partition t-0,but "
        f"log already contained topic ID {format_uuid(OLD)}")
    for other, error in ((uuid.UUID(int=0), IllegalArgumentError), (OLD.hex, TypeError)):
        with pytest.raises(error, match="topic_id must"):
            UnifiedLog.create(tmp_path / "t-1", LogConfig(), scheduler=MockTime().scheduler,
                              topic_id=other)  # type: ignore[arg-type]
    assert not (tmp_path / "t-1").exists()


def test_a_follower_reads_the_topic_id_once(tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    topic(tmp_path / "t-0", OLD, [b"old"] * 3)
    reads, listings = [], []
    refresh, topic_id = PartitionLog.refresh, PartitionLog.topic_id

    def counted(log: PartitionLog) -> Any:
        listings.append(1)
        if len(listings) > 5:
            raise Enough
        return refresh(log)

    monkeypatch.setattr(polling, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(PartitionLog, "refresh", counted)
    monkeypatch.setattr(PartitionLog, "topic_id", property(
        lambda log: (reads.append(1), topic_id.fget(log))[1]))
    with PartitionLog.open(tmp_path / "t-0") as log:
        follower = log.follow(0).records()
        assert [next(follower).value for _ in range(3)] == [b"old"] * 3
        with pytest.raises(Enough):
            next(follower)
    assert len(reads) == 1
