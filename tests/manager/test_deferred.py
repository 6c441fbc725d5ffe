"""`sanity.check.all.logs.enabled=false` on real directories, and the level `full`."""

from __future__ import annotations

import errno
import pickle
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from seglog.config import LoadConfig
from seglog.errors import KafkaStorageError, LogLoadError, SeglogError
from seglog.log.unified_log import UnifiedLog
from seglog.log.watermarks import StartOffsetReason
from seglog.manager import sanity
from seglog.model import TopicPartition
from seglog.recovery import segment_loading
from seglog.recovery.segment_files import SegmentFiles
from seglog.storage.paths import FileState
from tests.manager.test_loading import Recorder
from tests.manager.support import copy, input_output_error, make_dir, snapshot
from tests.support.facts import facts_of, refusal
from tests.support.said import said
from tests.support.waiting import wait_for

A0 = TopicPartition("a", 0)
MARKER = ".kafka_cleanshutdown"


def config(level: str = "kafka", threads: int = 1) -> LoadConfig:
    return LoadConfig(sanity_check_all_logs_enabled=False, sanity_check_level=level,
                      num_segment_loading_threads_per_data_dir=threads)


class Checks:
    """Counts the segments that native code checks, by base offset."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: Counter[int] = Counter()
        self.lock = threading.Lock()
        chunk, some = segment_loading.check_chunk, sanity.check_segments

        def counted_chunk(listing: Any, start: int, stop: int, level: Any) -> Any:
            self.count(listing.base_offsets[start:stop])
            return chunk(listing, start, stop, level)

        def counted(path: str, bases: Any, *args: Any, **kwargs: Any) -> Any:
            self.count(bases)
            return some(path, bases, *args, **kwargs)

        patch.setattr(segment_loading, "check_chunk", counted_chunk)
        patch.setattr(sanity, "check_chunk", counted_chunk)
        patch.setattr(sanity, "check_segments", counted)

    def count(self, bases: Any) -> None:
        with self.lock:
            self.seen.update(np.asarray(bases).tolist())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A clean directory whose one log has segments enough."""
    root = make_dir(tmp_path / "k", ["a-0"], batches=200)
    with seglog.LogManager([root]):
        pass
    assert len(bases_of(root)) >= 6
    return root


def bases_of(root: Path) -> list[int]:
    return sorted(int(path.stem) for path in (root / "a-0").glob("*.log"))


def file_of(root: Path, base: int, suffix: str = ".index") -> Path:
    return root / "a-0" / f"{base:020d}{suffix}"


def loaded_at_once(root: Path) -> dict[str, bytes]:
    """What a load with all checks makes of a copy."""
    other = copy(root, root.parent / "at-once" / "k")
    with seglog.LogManager([other]):
        pass
    return snapshot(other / "a-0")


def differences(found: dict[str, bytes], wanted: dict[str, bytes]) -> list[str]:
    """All but snapshots: a load removes those behind a segment that it recovers."""
    return sorted(name for name in found.keys() | wanted.keys()
                  if not name.endswith(".snapshot") and found.get(name) != wanted.get(name))


def snapshots_of(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "a-0").glob("*.snapshot"))


def replace(log: UnifiedLog, bases: list[int]) -> None:
    """A sealed segment by a copy of itself, as compaction does."""
    source = Path(log.path) / f"{bases[4]:020d}.log"
    shutil.copyfile(source, f"{source}.cleaned")
    with log.lock:
        made = SegmentFiles(log.disk, bases[4], log.config, FileState.CLEANED)
        log.replace_segments([made], [bases[4]])


