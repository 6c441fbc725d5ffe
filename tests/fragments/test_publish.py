"""Commits of jobs, compared with their input and checked by seglog's own verification."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import seglog
from seglog.cli.main import main
from seglog.errors import (
    IllegalArgumentError, IllegalStateError, InvalidTopicError, KafkaStorageError,
    LogDirLockedError, RecordTooLargeError,
)
from seglog.fragments import (
    FragmentWriter, Job, StreamBatch, check_target, exclusive, partition_count, publish,
)
from seglog.model import EpochEntry, TopicPartition
from seglog.storage.checkpoint_files import (
    encode_checkpoint, offset_lines, read_offset_checkpoint,
)
from seglog.storage.codecs import CODEC_NAMES
from seglog.storage.paths import (
    CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT,
)
from tests.fragments.jobs import Truth, Written, add, contents, left_over, make_rows, members
from tests.support import reading
from tests.support.effort import quick_first
from tests.support.users import without_rights

pa = pytest.importorskip("pyarrow")

# The expected finding of a data directory that kafka-storage.sh has not formatted.
EXPECTED_FINDINGS = {"meta-properties-missing"}
MARKER = b'{"version":0,"brokerEpoch":-1}'


def check_sound(data_dir: Path) -> None:
    """Asserts no finding, and nothing that a broker would recover or rebuild."""
    with seglog.open_data_dir(data_dir, level="verify") as opened:
        found = [finding for finding in opened.report.findings
                 if finding.code not in EXPECTED_FINDINGS and finding.severity.name != "INFO"]
        assert not found and opened.had_clean_shutdown
        for key, log in opened.logs.items():
            end = log.log_end_offset
            assert opened.recovery_points[key] == end >= opened.high_watermarks[key], key
            names = os.listdir(data_dir / str(key))
            assert len({name.partition(".")[0] for name in names if name.endswith(".log")}) \
                == sum(name.endswith(".timeindex") for name in names)
            if end:
                assert f"{end:020d}.snapshot" in names
                assert [str(entry) for entry in log.leader_epochs] == [str(EpochEntry(0, 0))]


@pytest.mark.parametrize("seed", quick_first(range(6), 1))
def test_any_jobs_give_what_they_were_given(tmp_path: Path, seed: int) -> None:
    """Jobs of any sizes, codecs and attempts; programs append between the jobs."""
    rng = random.Random(seed)
    data_dir, truth = tmp_path / "data", Truth()
    for _ in range(8):
        written = Written(data_dir, segment_bytes=rng.choice([3000, 40_000, 1 << 30]),
                          codec=rng.choice(CODEC_NAMES), batch_bytes=rng.choice([1, 500, 16384]))
        for _ in range(rng.randint(1, 4)):
            keys = [TopicPartition(rng.choice("ab"), rng.randrange(3))
                    for _ in range(rng.randint(1, 4))]
            written.task({key: make_rows(rng, rng.choice([1, 20, 700])) for key in keys},
                         reported=rng.random() < .8)
        ends = {key: len(rows) for key, rows in truth.items()}
        offsets = written.publish()
        assert offsets == {key: (ends.get(key, 0), ends.get(key, 0) + len(rows))
                           for key, rows in written.rows.items()}
        truth = add(truth, written.rows)
        assert contents(data_dir) == truth and left_over(data_dir) == []
        if truth:
            check_sound(data_dir)
            with seglog.open_data_dir(data_dir) as opened:
                assert {key: opened.high_watermarks[key] for key in offsets} \
                    == {key: end for key, (_, end) in offsets.items()}
            key = rng.choice(sorted(truth))
            with seglog.open(data_dir / str(key)) as log:
                log.append(b"between", timestamp=5)
            truth[key].append({"key": None, "value": b"between", "timestamp": 5, "headers": []})
    ids = {(topic, seglog.PartitionLog.open(data_dir / f"{topic}-{number}").topic_id)
           for topic in {key.topic for key in truth} for number in range(3)}
    assert len(ids) == len({key.topic for key in truth})


@pytest.mark.parametrize("name", [LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT])
def test_a_removed_log_leaves_nothing_to_a_new_one(tmp_path: Path, name: str) -> None:
    """Its lines would hide the first records of the new log, or count them as compacted."""
    rng, old, other = random.Random(1), TopicPartition("a", 0), TopicPartition("b", 0)
    for key in (old, other):
        written = Written(tmp_path, partitions=1)
        written.task({key: make_rows(rng, 30)})
        written.publish()
    (tmp_path / name).write_bytes(encode_checkpoint(offset_lines({old: 20, other: 10})))
    shutil.rmtree(tmp_path / "a-0")
    written = Written(tmp_path, partitions=1)
    written.task({key: make_rows(rng, 10) for key in (old, other)})
    assert written.publish() == {old: (0, 10), other: (30, 40)}
    assert read_offset_checkpoint(tmp_path / name) == {other: 10}
    with seglog.open_data_dir(tmp_path) as opened:
        rows = reading.read_rows(opened.logs[old])
    assert [row["value"] for row in rows] == [row["value"] for row in written.rows[old]]


def test_topics_whose_long_names_begin_alike(tmp_path: Path) -> None:
    """The name of a directory that is not yet published has room for 200 characters of them."""
    rng = random.Random(1)
    written = Written(tmp_path, partitions=1)
    written.task({TopicPartition("x" * 240 + name, 0): make_rows(rng, 5) for name in "abc"})
    written.publish()
    assert contents(tmp_path) == written.rows and left_over(tmp_path) == []
    check_sound(tmp_path)


def test_many_small_jobs_share_a_segment(tmp_path: Path) -> None:
    """Small micro-batches of a stream do not each make a segment."""
    rng, key = random.Random(1), TopicPartition("a", 0)
    for _ in range(12):
        written = Written(tmp_path, partitions=1)
        for _ in range(3):
            written.task({key: make_rows(rng, 30)})
        written.publish()
    assert [path.name for path in (tmp_path / "a-0").glob("*.log")] == [f"{0:020d}.log"]
    assert [path.stem for path in (tmp_path / "a-0").glob("*.snapshot")] == [f"{1080:020d}"]
    check_sound(tmp_path)


def test_an_index_with_too_many_entries_gets_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                  ) -> None:
    """The commit failed: of 1 GiB in small batches, with index.interval.bytes=0."""
    monkeypatch.setattr("seglog.fragments.prepare._INDEX_BYTES", 240)
    written = Written(tmp_path, batch_bytes=100)
    written.task({TopicPartition("a", 0): make_rows(random.Random(1), 700)})
    publish(written.job, written.fragments, written.counts, new_partitions=3,
            segment_bytes=1 << 30, index_interval_bytes=0)
    index = (tmp_path / "a-0" / f"{0:020d}.index").stat().st_size
    assert 40 < index <= 240 and contents(tmp_path) == add({}, written.rows)
    check_sound(tmp_path)


def test_a_reader_of_the_replaced_segment_reads_on(tmp_path: Path) -> None:
    rng, key = random.Random(2), TopicPartition("a", 0)
    first = Written(tmp_path, partitions=1)
    first.task({key: make_rows(rng, 300)})
    first.publish()
    log = seglog.PartitionLog.open(tmp_path / "a-0")
    batches = iter(log.to_arrow(batch_rows=10))
    rows = reading.rows_of(next(batches))
    second = Written(tmp_path, partitions=1)
    second.task({key: make_rows(rng, 300)})
    second.publish()
    rows += reading.collect(batches)
    assert [row["offset"] for row in rows] == list(range(300))
    log.refresh()
    assert len(reading.read_rows(log)) == 600


def test_a_micro_batch_is_committed_once(tmp_path: Path) -> None:
    rng, key = random.Random(3), TopicPartition("a", 0)
    truth = Truth()
    for query, batch, counts in [("q", 0, True), ("q", 0, False), ("q", 1, True), ("r", 0, True),
                                 ("q", 0, False), ("q", 1, False), ("r", 5, True),
                                 ("r", 4, False), ("q", 2, True)]:
        written = Written(tmp_path)
        written.task({key: make_rows(rng, 5)})
        offsets = written.publish(StreamBatch(query, batch))
        assert bool(offsets) == counts
        if counts:
            truth = add(truth, written.rows)
        assert contents(tmp_path) == truth and left_over(tmp_path) == []
    (tmp_path / ".seglog-streams").write_text("{")
    written = Written(tmp_path)
    written.task({key: make_rows(rng, 5)})
    with pytest.raises(KafkaStorageError, match="committed micro-batches cannot be read"):
        written.publish(StreamBatch("q", 9))


# ---- refusals -----------------------------------------------------------------------------------

@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A data directory with a log."""
    written = Written(tmp_path / "data")
    written.task({TopicPartition("a", 0): make_rows(random.Random(4), 5)})
    written.publish()
    return tmp_path / "data"


