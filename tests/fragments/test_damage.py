"""Files of jobs that a disk or another program has changed: nothing wrong is published."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest

from seglog._native.batch import BATCH_DTYPE, scan
from seglog._native.crc32c import crc32c
from seglog.arguments import shown
from seglog.errors import KafkaStorageError
from seglog.fragments import Fragment, StreamBatch, check_target, finish_commit
from seglog.fragments import journal as journal_module
from seglog.fragments.job import _Driver as Driver
from seglog.model import TopicPartition
from seglog.storage.paths import UNFINISHED_COMMIT
from tests.fragments.jobs import Truth, Written, contents, left_over, make_rows, members

KEY = TopicPartition("a", 0)
Facts = npt.NDArray[np.void]


def committed_and_pending(data_dir: Path) -> tuple[Truth, Written]:
    """The contents of a log, and an uncommitted job of a few batches more."""
    rng = random.Random(1)
    first = Written(data_dir)
    first.task({KEY: make_rows(rng, 30)})
    first.publish()
    written = Written(data_dir, batch_bytes=500)
    written.task({KEY: make_rows(rng, 40)})
    return contents(data_dir), written


# ---- fragments ----------------------------------------------------------------------------------

def refused(written: Written) -> KafkaStorageError:
    """The error of the commit, which names the fragment's file."""
    with pytest.raises(KafkaStorageError) as told:
        written.publish()
    path = str(Path(written.job.data_dir) / written.fragments[0].name)
    assert told.value.file == path and path in str(told.value)
    return told.value


@pytest.mark.parametrize("at", [0, 8, 40, 44, 48, 52, 63, 71, -8])
def test_headers_of_batches_that_changed_are_not_published(tmp_path: Path, at: int) -> None:
    before, written = committed_and_pending(tmp_path)
    fragment = written.fragments[0]
    path = tmp_path / fragment.name
    content = bytearray(path.read_bytes())
    content[fragment.size + at if at >= 0 else at] ^= 4
    path.write_bytes(content)
    error = refused(written)
    assert (error.position, error.expected) == (fragment.size, fragment.facts_crc)
    assert error.found == crc32c(content[fragment.size:])
    assert f"from byte {fragment.size} on" in str(error) and f"{error.found:#010x}" in str(error)
    assert contents(tmp_path) == before


def test_a_fragment_of_another_size_is_not_published(tmp_path: Path) -> None:
    before, written = committed_and_pending(tmp_path)
    path = tmp_path / written.fragments[0].name
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    error = refused(written)
    assert (error.expected, error.found) == (size, size - 1)
    assert contents(tmp_path) == before


def _far(facts: Facts) -> None:
    facts["position"][-1] = 1 << 40


def _negative(facts: Facts) -> None:
    facts["position"][0] = -1


def _twice(facts: Facts) -> None:
    facts[1] = facts[0]


def _gap(facts: Facts) -> None:
    facts["base_offset"][2] += 1


def _backwards(facts: Facts) -> None:
    facts["last_offset"][0] = -1


def _short(facts: Facts) -> None:
    facts["size"][-1] -= 1


def _records(facts: Facts) -> None:
    facts["last_offset"][-1] += 1


@pytest.mark.parametrize("change", [_far, _negative, _twice, _gap, _backwards, _short, _records])
def test_headers_that_do_not_describe_the_fragment_are_not_published(
        tmp_path: Path, change: Callable[[Facts], None]) -> None:
    """Also under the right checksum: the commit writes at their positions."""
    before, written = committed_and_pending(tmp_path)
    fragment = written.fragments[0]
    path = tmp_path / fragment.name
    content = path.read_bytes()
    facts = np.frombuffer(content[fragment.size:], BATCH_DTYPE).copy()
    assert len(facts) > 3
    change(facts)
    path.write_bytes(content[:fragment.size] + facts.tobytes())
    written.fragments = [dataclasses.replace(fragment, facts_crc=crc32c(facts.tobytes()))]
    assert refused(written).position is not None
    assert path.stat().st_size == len(content) and contents(tmp_path) == before


