"""The same load on two disks, and on one that fails: what is said, done, kept, and left alone."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.errors import KafkaStorageError, SeglogError
from seglog.model import EpochEntry
from seglog.recovery import segment_recovery
from seglog.recovery.callbacks import NullListener
from seglog.recovery.disk import Disk, RealDisk
from seglog.recovery.findings import Finding
from seglog.recovery.inputs import LoadInputs
from seglog.recovery.loaded import error_state
from seglog.recovery.log_files import LogFiles
from seglog.recovery.open_log import load_log
from seglog.recovery.overlay import OverlayDisk
from seglog.recovery.segment_files import SegmentFiles
from tests.recovery.test_real_load import CASES, files_of, inputs_of, load
from tests.support.effort import quick_first
from tests.support.held import open_files
from tests.support.synced import syncs

CUT = "000-log_truncated"


class Ears(NullListener):
    """Remembers findings."""

    def __init__(self) -> None:
        self.found: list[Finding] = []

    def finding(self, found: Finding) -> None:
        """See LoadListener."""
        self.found.append(found)


def heard(path: Path, inputs: LoadInputs, disk: Disk) -> tuple[list[Finding], object]:
    """The findings of a load, and the state it arrives at."""
    ears = Ears()
    try:
        state: object = load_log(str(path), inputs, disk=disk, listener=ears).state()
    except SeglogError as error:
        state = error_state(error)
    return ears.found, state


@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_says_what_a_real_one_does(
        golden: Path, golden_copy: Callable[[str], Path], case: str) -> None:
    [source] = (golden / "damaged").glob(f"{case}-*")
    copy = golden_copy(f"damaged/{source.name}")
    for name, inputs in inputs_of(copy).items():
        before = files_of(copy / name)
        dry = heard(copy / name, inputs, OverlayDisk(str(copy / name)))
        assert files_of(copy / name) == before
        assert heard(copy / name, inputs, RealDisk(str(copy / name))) == dry


END = 5


def log_with(root: Path, name: str, kind: str, clean: bool) -> tuple[Path, LoadInputs]:
    """A log with something else in the place of one of its files."""
    with seglog.open(root / "t-0") as log:
        log.append_many([b"x"] * END)
    if not clean:
        (root / ".kafka_cleanshutdown").unlink()
    path = root / "t-0" / name
    path.unlink(missing_ok=True)
    {"directory": path.mkdir, "link": lambda: path.symlink_to(root / "elsewhere"),
     "fifo": lambda: os.mkfifo(path)}[kind]()
    [inputs] = inputs_of(root).values()
    return path.parent, inputs


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
@pytest.mark.parametrize("name", [
    f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", f"{0:020d}.txnindex",
    f"{END:020d}.snapshot", "leader-epoch-checkpoint"])
def test_a_dry_run_says_what_stands_in_the_place_of_a_file(
        tmp_path: Path, name: str, kind: str, clean: bool) -> None:
    """It said that logs would load of which the recovery failed."""
    path, inputs = log_with(tmp_path, name, kind, clean)
    dry = heard(path, inputs, OverlayDisk(str(path)))
    assert heard(path, inputs, RealDisk(str(path))) == dry


@pytest.mark.parametrize("disk", [RealDisk, OverlayDisk])
def test_a_rename_replaces_no_directory(tmp_path: Path, disk: Callable[[str], Disk]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    with pytest.raises(KafkaStorageError) as caught:
        disk(str(tmp_path)).rename("file", "directory")
    assert (caught.value.errno, caught.value.filename) == (
        errno.EISDIR, str(tmp_path / "directory"))


@pytest.mark.parametrize("suffix", ["index", "timeindex", "txnindex"])
def test_a_directory_in_the_place_of_an_index_is_named(tmp_path: Path, suffix: str) -> None:
    """Before the load changes anything."""
    name = f"{0:020d}.{suffix}"
    path, inputs = log_with(tmp_path, name, "directory", False)
    before = files_of(path)
    with pytest.raises(KafkaStorageError, match="a directory where a file") as caught:
        load_log(str(path), inputs)
    assert (caught.value.errno, caught.value.filename) == (errno.EISDIR, str(path / name))
    assert files_of(path) == before


class Full(RealDisk):
    """A file system without room for another byte after `changes` of them."""

    def __init__(self, path: str, changes: int) -> None:
        super().__init__(path)
        self.changes = changes

    def _change(self, name: str) -> None:
        self.changes -= 1
        if self.changes < 0:
            raise KafkaStorageError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)

    def create(self, name: str, size: int = 0) -> None:
        """See Disk."""
        self._change(name)
        super().create(name, size)

    def write(self, name: str, position: int, data: bytes) -> None:
        """See Disk."""
        self._change(name)
        super().write(name, position, data)

    def replace(self, name: str, data: bytes, *, sync: bool = True) -> None:
        """See Disk."""
        self._change(name)
        super().replace(name, data, sync=sync)

    def write_epochs(self, epochs: Iterable[EpochEntry]) -> None:
        """See Disk."""
        self._change("leader-epoch-checkpoint")
        super().write_epochs(epochs)


@pytest.mark.parametrize("kind", ["log_truncated", "every_index_gone", "log_byte_flipped"])
def test_a_full_disk_loses_nothing(
        golden: Path, golden_copy: Callable[[str], Path], kind: str) -> None:
    failures = 0
    for source in sorted((golden / "damaged").glob(f"*-{kind}")):
        for changes in range(6):
            copy = golden_copy(f"damaged/{source.name}")
            for name, inputs in inputs_of(copy).items():
                expected = load(golden_copy(f"damaged/{source.name}") / name, inputs)
                try:
                    load_log(str(copy / name), inputs, disk=Full(str(copy / name), changes))
                    continue
                except KafkaStorageError as error:
                    assert error.errno == errno.ENOSPC
                    failures += 1
                again = load(copy / name, inputs)
                # Segments behind a cut wait to be deleted, and the next load deletes them.
                assert live(again) == live(expected)
    assert failures > 3


def live(state: dict[str, object]) -> object:
    """The files after the close, without those that wait to be deleted."""
    closed = state["files_closed"]
    assert isinstance(closed, dict)
    return {name: file for name, file in closed.items() if not name.endswith(".deleted")}


def test_a_read_that_fails_cuts_nothing(
        golden_copy: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    copy = golden_copy(f"damaged/{CUT}")
    [(name, inputs)] = inputs_of(copy).items()
    assert not inputs.clean_shutdown
    before = {file: facts for file, facts in files_of(copy / name).items()
              if file.endswith((".log", "index"))}

    @contextlib.contextmanager
    def unreadable(path: str) -> Iterator[int]:
        """A descriptor of which pread fails in native code, as on a dying disk."""
        fd = os.open(path, os.O_WRONLY)
        try:
            yield fd
        finally:
            os.close(fd)

    monkeypatch.setattr(segment_recovery, "opened_log", unreadable)
    with pytest.raises(KafkaStorageError):
        load_log(str(copy / name), inputs)
    after = files_of(copy / name)
    assert {file: after.get(file) for file in before} == before


def test_an_unreadable_file_is_no_bad_file(golden_copy: Callable[[str], Path]) -> None:
    copy = golden_copy(f"damaged/{CUT}")
    [(name, inputs)] = inputs_of(copy).items()
    [first, *_] = sorted((copy / name).glob("*.log"))
    first.rename(first.with_suffix(".elsewhere"))
    first.symlink_to(first.with_suffix(".elsewhere"))
    before = sorted(path.name for path in (copy / name).iterdir())
    with pytest.raises(KafkaStorageError, match="symbolic link") as caught:
        load_log(str(copy / name), inputs)
    assert caught.value.filename == str(first)
    assert sorted(path.name for path in (copy / name).iterdir()) == before


def test_what_is_cut_can_be_kept(golden_copy: Callable[[str], Path], tmp_path: Path) -> None:
    copy = golden_copy(f"damaged/{CUT}")
    [(name, inputs)] = inputs_of(copy).items()
    before = {path.name: path.read_bytes() for path in (copy / name).glob("*.log")}
    kept = tmp_path / "kept"
    load_log(str(copy / name), inputs, quarantine=str(kept)).close()
    after = {path.name: path.read_bytes() for path in (copy / name).glob("*.log")}
    gone = {f"{name}_{file}@{len(after.get(file, b''))}": data[len(after.get(file, b"")):]
            for file, data in before.items() if after.get(file) != data}
    assert gone
    assert {path.name: path.read_bytes() for path in kept.iterdir()} == gone


def test_what_is_kept_is_durable_and_never_overwritten(tmp_path: Path) -> None:
    partition, kept = tmp_path / "kept-0", tmp_path / "kept"
    partition.mkdir()
    (partition / "a.log").write_bytes(b"first")
    disk = RealDisk(str(partition), quarantine=str(kept))
    with syncs() as synced:
        disk.keep("a.log", 1)
    assert synced == [(kept / "kept-0_a.log@1", b"irst"), (kept, ["kept-0_a.log@1"])]
    assert open_files(kept) == []
    assert (kept / "kept-0_a.log@1").stat().st_mode & 0o111 == 0
    (partition / "a.log").write_bytes(b"second")
    disk.keep("a.log", 1)
    (partition / "a.log").write_bytes(b"3d")
    disk.keep("a.log", 1)
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == {
        "kept-0_a.log@1": b"irst", "kept-0_a.log@1.1": b"econd", "kept-0_a.log@1.2": b"d"}


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
def test_copies_and_names(tmp_path: Path, disk_of: Callable[[str], Disk]) -> None:
    (tmp_path / "a.log").write_bytes(b"0123456789")
    disk = disk_of(str(tmp_path))
    for start, end in ((0, 10), (2, 5), (9, 10)):
        disk.copy("a.log", start, end, "b.log")
        assert disk.size("b.log") == end - start
        assert disk.read("b.log", 0, 10) == b"0123456789"[start:end]
        assert disk.rename("b.log", "c.log") and not disk.rename("b.log", "c.log")
        assert disk.size("b.log") is None and disk.size("c.log") == end - start
        disk.resize("c.log", 12)
        assert disk.read("c.log", 0, 12) == b"0123456789"[start:end].ljust(12, b"\0")


def test_what_a_file_holds_already_is_not_written(tmp_path: Path) -> None:
    disk, path = RealDisk(str(tmp_path)), tmp_path / "x.index"
    path.write_bytes(b"12345678")
    before = path.stat()
    for sync in (True, False):
        with syncs() as synced:
            disk.replace(path.name, b"12345678", sync=sync)
        assert synced == [(path, b"12345678")] * sync, "the last process may not have synced it"
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    for data in (b"12345679", b"1234567", b"123456789", b""):
        disk.replace(path.name, data)
        assert path.read_bytes() == data and path.stat().st_ino != before.st_ino
        path.write_bytes(b"12345678")
        before = path.stat()
    assert os.listdir(tmp_path) == [path.name]


def test_what_a_file_holds_already_takes_no_memory(tmp_path: Path) -> None:
    """A dry run of a long log had the indexes of all its segments in memory."""
    disk, content = OverlayDisk(str(tmp_path)), bytes(range(8)) * 1000
    (tmp_path / "x.index").write_bytes(content)
    disk.replace("x.index", content)
    assert not disk._changed
    for data in (content[:8], content[:8], b"", content):
        disk.replace("x.index", data)
        assert disk.read("x.index", 0, len(content)) == data


@pytest.mark.parametrize("seed", quick_first(range(20), 3))
def test_a_disk_that_has_looked_says_what_one_says_that_has_not(tmp_path: Path, seed: int) -> None:
    rng, disks = random.Random(seed), []
    names = ["leader-epoch-checkpoint", "leader-epoch-checkpoint.tmp", "a", "b", "c"]
    for home in ("looks", "asks"):
        (tmp_path / home).mkdir()
        (tmp_path / home / "a").write_bytes(b"0123456789")
        disks.append(RealDisk(str(tmp_path / home)))

    def both(call: Callable[[Disk], object]) -> list[object]:
        found: list[object] = []
        for disk in disks:
            try:
                found.append(call(disk))
            except KafkaStorageError as error:
                found.append(error.errno)
        return found

    for _ in range(400):
        name, other, size = rng.choice(names), rng.choice(names), rng.randrange(6000)
        data = rng.randbytes(rng.randrange(40))
        epochs = [EpochEntry(0, 0), EpochEntry(5, size)][:rng.randrange(3)]
        changes: list[Callable[[Disk], object]] = [
            lambda disk: disk.create(name, size), lambda disk: disk.resize(name, size),
            lambda disk: disk.write(name, size % 50, data), lambda disk: disk.replace(name, data),
            lambda disk: disk.copy(name, 0, 5, other) if name != other else None,
            lambda disk: disk.rename(name, other), lambda disk: disk.delete(name),
            lambda disk: disk.write_epochs(epochs)]
        if rng.random() < .3:
            disks[0].look(names[:3], names[3:])
        one, two = both(rng.choice(changes))
        assert one == two
        for question in (lambda disk: disk.size(name), lambda disk: disk.read(name, 3, 5),
                         lambda disk: disk.size(other)):
            one, two = both(question)
            assert one == two
    assert files_of(tmp_path / "looks") == files_of(tmp_path / "asks")
    disks[0].look(["a"])
    disks[0].forget()
    (tmp_path / "looks" / "a").write_bytes(b"x" * 77)
    assert disks[0].size("a") == 77 and disks[0].known("a") is None


def test_files_to_sync_are_closed_if_one_cannot_be_opened(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is refused."""
    for name in ("a", "b"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("a")
    disk, real_open, real_close = RealDisk(str(tmp_path)), os.open, os.close
    opened: list[tuple[str, int]] = []
    closed: list[int] = []

    def opening(path: str, *how: Any, **more: Any) -> int:
        fd = real_open(path, *how, **more)
        opened.append((str(path), fd))
        return fd

    def closing(fd: int) -> None:
        closed.append(fd)
        real_close(fd)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "close", closing)
    with pytest.raises(KafkaStorageError) as caught:
        disk.open_for_sync(["a", "gone", "b", "link"])
    monkeypatch.undo()
    here = [(path, fd) for path, fd in opened if path.startswith(str(tmp_path))]
    assert caught.value.errno == errno.ELOOP
    assert [path for path, _ in here] == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert {fd for _, fd in here} <= set(closed)


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
def test_a_file_that_is_empty_or_not_there_has_no_bytes(
        tmp_path: Path, disk_of: Callable[[str], Disk]) -> None:
    (tmp_path / "empty").touch()
    disk = disk_of(str(tmp_path))
    assert [disk.extent(name).size for name in ("empty", "none")] == [0, 0]
    disk.write("new", 0, b"")
    disk.preallocate("room", 9)
    assert (disk.size("new"), disk.size("room")) == (0, 9)
    assert [disk.delete(name) for name in ("empty", "empty", "new", "none")] == [
        True, False, True, False]


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
@pytest.mark.parametrize("written", [0, 2, 6])
def test_a_read_gets_no_more_than_it_asked_for(
        tmp_path: Path, disk_of: Callable[[str], Disk], written: int) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    disk = disk_of(str(tmp_path))
    disk.write("f", 0, b"x" * written)
    content = b"x" * written + b"0123456789"[written:]
    for start, size in ((0, 5), (3, 4), (8, 9), (12, 1)):
        assert disk.read("f", start, size) == content[start:start + size]
    assert open_files(tmp_path) == []