HOLD = """
import sys
import seglog
with seglog.open(sys.argv[1]) as log:
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_directory_in_use_is_refused_and_its_user_named(target: Path) -> None:
    written = Written(target)
    written.task({TopicPartition("a", 0): make_rows(random.Random(4), 5)})
    before = contents(target)
    with subprocess.Popen([sys.executable, "-c", HOLD, str(target / "a-1")],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"open\n"
        with pytest.raises(LogDirLockedError, match=rf"process {holder.pid}\b"):
            written.publish()
        with pytest.raises(LogDirLockedError, match=rf"process {holder.pid}\b"):
            check_target(str(target))
        holder.communicate()
    assert contents(target) == before
    assert written.publish() == {TopicPartition("a", 0): (5, 10)}


def test_an_unclean_directory_is_refused_with_what_to_run(target: Path) -> None:
    written = Written(target)
    written.task({TopicPartition("a", 0): make_rows(random.Random(4), 5)})
    marker = (target / CLEAN_SHUTDOWN_FILE)
    assert marker.read_bytes() == MARKER
    marker.unlink()
    for act in (written.publish, lambda: check_target(str(target))):
        with pytest.raises(KafkaStorageError, match=f"run `seglog load --recover {target}` first"):
            act()
    subprocess.run([sys.executable, "-m", "seglog", "load", "--recover", str(target)], check=True,
                   capture_output=True)
    assert written.publish() == {TopicPartition("a", 0): (5, 10)}


def test_the_broker_epoch_of_the_last_shutdown_stays(target: Path) -> None:
    marker = b'{"version":0,"brokerEpoch":42}'
    (target / CLEAN_SHUTDOWN_FILE).write_bytes(marker)
    written = Written(target)
    written.task({TopicPartition("a", 0): make_rows(random.Random(4), 5)})
    written.publish()
    assert (target / CLEAN_SHUTDOWN_FILE).read_bytes() == marker


@pytest.mark.parametrize("make", [
    lambda path: path.write_text("text"),
    lambda path: (path.mkdir(), (path / "photo.jpg").touch()),
    lambda path: (path.mkdir(), (path / f"{0:020d}.log").touch()),
], ids=["file", "photos", "partition"])
def test_a_target_that_is_something_else(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "there"
    make(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KafkaStorageError) as told:
        check_target(str(path))
    assert str(path) in str(told.value) and "\n" not in str(told.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_topics_and_their_partitions(tmp_path: Path) -> None:
    for name in ("a-0", "a-2", "a-0.x-delete", "b-0", "b-1", "a-b-0"):
        (tmp_path / name).mkdir()
    assert partition_count(str(tmp_path), "b", 9) == 2
    assert partition_count(str(tmp_path), "c", 9) == 9
    assert partition_count(str(tmp_path), "c", None) == 1
    assert partition_count(str(tmp_path), "a", 5) == 5
    for count in (None, 2):
        with pytest.raises(IllegalArgumentError, match=r"some partitions of topic a \(2, up to 2"):
            partition_count(str(tmp_path), "a", count)
    with pytest.raises(InvalidTopicError):
        partition_count(str(tmp_path), "../a", 1)
    with pytest.raises(IllegalArgumentError):
        partition_count(str(tmp_path), "__cluster_metadata", 1)


def test_a_topic_that_another_job_made_meanwhile(tmp_path: Path) -> None:
    key = TopicPartition("a", 0)
    first, second = Written(tmp_path, partitions=2), Written(tmp_path, partitions=3)
    for each in (first, second):
        each.task({key: make_rows(random.Random(5), 5)})
    first.publish()
    with pytest.raises(IllegalStateError, match="another job created topic a with 2 partitions"):
        second.publish()
    second.job.end()
    assert contents(tmp_path) == add({}, first.rows, 2) and left_over(tmp_path) == []


def test_a_record_that_is_too_large_leaves_nothing(tmp_path: Path) -> None:
    job = Job.begin(check_target(str(tmp_path)), os.getpid())
    with pytest.raises(RecordTooLargeError, match="exceeds the maximum configured value of 1000"), \
            FragmentWriter(job, "1", codec="none", max_batch_bytes=500, segment_bytes=1 << 20,
                           max_message_bytes=1000) as writer:
        writer.append(TopicPartition("a", 0), pa.table({"value": [b"small"]}))
        writer.append(TopicPartition("a", 0), pa.table({"value": [b"x" * 2000]}))
    assert left_over(tmp_path) == [job.name("job")]


def refuse_before_commit(target: Path, key: TopicPartition, message: str) -> None:
    """The renames could not be made, after a journal that stops every writer and every broker."""
    written = Written(target)
    written.task({key: make_rows(random.Random(4), 5)})
    with pytest.raises(KafkaStorageError, match=message) as told:
        written.publish()
    assert told.value.file == str(target / str(key))
    written.job.end()
    assert left_over(target) == []


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("not mounted")],
                         ids=["file", "link"])
def test_a_name_that_is_taken_is_refused_before_the_commit(
        target: Path, make: Callable[[Path], object]) -> None:
    make(target / "b-0")
    refuse_before_commit(target, TopicPartition("b", 0), "a link to nothing, has the name of this")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_directory_of_another_user_is_refused_before_the_commit(target: Path) -> None:
    """Who may write to the data directory may not write to its partitions, which a broker made."""
    target.chmod(0o777)
    with without_rights(target):
        refuse_before_commit(target, TopicPartition("a", 0), "this user may not put new files in")


@pytest.mark.parametrize("small_bytes", [32 << 20, 100])
@pytest.mark.parametrize("damage", [lambda log: log[:-7], lambda log: log + bytes(90),
                                    lambda log: log[:-3] + b"!" + log[-2:]])
def test_nothing_is_added_after_damage(target: Path, monkeypatch: pytest.MonkeyPatch,
                                       damage: Callable[[bytes], bytes], small_bytes: int) -> None:
    """New records got the offsets of the damaged ones, and a recovery truncated both."""
    monkeypatch.setattr("seglog.fragments.prepare.SMALL_BYTES", small_bytes)
    path = target / "a-0" / f"{0:020d}.log"
    path.write_bytes(damage(path.read_bytes()))
    refuse_before_commit(target, TopicPartition("a", 0), "is no sound batch, .* delete .kafka_cle")
    (target / CLEAN_SHUTDOWN_FILE).unlink()
    assert main(["load", "--recover", str(target)]) in (0, 1)
    written = Written(target)
    written.task({TopicPartition("a", 0): make_rows(random.Random(4), 5)})
    assert written.publish() and check_sound(target) is None


# ---- jobs that died -----------------------------------------------------------------------------

def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


def test_leftovers_of_dead_jobs_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    living, dead, aborted, foreign = (Written(tmp_path) for _ in range(4))
    for each in (living, dead, aborted, foreign):
        each.task({TopicPartition("a", 0): make_rows(random.Random(6), 5)})
    told = members(Path(dead.job.path("job")))
    Path(dead.job.path("job")).write_text(json.dumps({**told, "pid": dead_pid()}))
    Path(foreign.job.path("job")).write_text(json.dumps({**told, "machine": "elsewhere"}))
    Path(aborted.job.path("job")).unlink()
    (tmp_path / f"a-0.{dead.job.id}-delete").mkdir()
    check_target(str(tmp_path))
    assert left_over(tmp_path) == sorted(
        name for each in (living, foreign)
        for name in (each.job.name("job"), *(one.name for one in each.fragments)))
    # A reused pid is no sign of life.
    Path(living.job.path("job")).write_text(json.dumps({**told, "started": "1"}))
    os.utime(foreign.job.path("job"), (0, 0))
    check_target(str(tmp_path))
    assert left_over(tmp_path) == []


def test_a_task_that_ends_after_its_job_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    written = Written(tmp_path)
    written.task({TopicPartition("a", 0): make_rows(random.Random(7), 5)})
    written.publish()
    with pytest.raises(KafkaStorageError, match="before this task ended"):
        written.task({TopicPartition("a", 0): make_rows(random.Random(7), 5)})
    with pytest.raises(IllegalStateError, match="already"):
        written.publish()
    assert left_over(tmp_path) == []


def test_an_abort_during_the_commit_leaves_all_or_nothing(
        target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark aborts a query that is stopped while another process commits it. A commit without the
    files that the abort had deleted could never be finished, and stopped every writer."""
    key, outcomes = TopicPartition("a", 0), []
    for step in itertools.count(1):
        written = Written(target)
        written.task({key: make_rows(random.Random(7), 5)})
        before = contents(target)
        left = itertools.count(step, -1)

        def end_at_last(call: Callable[..., object], left: Iterator[int], job: Job,
                        *args: object, **options: object) -> object:
            if next(left) == 1:
                job.end()
            return call(*args, **options)

        with monkeypatch.context() as patch:
            for name in ("open", "rename", "fsync", "mkdir"):
                patch.setattr(os, name, partial(end_at_last, getattr(os, name), left, written.job))
            try:
                written.publish()
                outcomes.append("after")
            except (IllegalStateError, KafkaStorageError) as error:
                assert "are committed" not in str(error), step
                outcomes.append("before")
        written.job.end()
        check_target(str(target))
        after = add(before, written.rows)
        assert contents(target) == (after if outcomes[-1] == "after" else before), step
        assert left_over(target) == []
        if next(left) > 0:
            break
    assert outcomes == sorted(outcomes, reverse=True) and "before" in outcomes