def test_a_fragment_without_batches_is_not_published(tmp_path: Path) -> None:
    before, written = committed_and_pending(tmp_path)
    name = written.fragments[0].name
    (tmp_path / name).write_bytes(b"")
    written.fragments = [Fragment(KEY, name, 0, 0, 0, 0)]
    refused(written)
    assert contents(tmp_path) == before


def test_a_batch_of_the_log_that_no_index_takes_is_reported_with_the_log_s_file(tmp_path: Path
                                                                                ) -> None:
    _, written = committed_and_pending(tmp_path)
    path = tmp_path / "a-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    last = int(scan(content).batches["position"][-1])
    content[last:last + 8] = (1 << 33).to_bytes(8, "big")
    path.write_bytes(content)
    with pytest.raises(KafkaStorageError, match=f"{path}: batches that no index takes"):
        written.publish()
    assert path.read_bytes() == content


# ---- the journal --------------------------------------------------------------------------------

UNREADABLE = "this commit journal cannot be read"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The journal of a commit whose process died before the first rename."""
    data_dir = tmp_path / "data"
    rng = random.Random(3)
    first = Written(data_dir, partitions=2)
    first.task({KEY: make_rows(rng, 30)})
    first.publish()
    written = Written(data_dir, partitions=2)
    written.task({KEY: make_rows(rng, 40), TopicPartition("b", 1): make_rows(rng, 9)})
    with monkeypatch.context() as patch:
        patch.setattr("seglog.fragments.journal._finish", _die)
        with pytest.raises(KafkaStorageError, match="committed, but not all of them are in place"):
            written.publish()
    yield data_dir / UNFINISHED_COMMIT / "journal"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def _die(*_: object) -> NoReturn:
    raise OSError(errno.EIO, "died")


def finish(journal: Path) -> Truth:
    """The contents after the commit was finished."""
    check_target(str(journal.parent.parent))
    assert not journal.parent.exists()
    return contents(journal.parent.parent)


def refuse(journal: Path, match: str = UNREADABLE) -> KafkaStorageError:
    """The error of the next job, which leaves the journal and every other file as they are."""
    before = files(journal.parent.parent)
    with pytest.raises(KafkaStorageError, match=match) as told:
        check_target(str(journal.parent.parent))
    assert str(journal) in str(told.value) and "\n" not in str(told.value)
    assert files(journal.parent.parent) == before
    return told.value


def files(data_dir: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in data_dir.rglob("*")
            if path.is_file() and path.name != ".lock"}


def test_a_commit_is_finished_from_its_journal(journal: Path) -> None:
    found = finish(journal)
    assert [len(found[key]) for key in sorted(found)] == [70, 0, 0, 9]


def with_changed_bytes(path: Path, masks: tuple[int, ...]) -> Iterator[None]:
    """Changes a byte of the file by a mask, one after the other, and at last none."""
    content = path.read_bytes()
    assert content
    for at in range(len(content)):
        for mask in masks:
            path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1:])
            yield
    path.write_bytes(content)


def test_any_changed_byte_of_a_journal_is_noticed(journal: Path) -> None:
    for _ in with_changed_bytes(journal, (1, 4, 32)):
        with pytest.raises(KafkaStorageError, match=UNREADABLE):
            finish_commit(str(journal.parent.parent))
    assert len(finish(journal)[KEY]) == 70


def test_the_error_of_a_changed_journal_holds_both_checksums(journal: Path) -> None:
    value = json.loads(journal.read_bytes())
    told = value.pop("crc32c")
    assert told == crc32c(json.dumps(value).encode())
    del value["moves"][0]
    journal.write_text(json.dumps({**value, "crc32c": told}))
    error = refuse(journal)
    assert (error.file, error.position, error.expected) == (str(journal), 0, told)
    assert error.found == crc32c(json.dumps(value).encode())
    assert str(error.found) in str(error)


def test_a_journal_of_an_earlier_release_is_finished(journal: Path) -> None:
    """It had no checksum."""
    value = json.loads(journal.read_bytes())
    value.pop("crc32c", None)
    journal.write_text(json.dumps(value))
    assert len(finish(journal)[KEY]) == 70


@pytest.mark.parametrize("move", [
    ["{prepared}", "../out"], ["{prepared}", "{tmp}/out"], ["../data/{prepared}", "a-0/x"],
    ["{data}/{prepared}", "a-0/x"], ["{prepared}", "a-0/../../out"], ["{prepared}", "."],
    ["{prepared}", ""], ["", None], ["..", None], ["a-0/.", "b-0"], ["{prepared}", "a-0//x"],
    ["{prepared}", "a-0/b/c"], ["{prepared}", "a\0"], ["a\0", None], ["{prepared}", "\ud800"],
    ["{prepared}"], ["{prepared}", "b", "c"], ["{prepared}", 1], [None, "a"], "ab", 7, {},
], ids=repr)
def test_a_journal_does_not_reach_outside_of_its_directory(journal: Path, move: object) -> None:
    """Nor does it pass on what no file system takes: nothing is renamed at all."""
    data = journal.parent.parent
    value = json.loads(journal.read_bytes())
    value.pop("crc32c", None)
    if isinstance(move, list):
        move = [one.format(prepared=value["moves"][-1][0], data=data, tmp=data.parent)
                if isinstance(one, str) else one for one in move]
    value["moves"][-1] = move
    journal.write_text(json.dumps(value))
    assert refuse(journal).found == move


@pytest.mark.parametrize("content", [
    b"[" * 100_000, b'{"version": 1, "moves": ' + b"[" * 100_000, b"[]", b"null", b"\xff",
    b'{"version": 1}', b'{"version": 1, "moves": {}}', b'{"version": true, "moves": []}',
    b'{"version": 2, "moves": []}', b'{"version": 1, "moves": [], "crc32b": 1}',
    b'{"version": 1, "moves": [], "crc32c": null}', b'{"version": 1, "moves": [], "crc32c": 1}',
    b'{"version": 1' + b"0" * 5000 + b', "moves": []}', b'{"version": 1e999, "moves": []}',
], ids=lambda one: one[:40].decode(errors="replace"))
def test_a_journal_of_any_other_shape_is_refused(journal: Path, content: bytes) -> None:
    journal.write_bytes(content)
    refuse(journal)


def test_a_journal_that_is_too_large_is_not_read(journal: Path) -> None:
    with open(journal, "r+b") as stream:
        stream.truncate((1 << 30) + 1)
    data_dir = str(journal.parent.parent)
    with pytest.raises(KafkaStorageError, match=UNREADABLE) as told:
        finish_commit(data_dir)
    assert (told.value.expected, told.value.found) == (1 << 30, (1 << 30) + 1)


def test_a_move_whose_file_is_lost_is_reported(journal: Path) -> None:
    """It was taken for a move that was made before the crash."""
    moves = json.loads(journal.read_bytes())["moves"]
    [source] = [source for source, target in moves if target == "b-1"]
    (journal.parent.parent / source).rename(journal.parent.parent / "elsewhere")
    with pytest.raises(KafkaStorageError, match="b-1 does not exist, and") as told:
        check_target(str(journal.parent.parent))
    assert str(journal) in str(told.value) and journal.exists()
    (journal.parent.parent / "elsewhere").rename(journal.parent.parent / source)
    assert len(finish(journal)[KEY]) == 70


def test_a_commit_that_cannot_be_looked_up_is_not_taken_for_none(journal: Path) -> None:
    """Its files would be deleted with those of dead jobs."""
    content = journal.read_bytes()
    journal.unlink()
    journal.parent.rmdir()
    journal.parent.symlink_to(journal.parent)
    with pytest.raises(KafkaStorageError, match="cannot finish the commit"):
        check_target(str(journal.parent.parent))
    journal.parent.unlink()
    journal.parent.mkdir()
    journal.write_bytes(content)
    assert len(finish(journal)[KEY]) == 70


def test_a_journal_that_would_be_too_large_is_not_written(tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    before, written = committed_and_pending(tmp_path)
    monkeypatch.setattr("seglog.fragments.journal._CONTENT",
                        dataclasses.replace(journal_module._CONTENT, bytes_max=100))
    with pytest.raises(KafkaStorageError, match="this commit journal would have .* bytes") as told:
        written.publish()
    assert told.value.errno == errno.EFBIG and not (tmp_path / UNFINISHED_COMMIT).exists()
    written.job.end()
    assert contents(tmp_path) == before and left_over(tmp_path) == []


# ---- the record of micro-batches ----------------------------------------------------------------

@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Path]:
    """The record of a directory with batch 7 of query q, which must not be committed again."""
    first = Written(tmp_path)
    first.task({KEY: make_rows(random.Random(1), 30)})
    first.publish(StreamBatch("q", 7))
    before = contents(tmp_path)
    yield tmp_path / ".seglog-streams"
    assert contents(tmp_path) == before


def repeat(streams: Path) -> dict[TopicPartition, tuple[int, int]]:
    """Commits the batch again."""
    again = Written(streams.parent)
    again.task({KEY: make_rows(random.Random(1), 30)})
    try:
        return again.publish(StreamBatch("q", 7))
    finally:
        again.job.end()


def test_any_changed_byte_of_a_record_of_micro_batches_is_noticed(streams: Path) -> None:
    for _ in with_changed_bytes(streams, (1, 2, 4)):
        with pytest.raises(KafkaStorageError, match="micro-batches cannot be read .*; restore "
                           "it, or delete it if no streaming query will") as told:
            repeat(streams)
        assert str(streams) in str(told.value) and told.value.file == str(streams)
    assert repeat(streams) == {}


def test_a_record_of_micro_batches_of_an_earlier_release_is_read(streams: Path) -> None:
    """It had no checksum; the next commit writes one."""
    streams.write_text('{"version": 0, "streams": {"q": 7, "r": 0}}')
    assert repeat(streams) == {}


@pytest.mark.parametrize("content", [
    b"", b"{}", b"[]", b'{"streams": {}}', b'{"version": 0}', b'{"version": 0, "streams": []}',
    b'{"version": 1, "streams": {"q": 7}}', b'{"version": 0, "streams": {"q": -1}}',
    b'{"version": 0, "streams": {"q": 6.5}}', b'{"version": 0, "streams": {"q": "6"}}',
    b'{"version": 0, "streams": {"q": 1e999}}', b'{"version": 0, "streams": {"q": NaN}}',
    b'{"version": 0, "streams": {"q": false}}', b'{"version": 0, "streams": {"q": null}}',
    b'{"version": 0, "streams": {"q": 9223372036854775808}}',
    b'{"version": 0, "streams": {}, "crc32b": 1}', b"[" * 100_000, bytes((16 << 20) + 1),
], ids=lambda one: one[:48].decode())
def test_a_record_of_micro_batches_of_any_other_shape_is_refused(streams: Path, content: bytes
                                                                 ) -> None:
    """It is never read as an empty one, nor as one of an earlier batch."""
    streams.write_bytes(content)
    with pytest.raises(KafkaStorageError, match=f"micro-batches cannot be read .*'{streams}'"):
        repeat(streams)
    assert streams.read_bytes() == content


# ---- the files of jobs --------------------------------------------------------------------------

def rest(data_dir: Path) -> list[str]:
    """What the next job leaves of others."""
    check_target(str(data_dir))
    return left_over(data_dir)


def of(written: Written) -> list[str]:
    """The files of a job."""
    return sorted([written.job.name("job"), *(one.name for one in written.fragments)])


def test_any_changed_byte_of_a_job_file_is_noticed(tmp_path: Path) -> None:
    """Another pid, or another start of the process, was proof of a death: the files of a living job
    were deleted."""
    _, written = committed_and_pending(tmp_path)
    path = Path(written.job.path("job"))
    for _ in with_changed_bytes(path, (1, 4, 32)):
        with pytest.raises(KafkaStorageError, match="this job file cannot be read .*; delete "
                           "it if its job is dead") as told:
            Driver.read(str(path))
        assert told.value.file == str(path)
        assert rest(tmp_path) == of(written)
    assert written.publish()


@pytest.mark.parametrize("started", [None, "1"])
def test_a_job_file_of_an_earlier_release_is_read(tmp_path: Path, started: str | None) -> None:
    """It had no checksum."""
    before, written = committed_and_pending(tmp_path)
    path = Path(written.job.path("job"))
    assert "crc32c" in json.loads(path.read_bytes())
    path.write_text(json.dumps({**members(path), **({"started": started} if started else {})}))
    assert rest(tmp_path) == ([] if started else of(written))
    assert contents(tmp_path) == before


@pytest.mark.parametrize("change", [
    {"pid": "1"}, {"pid": [1]}, {"pid": 2**63}, {"pid": 2**31}, {"pid": 0}, {"pid": -1},
    {"pid": None}, {"pid": True}, {"pid": 1.5}, {"started": 1}, {"started": None}, {"machine": 1},
    {"more": 1}, b"", b"{", b"[]", b"null", b"[" * 100_000, b"\xff", b'{"pid": 1e999}',
    bytes((1 << 16) + 1),
], ids=lambda one: repr(one)[:40])
def test_a_damaged_job_file_proves_no_death(tmp_path: Path, change: dict[str, object] | bytes
                                            ) -> None:
    """Nor does it stop other jobs. The job dies of age."""
    before, written = committed_and_pending(tmp_path)
    path = Path(written.job.path("job"))
    path.write_bytes(change if isinstance(change, bytes) else
                     json.dumps({**members(path), **change}).encode())
    assert rest(tmp_path) == of(written)
    os.utime(path, (0, 0))
    assert rest(tmp_path) == [] and contents(tmp_path) == before


@pytest.mark.parametrize("make", [
    lambda path: path.symlink_to(path), lambda path: path.mkdir(), os.mkfifo,
], ids=["loop", "directory", "fifo"])
def test_a_job_file_that_cannot_be_read_proves_no_death(tmp_path: Path,
                                                        make: Callable[[Path], object]) -> None:
    _, written = committed_and_pending(tmp_path)
    path = Path(written.job.path("job"))
    path.unlink()
    make(path)
    assert rest(tmp_path) == of(written)
    os.utime(path, (0, 0), follow_symlinks=False)
    assert rest(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.ENOENT])
@pytest.mark.parametrize("place", ["/proc/", "/proc/{pid}/", ".seglog-job"])
def test_a_failed_look_at_a_living_driver_proves_no_death(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, number: int) -> None:
    _, written = committed_and_pending(tmp_path)
    place = place.format(pid=os.getpid())
    original = open

    def opened(path: Any, *arguments: Any, **named: Any) -> Any:
        if place in str(path):
            raise OSError(number, os.strerror(number), path)
        return original(path, *arguments, **named)

    def looked_up(path: Any) -> os.stat_result:
        if place in str(path) and number != errno.ENOENT:
            raise OSError(number, os.strerror(number), path)
        return stat(path)

    stat = os.lstat
    with monkeypatch.context() as patch:
        patch.setattr("builtins.open", opened)
        patch.setattr(os, "lstat", looked_up)
        assert rest(tmp_path) == of(written)
    assert written.publish()


def test_a_job_that_ends_keeps_the_files_of_a_commit_that_cannot_be_looked_up(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, written = committed_and_pending(tmp_path)

    def looked_up(path: Any) -> os.stat_result:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", looked_up)
        written.job.end()
    assert left_over(tmp_path) == [written.fragments[0].name]
    assert rest(tmp_path) == []


def test_a_value_of_too_many_levels_is_named_by_its_type() -> None:
    """Of a list as deep as JSON is parsed, Python 3.12 cannot make a text."""
    value: list[Any] = []
    for _ in range(1_000_000):
        value = [value]
    assert shown(value) == "a list of too many levels"