def test_a_load_leaves_nothing_that_it_has_looked_at(tmp_path: Path) -> None:
    """Other threads change the files of an open log without its disk."""
    with seglog.open(tmp_path / "t-0") as log:
        log.append(b"x")
    [inputs], disk = inputs_of(tmp_path).values(), RealDisk(str(tmp_path / "t-0"))
    load_log(str(tmp_path / "t-0"), inputs, disk=disk).close()
    assert disk.known("leader-epoch-checkpoint") is None


@pytest.mark.parametrize(("owner", "step"), [(LogFiles, "_trim_opened"), (SegmentFiles, "close")])
def test_a_close_tells_that_files_could_not_be_trimmed(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, step: str) -> None:
    with seglog.open(tmp_path / "t-0") as created:
        created.append(b"x")
    [inputs] = inputs_of(tmp_path).values()
    log = load_log(str(tmp_path / "t-0"), inputs)

    def failing(files: object) -> None:
        raise KafkaStorageError(errno.EIO, os.strerror(errno.EIO), "x")

    monkeypatch.setattr(owner, step, failing)
    with pytest.raises(KafkaStorageError, match="Input/output error"):
        log.close()


def test_a_write_goes_on_where_the_system_stopped(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, write = RealDisk(str(tmp_path)), os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:2], at))
        disk.write("f", 1, b"abcde")
    assert (tmp_path / "f").read_bytes() == b"\0abcde"


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
def test_a_directory_that_is_renamed_during_a_flush_is_no_failure(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It is being deleted."""
    with seglog.open(tmp_path / "t-0") as created:
        created.append(b"x")
    [inputs] = inputs_of(tmp_path).values()
    log = load_log(str(tmp_path / "t-0"), inputs)

    def failing() -> None:
        raise KafkaStorageError(number, os.strerror(number), log.path)

    with monkeypatch.context() as patch:
        patch.setattr(log.disk, "sync_directory", failing)
        log.recovery_point = 0
        if number == errno.ENOENT:
            log.flush(True)
        else:
            with pytest.raises(KafkaStorageError, match="Input/output error"):
                log.flush(True)
    log.close()
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("disk_of", [RealDisk, OverlayDisk])
def test_times_are_whole_milliseconds(tmp_path: Path, disk_of: Callable[[str], Disk]) -> None:
    (tmp_path / "f").touch()
    for number in (0, 999_999, 1_000_000, 1_700_000_000_123_999_999):
        os.utime(tmp_path / "f", ns=(0, number))
        assert disk_of(str(tmp_path)).modified_ms("f") == number // 1_000_000
    assert disk_of(str(tmp_path)).modified_ms("g") == 0


@pytest.mark.parametrize(("epochs", "left_over", "written"), [
    ([EpochEntry(0, 0)], False, False), ([EpochEntry(1, 0)], False, True),
    ([EpochEntry(0, 0)], True, True)])
def test_epochs_that_are_there_already_are_not_written(
        tmp_path: Path, epochs: list[EpochEntry], left_over: bool, written: bool) -> None:
    """Unless a write was interrupted."""
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_text("0\n1\n0 0\n")
    interrupted = tmp_path / (path.name + ".tmp")
    if left_over:
        interrupted.touch()
    before = path.stat().st_ino
    disk = RealDisk(str(tmp_path))
    disk.look([path.name, interrupted.name])
    writes: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seglog.recovery.disk.write_leader_epochs",
                      lambda path, entries: writes.append(path))
        disk.write_epochs(epochs)
    assert writes == [str(path)] * written and path.stat().st_ino == before


def test_a_replacement_that_fails_leaves_only_the_old_file(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(KafkaStorageError):
        RealDisk(str(tmp_path)).replace("f", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", b"old")]


def test_an_overlay_of_an_overlay_begins_with_its_changes(tmp_path: Path) -> None:
    first = OverlayDisk(str(tmp_path))
    first.replace("f", b"new")
    second = first.overlay()
    second.delete("f")
    assert (first.size("f"), first.overlay().size("f"), second.size("f")) == (3, 3, None)
