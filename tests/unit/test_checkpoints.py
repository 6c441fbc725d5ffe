"""Offset checkpoints: every outcome of Kafka's reader (CheckpointFile; tests/kafka asks Kafka)."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import KafkaStorageError, MalformedCheckpointError
from seglog.model import TopicPartition
from seglog.storage import checkpoint_files, paths
from seglog.storage.textfile import replace_file

read = checkpoint_files.read_offset_checkpoint


@pytest.mark.parametrize(("content", "offsets"), [
    (b"", {}), (b"0", {}), (b"0\n", {}), (b"0\n0\n", {}), (b"+0\n0", {}),
    (b"0\n2\nfoo 0 17\nbar-baz 3 0\n", {("foo", 0): 17, ("bar-baz", 3): 0}),
    (b"0\n1\na 0 1", {("a", 0): 1}),
    (b"0\n1\na 0 1  \n", {("a", 0): 1}),
    (b"0\n1\na\t0\x0b1\n", {("a", 0): 1}),
    (b"0\r\n1\r\na 0 1\r\n", {("a", 0): 1}),
    (b"0\r1\ra 0 1\r", {("a", 0): 1}),
    (b"0\n1\na -1 -5\n", {("a", -1): -5}),
    (b"0\n+1\na +1 +5\n", {("a", 1): 5}),
    ("0\n1\na \u0664 \u0665\n".encode(), {("a", 4): 5}),
    ("0\n1\ncaf\u00e9 0 1\n".encode(), {("caf\u00e9", 0): 1}),
    (b"0\n2\na 0 1\na 0 2\n", {("a", 0): 2}),
])
def test_accepted(tmp_path: Path, content: bytes, offsets: dict[tuple[str, int], int]) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    assert read(path) == {TopicPartition(*key): value for key, value in offsets.items()}


@pytest.mark.parametrize(("content", "code", "message", "position"), [
    (b"0 \n", "checkpoint_line", "Malformed line in checkpoint file [{path}]: 0 ", 0),
    (b"x\n", "checkpoint_line", "Malformed line in checkpoint file [{path}]: x", 0),
    (b"\n0\n1\n", "checkpoint_line", "Malformed line in checkpoint file [{path}]: ", 0),
    (b"9" * 20, "checkpoint_line", "Malformed line in checkpoint file [{path}]: " + "9" * 20, 0),
    (b"1\n0\n", "checkpoint_version",
     "Unrecognised version:1, expected version: 0 in checkpoint file at: {path}", 0),
    (b"0\nx", "checkpoint_line", "Malformed line in checkpoint file [{path}]: x", 2),
    (b"0\n3000000000\n", "checkpoint_line",
     "Malformed line in checkpoint file [{path}]: 3000000000", 2),
    (b"0\n-1\n", "checkpoint_capacity", "Illegal Capacity: -1", 2),
    (b"0\n1\n", "checkpoint_count",
     "Expected [1] entries in checkpoint file [{path}], but found only [0]", 2),
    (b"0\n1\na 0 1\nb 0 1\n", "checkpoint_count",
     "Expected [1] entries in checkpoint file [{path}], but found only [2]", 2),
    (b"0\n10\na 0 1\n", "checkpoint_count",
     "Expected [10] entries in checkpoint file [{path}], but found only [1]", 2),
    (b"0\n1\n a 0 1\n", "checkpoint_line", "Malformed line in checkpoint file [{path}]:  a 0 1", 4),
    (b"0\n1\na 0\n", "checkpoint_line", "Malformed line in checkpoint file [{path}]: a 0", 4),
    (b"0\n1\na 0 1 2\n", "checkpoint_line",
     "Malformed line in checkpoint file [{path}]: a 0 1 2", 4),
    (b"0\n1\na 0 1\n\n", "checkpoint_line", "Malformed line in checkpoint file [{path}]: ", 10),
    ("0\n1\na\u00a00\u00a01\n".encode(), "checkpoint_line",
     "Malformed line in checkpoint file [{path}]: a\u00a00\u00a01", 4),
    (b"0\n1\na b 1\n", "checkpoint_number", 'For input string: "b"', 4),
    (b"0\n2\na 0 1\na 0 x\n", "checkpoint_number", 'For input string: "x"', 10),
    (b"0\n1\na 99999999999 1\n", "checkpoint_number", 'For input string: "99999999999"', 4),
    (b"0\n1\n\xff 0 1\n", "checkpoint_encoding", "{path}: byte 4 is not UTF-8", 4),
])
def test_refused(tmp_path: Path, content: bytes, code: str, message: str, position: int) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(MalformedCheckpointError) as caught:
        read(path)
    error = caught.value
    assert str(error) == message.format(path=path)
    assert (error.code, error.position, error.file) == (code, position, str(path))
    known = {"checkpoint_encoding": ("UTF-8", "ff"), "checkpoint_capacity": (0, -1),
             "checkpoint_version": (0, 1)}
    assert code not in known or (error.expected, error.found) == known[code]


def test_missing_and_no_file(tmp_path: Path) -> None:
    assert read(tmp_path / "missing") == {}
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("fifo", "link", "."):
        with pytest.raises(KafkaStorageError):
            read(tmp_path / name)


def test_an_announced_count_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n2147483647\na 0 1\n")
    tracemalloc.start()
    try:
        with pytest.raises(MalformedCheckpointError, match="found only"):
            read(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_size_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    with open(path, "wb") as stream:
        stream.truncate(checkpoint_files.CHECKPOINT_BYTES_MAX + 1)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedCheckpointError) as caught:
            read(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "checkpoint_too_large"
    assert peak < checkpoint_files.CHECKPOINT_BYTES_MAX + (1 << 20)


@given(st.dictionaries(
    st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 2**31 - 1)),
    st.integers(0, 2**63 - 1), max_size=20))
def test_written_is_read(tmp_path_factory: pytest.TempPathFactory,
                         entries: dict[tuple[str, int], int]) -> None:
    path = tmp_path_factory.mktemp("checkpoint") / paths.RECOVERY_POINT_CHECKPOINT
    offsets = {TopicPartition(*key): value for key, value in entries.items()}
    checkpoint_files.write_offset_checkpoint(path, {TopicPartition("old", 1): 2})
    checkpoint_files.write_offset_checkpoint(path, offsets)
    assert read(path) == offsets
    assert os.listdir(path.parent) == [path.name]


def test_written_bytes_are_kafkas(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint_files.write_offset_checkpoint(path, {TopicPartition("foo", 0): 17,
                                               TopicPartition("bar-baz", 3): 0})
    assert path.read_bytes() == b"0\n2\nfoo 0 17\nbar-baz 3 0\n"


def test_a_partition_that_no_line_can_hold_has_none(tmp_path: Path) -> None:
    """Kafka writes a line that makes its next start take the directory offline."""
    path = tmp_path / "checkpoint"
    names = [*(f"a{blank}b" for blank in " \t\n\v\f\r"), " a", "a ", os.fsdecode(b"a\xff")]
    kept = {TopicPartition(name, 0): 2 for name in ("a", "caf\u00e9", "a\u00a0b", "a\x1cb", "\x85")}
    checkpoint_files.write_offset_checkpoint(
        path, {TopicPartition(name, 0): 1 for name in names} | kept)
    assert read(path) == kept


def test_a_refused_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint_files.write_offset_checkpoint(path, {TopicPartition("a", 0): 1})
    (tmp_path / "checkpoint.tmp").mkdir()
    with pytest.raises(KafkaStorageError, match="Error while writing to checkpoint file") as caught:
        checkpoint_files.write_offset_checkpoint(path, {})
    assert caught.value.errno is not None
    assert read(path) == {TopicPartition("a", 0): 1}


@given(st.binary(max_size=60) | st.lists(
    st.sampled_from([b"0", b"1", b"2", b"a", b" ", b"\n", b"\r", b"\t", b"-", b"\xc3\xa9"]),
    max_size=20).map(b"".join))
def test_noise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "noise"
    path.write_bytes(content)
    try:
        read(path)
    except MalformedCheckpointError as error:
        assert error.code.startswith("checkpoint_")


def test_golden(golden: Path) -> None:
    offsets = read(golden / "real/clean" / paths.RECOVERY_POINT_CHECKPOINT)
    assert len(offsets) > 15 and TopicPartition("dots.and_under-scores", 2) in offsets
    assert read(golden / "real/clean" / paths.LOG_START_OFFSET_CHECKPOINT)


def test_a_leading_blank_makes_an_empty_first_field() -> None:
    """As Java's split does."""
    for blank in (" ", "\t", "  "):
        assert checkpoint_files.read_checkpoint("f", list, 3, f"0\n1\n{blank}a b \n".encode()) == [
            [b"", b"a", b"b"]]


def test_a_checkpoint_is_durable_before_it_takes_its_name(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CheckpointFileWriteBuffer, Utils.atomicMoveWithFallback: else a crash leaves an empty one."""
    steps: list[tuple[object, ...]] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        steps.append(("sync", path.name, path.read_bytes() if path.is_file() else None))
        fsync(descriptor)

    def renamed(source: str | Path, target: str | Path) -> None:
        steps.append(("rename", Path(source).name, Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    replace_file(tmp_path / "checkpoint", b"0\n0\n", tmp_path / "checkpoint.tmp")
    assert steps == [("sync", "checkpoint.tmp", b"0\n0\n"),
                     ("rename", "checkpoint.tmp", "checkpoint"), ("sync", tmp_path.name, None)]