def test_only_the_active_segment_is_checked_at_load(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, bases = Checks(monkeypatch), bases_of(root)
    before = snapshot(root / "a-0")
    with seglog.LogManager([root], config=config()) as manager:
        assert checks.seen == {bases[-1]: 1}
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        assert log.deferred_checks.remaining == len(bases) - 1
        end = log.log_end_offset
    assert checks.seen == {bases[-1]: 1}, "nor at the end"
    assert snapshot(root / "a-0") == before
    with seglog.LogManager([root]) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.log_end_offset == end and log.deferred_checks is None


def test_becoming_leader_checks_each_segment_once(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, bases = Checks(monkeypatch), bases_of(root)
    with seglog.LogManager([root], config=config()) as manager:
        assert manager.on_become_leader([TopicPartition("b", 0)]) == []
        for future in [*manager.on_become_leader([A0]), *manager.on_become_leader([A0, A0])]:
            future.result(120)
        assert checks.seen == dict.fromkeys(bases, 1)
        assert manager.on_become_leader([A0]) == [], "nothing is left"
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        assert log.deferred_checks.remaining == 0


def test_a_reader_checks_what_it_reads(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with seglog.LogManager([root]) as manager, manager.open_log(A0) as reader:
        whole = [batch.base_offset for batch in reader.batches()]
    for path in (root / "a-0").glob("*.txnindex"):
        path.unlink()  # those segments are looked at when the reader opens
    checks, bases = Checks(monkeypatch), bases_of(root)
    with seglog.LogManager([root], config=config()) as manager:
        with manager.open_log(A0) as reader:
            assert set(checks.seen) == {bases[-1]}
            reader.fetch(bases[2], 1)
            assert checks.seen == {bases[2]: 1, bases[-1]: 1}
            reader.fetch(bases[2], 1)
            assert [batch.base_offset for batch in reader.batches()] == whole
        assert checks.seen == dict.fromkeys(bases, 1)


def test_readers_check_without_the_lock(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, locked = Checks(monkeypatch), list[bool]()
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None
        monkeypatch.setattr(checks, "count", lambda _: locked.append(log.lock.is_mine))
        assert log.offset_for_timestamp(0) is not None
        assert log.read(bases_of(root)[2], 1).records
    assert locked == [False, False]


def test_retention_checks_what_it_looks_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong index would say how old a segment is."""
    checks, bases = Checks(monkeypatch), bases_of(root)
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None
        log.update_high_watermark(log.log_end_offset)
        log.maybe_increment_log_start_offset(bases[2], StartOffsetReason.CLIENT_RECORD_DELETION)
        assert log.delete_old_segments() == 2
        assert checks.seen == dict.fromkeys([*bases[:3], bases[-1]], 1)


@pytest.mark.parametrize(("leave", "left"), [
    (lambda log, bases: log.truncate_to(bases[3]), slice(4, -1)),
    (lambda log, bases: log.truncate_fully_and_start_at(bases[3]), slice(-1)),
    (replace, slice(4, 5))])
def test_a_segment_that_left_the_log_is_not_checked(
        root: Path, monkeypatch: pytest.MonkeyPatch,
        leave: Callable[[UnifiedLog, list[int]], None], left: slice) -> None:
    checks, bases = Checks(monkeypatch), bases_of(root)
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        leave(log, bases)
        log.deferred_checks.ensure_all()
    assert checks.seen.keys() == set(bases) - set(bases[left])


@pytest.mark.parametrize("threads", [1, 3])
def test_a_missing_index_is_rebuilt_by_whoever_comes(
        root: Path, monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    bases = bases_of(root)
    damaged = [bases[1], bases[4]]
    for base in damaged:
        file_of(root, base).unlink()
    wanted, before = loaded_at_once(root), snapshots_of(root)
    checks = Checks(monkeypatch)
    with seglog.LogManager([root], config=config(threads=threads)) as manager:
        assert not any(file_of(root, base).exists() for base in damaged)
        with manager.open_log(A0) as reader:
            reader.fetch(bases[4], 1)
        assert checks.seen == dict.fromkeys([*bases[:5], bases[-1]], 1) | {
            int(path.stem): 1 for path in (root / "a-0").glob("*.txnindex")}, \
            "all before the damage, each once"
    assert (root / MARKER).exists()
    assert differences(snapshot(root / "a-0"), wanted) == []
    assert snapshots_of(root) == before


def test_many_readers_and_a_new_leader(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases = bases_of(root)
    for base in bases[1::2]:
        file_of(root, base).unlink()
    checks = Checks(monkeypatch)
    with seglog.LogManager([root]) as manager, manager.open_log(A0) as reader:
        wanted = [(batch.base_offset, batch.position) for batch in reader.batches()]
    for base in bases[1::2]:
        file_of(root, base).unlink(missing_ok=True)
    checks.seen.clear()
    found: list[Any] = []
    with seglog.LogManager([root], config=config()) as manager:
        barrier = threading.Barrier(9)

        def read() -> None:
            barrier.wait(120)
            with manager.open_log(A0) as reader:
                found.append([(one.base_offset, one.position) for one in reader.batches()])

        readers = [threading.Thread(target=read) for _ in range(8)]
        for one in readers:
            one.start()
        barrier.wait(120)
        for future in manager.on_become_leader([A0]):
            future.result(60)
        for one in readers:
            one.join(60)
        assert found == [wanted] * 8
        assert checks.seen == dict.fromkeys(bases, 1)
        assert all(file_of(root, base).exists() for base in bases)


def test_a_segment_that_the_load_swapped_in_is_not_checked_again(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the last one."""
    checks, bases = Checks(monkeypatch), bases_of(root)
    file_of(root, bases[-1], ".log").rename(file_of(root, bases[-1], ".log.swap"))
    with seglog.LogManager([root], config=config()) as manager:
        for future in manager.on_become_leader([A0]):
            future.result(120)
    assert checks.seen.keys() == {*bases[:-1]}


def test_a_missing_time_index_is_no_damage(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases = bases_of(root)
    file_of(root, bases[3], ".timeindex").unlink()
    checks = Checks(monkeypatch)
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        log.read(bases[3], 1, "log_end")
        assert checks.seen == {bases[3]: 1, bases[-1]: 1}
        assert file_of(root, bases[3], ".timeindex").read_bytes() == b"", "as Kafka's loader"


@pytest.mark.parametrize("row", [0, -2, -1])
def test_a_load_reports_a_missing_time_index_of_the_active_segment_alone(
        root: Path, row: int) -> None:
    """The checks of all other segments come later."""
    file_of(root, bases_of(root)[row], ".timeindex").unlink()
    heard = Recorder()
    with seglog.LogManager([root], config=config(), listener=heard):
        pass
    found = [about for event, about, _ in heard.events if event == "finding"]
    assert found == (["time-index-missing"] if row == -1 else [])


def test_an_unclean_directory_is_checked_at_load(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / MARKER).unlink()
    checks, bases = Checks(monkeypatch), bases_of(root)
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is None
    assert checks.seen == dict.fromkeys(bases, 1)


def test_a_damaged_active_segment_makes_all_checked_at_load(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bases = bases_of(root)
    for base in (bases[1], bases[-1]):
        file_of(root, base).unlink()
    checks = Checks(monkeypatch)
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is None
        assert file_of(root, bases[1]).exists()
    assert set(checks.seen) == set(bases)


def test_a_disk_that_fails_a_check_takes_the_directory_offline(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    called = threading.Event()

    def failing(path: str, *args: Any, **kwargs: Any) -> Any:
        raise input_output_error(path)

    with seglog.LogManager([root, root.parent / "other"], config=config(),
                           on_log_dir_failure=lambda failure: (told.append(failure),
                                                               called.set())) as manager:
        monkeypatch.setattr(sanity, "check_segments", failing)
        future, = manager.on_become_leader([A0])
        with pytest.raises(KafkaStorageError):
            future.result(120)
        assert called.wait(120)
        assert told[0].message == f"Error while checking segments of a-0 in dir {root}"
        assert told[0].partitions == (A0,) and manager.get_log(A0) is None
    assert not (root / MARKER).exists()


def test_the_logs_of_a_failed_directory_are_not_checked(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, bases = Checks(monkeypatch), bases_of(root)
    with seglog.LogManager([root, root.parent / "other"], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        manager.handle_log_dir_failure(root)
        wait_for(lambda: manager.get_log(A0) is None and log.is_closed)
        log.deferred_checks.ensure_all()
    assert checks.seen == {bases[-1]: 1}


def test_a_log_file_that_a_check_does_not_find_is_no_damage(root: Path) -> None:
    bases = bases_of(root)
    missing = file_of(root, bases[2], ".log")
    with seglog.LogManager([root, root.parent / "other"], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        missing.unlink()
        with pytest.raises(KafkaStorageError) as caught:
            log.deferred_checks.ensure_range(bases[1], bases[3])
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))
        wait_for(lambda: not manager.is_log_dir_online(root))


@pytest.mark.parametrize("error", [
    OSError(5, "Input/output error"), KafkaStorageError(5, "bad", "f"),
    LogLoadError("bad", kafka_name="InvalidOffsetException")])
def test_what_is_said_of_a_check_that_fails(
        root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Only an error of the disk takes the directory offline; each use of the log gets the same."""
    def failing(*args: Any, **kwargs: Any) -> Any:
        raise error

    text = f"Error while checking segments of a-0 in dir {root}"
    with said(root.parent, "manager.sanity", "log.log_dir_failures") as heard, seglog.LogManager(
            [root, root.parent / "other"], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        monkeypatch.setattr(sanity, "check_segments", failing)
        first, again = (refusal(log.deferred_checks.ensure_all) for _ in range(2))
        assert first == again
        if isinstance(error, OSError):
            wait_for(lambda: not manager.is_log_dir_online(root))
            assert heard.take() == [f"ERROR {text.replace(str(root), 'ROOT/k')} <- "
                                    f"{type(error).__name__}"]
        else:
            assert heard.take() == ["ERROR Segments of a-0 in dir ROOT/k cannot be recovered <- "
                                    "LogLoadError"]
            assert manager.is_log_dir_online(root)
        assert first == (facts_of(error) if isinstance(error, SeglogError) else {
            "class": "KafkaStorageError", "code": "io", "errno": 5, "file": f"{root}/a-0",
            "cause": "OSError", "text": f"[Errno 5] {text}: Input/output error: '{root}/a-0'"})


def test_a_reader_that_checks_stays_in_its_process(root: Path) -> None:
    with seglog.LogManager([root], config=config()) as manager, manager.open_log(A0) as reader:
        assert refusal(lambda: pickle.dumps(reader)) == {
            "class": "TypeError", "text": "cannot pickle a log that LogManager.open_log opened "
            "while segments are still to be checked; open its path with seglog.PartitionLog.open"}
    with seglog.LogManager([root]) as manager, manager.open_log(A0) as reader:
        assert pickle.loads(pickle.dumps(reader)).log_end_offset == reader.log_end_offset


def test_shutdown_stops_the_background(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, release = threading.Event(), threading.Event()
    check = sanity.check_segments

    def slow(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        release.wait(120)
        return check(*args, **kwargs)

    monkeypatch.setattr(sanity, "check_segments", slow)
    manager = seglog.LogManager([root], config=config())
    manager.startup()
    future, = manager.on_become_leader([A0])
    assert begun.wait(120)
    threading.Timer(0.05, release.set).start()
    manager.shutdown()
    assert future.done() and (root / MARKER).exists()
    assert not [thread for thread in threading.enumerate() if "segment-check" in thread.name]


def test_a_shutdown_lets_no_further_check_begin(
        root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it waits for the threads that check in the background."""
    checks, bases = Checks(monkeypatch), bases_of(root)
    manager = seglog.LogManager([root], config=config())
    manager.startup()
    log, wait = manager.get_log(A0), manager._checks.close
    assert log is not None and (deferred := log.deferred_checks) is not None

    def check_and_wait() -> None:
        deferred.ensure_all()  # as such a thread does
        wait()

    monkeypatch.setattr(manager._checks, "close", check_and_wait)
    manager.shutdown()
    assert checks.seen == {bases[-1]: 1} and deferred.remaining == len(bases) - 1


@pytest.mark.parametrize("deferred", [False, True])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_wrong_indexes_at_level_full(root: Path, suffix: str, deferred: bool) -> None:
    """Padded, never written, beyond the log, in disorder: Kafka believes them; `full` does not."""
    bases = bases_of(root)
    filled = [base for base in bases[:-1] if file_of(root, base, suffix).stat().st_size >= 48][:4]
    assert len(filled) == 4
    damages = (lambda data: data + bytes(240), lambda data: bytes(len(data)),
               lambda data: data[:-4] + b"\x7f\xff\xff\xff", lambda data: data + b"\1")
    original = {base: file_of(root, base, suffix).read_bytes() for base in filled}
    for base in filled:
        file_of(root, base).unlink()
    wanted = loaded_at_once(root)
    for base, damage in zip(filled, damages, strict=True):
        file_of(root, base).write_bytes(original[base] if suffix == ".index" else b"")
        file_of(root, base, suffix).write_bytes(damage(original[base]))
    broken = snapshot(root / "a-0")
    with seglog.LogManager([root]):
        pass
    assert snapshot(root / "a-0") == broken, "Kafka's checks see nothing"
    full = LoadConfig(sanity_check_level="full", sanity_check_all_logs_enabled=not deferred)
    with seglog.LogManager([root], config=full) as manager:
        for future in manager.on_become_leader([A0]):
            future.result(120)
    assert differences(snapshot(root / "a-0"), wanted) == []


def test_a_rename_while_a_segment_is_checked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move or a delete renames the directory under the check: that is no error of the disk."""
    with seglog.LogManager([root], config=config()) as manager:
        log = manager.get_log(A0)
        assert log is not None and log.deferred_checks is not None
        check, renamed = sanity.check_segments, []

        def check_and_rename(path: str, *args: Any, **kwargs: Any) -> Any:
            if not renamed:
                renamed.append(path)
                manager.async_delete(A0)
            return check(path, *args, **kwargs)

        monkeypatch.setattr(sanity, "check_segments", check_and_rename)
        log.deferred_checks.ensure_all()
        assert renamed and log.deferred_checks.remaining == 0
        assert manager.offline_log_dirs == []
