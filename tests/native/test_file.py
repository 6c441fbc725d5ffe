"""System calls as Python sees them; tests/c/test_file.c has the C side."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from seglog._native import file as native
from seglog._native.clean_load import load_clean
from seglog._native.scan import check_segments, list_partition
from seglog.errors import KafkaStorageError


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    yield opened
    os.close(opened)


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


def test_read_at(fd: int) -> None:
    os.pwrite(fd, b"0123456789", 5)
    os.pwrite(fd, memoryview(bytearray(b"ab")), 0)
    assert native.read_at(fd, 15, 0) == b"ab\0\0\0" + b"0123456789"
    assert native.read_at(fd, 0, 15) == b""
    assert native.file_size(fd) == 15
    assert os.lseek(fd, 0, os.SEEK_CUR) == 0


@pytest.mark.parametrize(("size", "position"), [
    (16, 0), (1, 15), (1, 1 << 62), (1 << 62, 1), ((1 << 63) - 1, 15), (1, -1), (0, -1), (0, 16)])
def test_read_past_the_end_is_refused_before_memory_is_taken(
        fd: int, size: int, position: int) -> None:
    os.pwrite(fd, bytes(15), 0)
    with pytest.raises(KafkaStorageError, match="were announced") as caught:
        native.read_at(fd, size, position, file="named.log")
    assert (caught.value.code, caught.value.filename) == ("file_shrank", "named.log")
    assert (caught.value.expected, caught.value.position) == (size, position)


def test_preallocate_gives_kafkas_physical_size_and_trim_the_logical_one(fd: int) -> None:
    segment_bytes = 3 << 20
    os.pwrite(fd, b"batch", 0)
    native.preallocate(fd, segment_bytes)
    assert os.fstat(fd).st_size == segment_bytes
    assert native.read_at(fd, segment_bytes, 0) == b"batch" + bytes(segment_bytes - 5)
    os.pwrite(fd, b"more", 5)
    native.preallocate(fd, 10)
    assert native.read_at(fd, 12, 0) == b"batchmore\0\0\0"
    native.trim(fd, 9)
    native.trim(fd, 9)
    assert native.read_at(fd, 9, 0) == b"batchmore"
    assert os.fstat(fd).st_size == 9
    native.start_writeback(fd, 0, 4)
    native.start_writeback(fd, -1, 1 << 62)  # nothing, and nothing to report
    native.sync(fd)
    native.sync(fd, metadata=True)
    with pytest.raises(KafkaStorageError) as caught:
        native.trim(fd, 10, file="s.log")
    assert (caught.value.code, caught.value.expected, caught.value.found) == ("file_shrank", 10, 9)


@pytest.mark.skipif(not os.path.exists("/dev/shm"), reason="needs a tmpfs, which reserves blocks")
def test_preallocation_reserves_blocks() -> None:
    path = Path(f"/dev/shm/seglog-test-{os.getpid()}")
    opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        native.preallocate(opened, 1 << 20)
        assert os.fstat(opened).st_blocks * 512 >= 1 << 20
        native.trim(opened, 0)
        assert os.fstat(opened).st_blocks == 0
    finally:
        os.close(opened)
        path.unlink()


def test_preallocation_that_fails_restores_the_length(fd: int) -> None:
    os.pwrite(fd, b"batch", 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(KafkaStorageError) as caught:
            native.preallocate(fd, 2 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert os.fstat(fd).st_size == 5


def test_sync_of_a_directory(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    native.sync(directory, metadata=True)
    os.close(directory)


def test_open_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"seven b")
    opened, size = native.open_read(tmp_path / "file")
    assert (os.read(opened, 100), size) == (b"seven b", 7)
    assert not os.get_inheritable(opened)
    os.close(opened)
    with pytest.raises(ValueError, match="null byte"):
        native.open_read("a\0b")


def test_a_path_does_not_end_at_a_null_byte(tmp_path: Path) -> None:
    """C would set the size of `file`, or list another directory."""
    (tmp_path / "file").write_bytes(b"abc")
    path = f"{tmp_path}/file\0.log"
    rows = np.zeros(1, np.int64)
    for call in (lambda: native.open_read(path), lambda: native.set_size(path, 0),
                 lambda: native.look(f"{tmp_path}\0", ["file"]),
                 lambda: list_partition(f"{tmp_path}\0"),
                 lambda: check_segments(f"{tmp_path}\0", rows, rows.astype(np.uint8)),
                 lambda: load_clean(f"{tmp_path}\0", ["t-0"], rows),
                 lambda: load_clean(tmp_path, ["t-0\0"], rows)):
        with pytest.raises(ValueError, match="null byte"):
            call()
    assert (tmp_path / "file").read_bytes() == b"abc"


def test_whatever_is_no_file_is_refused_at_once_and_leaks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "loop").symlink_to("loop")
    before = open_descriptors()
    for name in ("fifo", "link", "loop", ".", "/dev/null", "/dev/zero"):
        with pytest.raises(KafkaStorageError, match="not a regular file") as caught:
            native.open_read(tmp_path / name)
        assert caught.value.code == "file_kind"
    with pytest.raises(KafkaStorageError) as caught:
        native.open_read(tmp_path / "absent")
    assert (caught.value.code, caught.value.errno) == ("file_missing", errno.ENOENT)
    opened, _ = native.open_read(tmp_path / "link", follow_links=True)
    os.close(opened)
    assert open_descriptors() <= before


def test_set_size_changes_a_regular_file_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    native.set_size(tmp_path / "file", 3)
    assert (tmp_path / "file").read_bytes() == b"012"
    native.set_size(tmp_path / "file", 5)
    assert (tmp_path / "file").read_bytes() == b"012\0\0"
    before = open_descriptors()
    for name, number in (("link", errno.ELOOP), ("nothing", errno.ENOENT)):
        with pytest.raises(KafkaStorageError) as caught:
            native.set_size(tmp_path / name, 0)
        assert (caught.value.errno, caught.value.filename) == (number, str(tmp_path / name))
    assert (tmp_path / "file").stat().st_size == 5 and open_descriptors() <= before


def test_a_look_tells_what_is_there_and_leaves_out_what_it_cannot_tell(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"abc")
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(bytes(50_000))
    (tmp_path / "link").symlink_to("small")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    before = open_descriptors()
    names = sorted(os.listdir(tmp_path))
    assert native.look(tmp_path, [*names, "nothing"], ["none"]) == {
        "empty": (0, b""), "large": (50_000, None), "small": (3, b"abc"),
        "nothing": (None, None), "none": (None, None)}
    assert native.look(tmp_path, ["small"]) == {"small": (3, b"abc")}
    assert native.look(tmp_path, [], names) == {
        "empty": (0, None), "large": (50_000, None), "small": (3, None)}
    assert native.look(tmp_path / "nothing", names) == {}
    assert open_descriptors() <= before
    for wrong in ([], ["a"] * 9, ["a\0b"]):
        with pytest.raises(ValueError, match="names"):
            native.look(tmp_path, wrong)