# ---- a full disk --------------------------------------------------------------------------------

@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    path = tmp_path / "tiny"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(path)],
                          capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.parametrize("spare", range(0, 200_000, 20_000))
def test_a_full_disk_leaves_all_or_nothing(tiny: Path, spare: int) -> None:
    """For any free space, from too little for a fragment to enough for the commit."""
    data_dir, key = tiny / "data", TopicPartition("a", 0)
    first = Written(data_dir)
    first.task({key: make_rows(random.Random(8), 300)})
    first.publish()
    before = contents(data_dir)
    room = os.statvfs(tiny)
    (tiny / "filler").write_bytes(bytes(max(0, room.f_bavail * room.f_bsize - spare)))
    written = None
    try:
        written = Written(data_dir)
        written.task({TopicPartition("b", number): make_rows(random.Random(9), 200)
                      for number in range(3)})
        written.task({key: make_rows(random.Random(9), 200)})
        written.publish()
    except OSError as error:
        assert "No space left on device" in str(error) and str(data_dir) in str(error)
        if written is not None:
            written.job.end()
        assert contents(data_dir) == before
    else:
        assert contents(data_dir) == add(before, written.rows)
    assert left_over(data_dir) == []
    (tiny / "filler").unlink()
    check_sound(data_dir)


def test_a_refused_call_leaves_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                              ) -> None:
    """At each call that the file system may refuse. What is not committed leaves no file that a
    broker would not start with."""
    key = TopicPartition("a", 0)
    for step in itertools.count(1):
        data_dir = tmp_path / str(step)
        first = Written(data_dir)
        first.task({key: make_rows(random.Random(8), 9)})
        first.publish()
        before = contents(data_dir)
        written = Written(data_dir)
        written.task({key: make_rows(random.Random(9), 9)})
        left = itertools.count(step, -1)
        with monkeypatch.context() as patch:
            for name in ("rename", "fsync", "mkdir", "unlink", "rmdir"):
                patch.setattr(os, name, partial(_refused_at_last, getattr(os, name), left))
            try:
                written.publish()
            except OSError as error:
                if "the records are committed" not in str(error):
                    written.job.end()
                    assert (contents(data_dir), left_over(data_dir)) == (before, []), step
                    continue
        if next(left) > 0:
            break
        with exclusive(str(data_dir)):
            assert contents(data_dir) == add(before, written.rows), step
    assert step > 20


def _refused_at_last(call: Callable[..., object], left: Iterator[int], *args: object,
                     **options: object) -> object:
    if next(left) == 1:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return call(*args, **options)
