"""Which partitions C loads as rows, and the contents of a row."""

from __future__ import annotations

import base64
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglog._native.batch import scan_file
from seglog._native.clean_load import (
    CLEAN_DTYPE, largest_timestamps, load_clean, sync_clean, write_indexes,
)
from seglog._native.rebuild import IndexRebuild
from seglog.errors import KafkaStorageError
from seglog.model import BatchMetadata, ProducerStateEntry
from seglog.storage.meta import read_partition_metadata
from seglog.storage.producer_state import decode_snapshot, encode_snapshot, read_snapshot


@pytest.fixture
def root(golden: Path, tmp_path: Path) -> Path:
    """Two logs as Kafka closed them: one with six segments, one with producers."""
    for name in ("plain-none-0", "txn-0"):
        shutil.copytree(golden / "real/clean" / name, tmp_path / name)
    return tmp_path


def plain(root: Path, name: str = "plain-none-0", start: int = 0, **options: int) -> bool:
    rows, _, _ = load_clean(root, [name], [start], **options)
    return bool(rows["plain"][0])


def test_a_row(root: Path) -> None:
    rows, timestamps, _ = load_clean(root, ["txn-0", "absent-0", "plain-none-0"], [0, 0, 0])
    assert rows.dtype == CLEAN_DTYPE
    assert rows["plain"].tolist() == [True, False, True]
    for name, row in (("txn-0", rows[0]), ("plain-none-0", rows[2])):
        home = root / name
        logs = sorted(home.glob("*.log"))
        bases = [int(path.stem) for path in logs]
        [end] = {int(path.stem) for path in home.glob("*.snapshot")} - set(bases)
        metadata = read_partition_metadata(home / "partition.metadata")
        entries = read_snapshot(home / f"{end:020d}.snapshot")
        first = int(row["producers_at"])
        assert metadata is not None
        assert row["topic_id"].tobytes() == metadata.topic_id.bytes
        assert (row["log_start_offset"], row["log_end_offset"], row["segments"]) == (
            0, end, len(logs))
        assert (row["first_base_offset"], row["second_base_offset"], row["last_base_offset"]) == (
            bases[0], bases[1], bases[-1])
        assert row["size"] == sum(path.stat().st_size for path in logs)
        assert row["first_size"] == logs[0].stat().st_size
        assert row["index_size"] == logs[-1].with_suffix(".index").stat().st_size
        assert row["time_index_size"] == logs[-1].with_suffix(".timeindex").stat().st_size
        assert timestamps[first:first + int(row["producers"])].tolist() == [
            one.last_timestamp for one in entries]
        assert row["leader_epoch"] == 0
    assert rows["producers"][0] > 0


def test_nothing_changes(root: Path) -> None:
    def seen() -> dict[str, tuple[int, int, bytes]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino,
                            path.read_bytes() if path.is_file() else b"")
                for path in sorted(root.rglob("*"))}

    before = seen()
    load_clean(root, ["txn-0", "plain-none-0"], [0, 0])
    assert seen() == before


def last(home: Path, suffix: str) -> Path:
    return max(home.glob(f"*{suffix}"))


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    path.write_bytes(change(path.read_bytes()))


def with_open_transaction(data: bytes) -> bytes:
    entry = ProducerStateEntry(1, 0, -1, 5, 3, ())
    assert data
    return encode_snapshot([entry])


def zero_id(_: bytes) -> bytes:
    return b"version: 0\ntopic_id: " + base64.urlsafe_b64encode(bytes(16)).rstrip(b"=")


Change = Callable[[Path], object]
NOT_PLAIN: dict[str, Change] = {
    "a foreign file": lambda home: (home / "notes").touch(),
    "a directory": lambda home: (home / "sub").mkdir(),
    "a fifo": lambda home: os.mkfifo(home / "00000000000000009999.log"),
    "a deleted file": lambda home: (home / "00000000000000000000.log.deleted").touch(),
    "a swap file": lambda home: (home / "00000000000000000000.log.swap").touch(),
    "a cleaned file": lambda home: (home / "00000000000000000000.log.cleaned").touch(),
    "another number": lambda home: (home / "5.log").touch(),
    "no number": lambda home: (home / "foo.log").touch(),
    "an orphan index": lambda home: (home / "00000000000000000007.index").touch(),
    "a temporary file": lambda home: (home / "leader-epoch-checkpoint.tmp").touch(),
    "no epochs": lambda home: (home / "leader-epoch-checkpoint").unlink(),
    "epochs with a blank": lambda home: (home / "leader-epoch-checkpoint").write_text(
        "0\n1\n0  0\n"),
    "epochs that go back": lambda home: (home / "leader-epoch-checkpoint").write_text(
        "0\n2\n1 0\n0 5\n"),
    "epochs behind the end": lambda home: (home / "leader-epoch-checkpoint").write_text(
        "0\n2\n0 0\n1 625\n"),
    "too few epochs": lambda home: (home / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n"),
    "too many epochs": lambda home: (home / "leader-epoch-checkpoint").write_text(
        "0\n1\n0 0\n1 1\n"),
    "an epoch of 2^31": lambda home: (home / "leader-epoch-checkpoint").write_text(
        "0\n1\n2147483648 0\n"),
    "epochs of version 1": lambda home: (home / "leader-epoch-checkpoint").write_text(
        "1\n1\n0 0\n"),
    "the zero id": lambda home: rewrite(home / "partition.metadata", zero_id),
    "a version of the id": lambda home: rewrite(
        home / "partition.metadata", lambda data: data.replace(b"version: 0", b"version: 1")),
    "a short id": lambda home: rewrite(home / "partition.metadata", lambda data: data[:-2]),
    "an empty id": lambda home: (home / "partition.metadata").write_text(""),
    "no index": lambda home: last(home, ".index").unlink(),
    "no index of an old segment": lambda home: min(home.glob("*.index")).unlink(),
    "no time index": lambda home: last(home, ".timeindex").unlink(),
    "an odd index": lambda home: rewrite(last(home, ".index"), lambda data: data[:-3]),
    "an odd time index": lambda home: rewrite(last(home, ".timeindex"), lambda data: data + b"x"),
    "an index that goes back": lambda home: rewrite(
        last(home, ".index"), lambda data: data[8:16] + data[:8] + data[16:]),
    "an index padded with zeros": lambda home: rewrite(
        last(home, ".index"), lambda data: data + bytes(64)),
    "an index behind the log": lambda home: rewrite(
        last(home, ".index"), lambda data: data[:-4] + struct.pack(">i", 1 << 30)),
    "an index before the log": lambda home: rewrite(
        last(home, ".index"), lambda data: data[:-4] + struct.pack(">i", -1)),
    "an index of another offset": lambda home: rewrite(
        last(home, ".index"), lambda data: data[:-8] + struct.pack(">i", 1 << 20) + data[-4:]),
    "a cut log": lambda home: rewrite(last(home, ".log"), lambda data: data[:-1]),
    "zeros behind the log": lambda home: rewrite(last(home, ".log"), lambda data: data + bytes(99)),
    "a log without batches": lambda home: rewrite(last(home, ".log"), lambda data: b""),
    "an old log that is a link": lambda home: (
        min(home.glob("*.log")).rename(home.parent / "elsewhere"),
        (home / "00000000000000000000.log").symlink_to(home.parent / "elsewhere")),
    "a sound txn index that is odd": lambda home: (
        home / "00000000000000000000.txnindex").write_bytes(bytes(33)),
    "a txn index of version 1": lambda home: (home / "00000000000000000000.txnindex").write_bytes(
        struct.pack(">hqqqq", 256, 1, 0, 1, 1)),
    "no snapshot": lambda home: last(home, ".snapshot").unlink(),
    "two stray snapshots": lambda home: [shutil.copy(
        last(home, ".snapshot"), home / f"0000000000000000000{at}.snapshot") for at in (2, 3)],
    "a stray snapshot alone": lambda home: last(home, ".snapshot").rename(
        home / "00000000000000000003.snapshot"),
    "a snapshot at the start": lambda home: shutil.copy(
        last(home, ".snapshot"), home / "00000000000000000000.snapshot"),
    "a snapshot behind the end": lambda home: shutil.copy(
        last(home, ".snapshot"), home / "00000000000000009999.snapshot"),
    "a snapshot that is wrong": lambda home: rewrite(
        last(home, ".snapshot"), lambda data: data[:3] + bytes([data[3] ^ 1]) + data[4:]),
    "a snapshot with more": lambda home: rewrite(
        last(home, ".snapshot"), lambda data: data + b"\0"),
    "an open transaction": lambda home: rewrite(
        last(home, ".snapshot"), with_open_transaction),
    "a producer twice": lambda home: rewrite(last(home, ".snapshot"), lambda _: encode_snapshot(
        [ProducerStateEntry(1, 0, -1, 5, None, ())] * 2)),
}


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_not_plain(root: Path, what: str) -> None:
    assert plain(root)
    NOT_PLAIN[what](root / "plain-none-0")
    assert not plain(root)


PLAIN: dict[str, Change] = {
    "a stray snapshot": lambda home: shutil.copy(
        last(home, ".snapshot"), home / "00000000000000000003.snapshot"),
    "no id": lambda home: (home / "partition.metadata").unlink(),
    "an id with a line feed": lambda home: rewrite(
        home / "partition.metadata", lambda data: data.rstrip(b"\n") + b"\n"),
    "no epochs known": lambda home: (home / "leader-epoch-checkpoint").write_text(""),
    "none in the file": lambda home: (home / "leader-epoch-checkpoint").write_text("0\n0\n"),
    "an empty txn index": lambda home: (home / "00000000000000000000.txnindex").touch(),
    "a txn index": lambda home: (home / "00000000000000000000.txnindex").write_bytes(
        struct.pack(">hqqqq", 0, 1, 0, 1, 1)),
    "snapshots at bases": lambda home: [shutil.copy(
        last(home, ".snapshot"), path.with_suffix(".snapshot"))
        for path in sorted(home.glob("*.log"))[1:]],
    "an odd index of an old segment": lambda home: rewrite(
        min(home.glob("*.index")), lambda data: data[:-3]),
    "no index entries": lambda home: rewrite(last(home, ".index"), lambda _: b""),
}


@pytest.mark.parametrize("what", PLAIN)
def test_still_plain(root: Path, what: str) -> None:
    PLAIN[what](root / "plain-none-0")
    assert plain(root)


def test_the_snapshot_to_delete(root: Path) -> None:
    assert load_clean(root, ["plain-none-0"], [0])[0]["stray_snapshot"].tolist() == [-1]
    PLAIN["a stray snapshot"](root / "plain-none-0")
    assert load_clean(root, ["plain-none-0"], [0])[0]["stray_snapshot"].tolist() == [3]
    assert (root / "plain-none-0/00000000000000000003.snapshot").exists()


def test_starts(root: Path) -> None:
    """A start behind the first epoch's moves that epoch, which is a change."""
    home = root / "plain-none-0"
    assert not plain(root, start=1) and not plain(root, start=-1)
    (home / "leader-epoch-checkpoint").write_text("0\n1\n0 10\n")
    assert plain(root, start=0) and plain(root, start=10) and not plain(root, start=11)
    assert not plain(root, start=626)
    assert load_clean(root, ["plain-none-0"], [10])[0]["log_start_offset"][0] == 10


def test_many_segments_are_for_many_threads(root: Path) -> None:
    assert plain(root, segments_max=100) and not plain(root, segments_max=2)


def test_a_directory_behind_a_link(root: Path) -> None:
    (root / "other-0").symlink_to(root / "plain-none-0")
    assert not plain(root, "other-0")


def test_names_that_are_too_long(root: Path) -> None:
    assert not plain(root, "x" * 5000)
    assert load_clean(root, [], [])[0].shape == (0,)


# ---- after a crash ------------------------------------------------------------------------------

END, LAST_BASE = 625, 558
INTERVAL, INDEX_BYTES = 256, 16384


def idle(root: Path, *, point: int = END, interval: int = INTERVAL, start: int = 0) -> np.void:
    rows, _, _ = load_clean(root, ["plain-none-0"], [start],
                            after_crash=([point], [interval], [INDEX_BYTES]))
    row: np.void = rows[0]
    return row


@pytest.fixture
def recovered(root: Path) -> Path:
    """The indexes are those that a recovery would write, and there is a snapshot at each base."""
    home = root / "plain-none-0"
    log = last(home, ".log")
    with log.open("rb") as file:
        scan = scan_file(file.fileno(), 0, log.stat().st_size)
    rebuilt = IndexRebuild(LAST_BASE, interval_bytes=INTERVAL, index_bytes=INDEX_BYTES)
    assert rebuilt.feed(scan.batches) == len(scan.batches) and rebuilt.finish()
    log.with_suffix(".index").write_bytes(rebuilt.offset_index)
    log.with_suffix(".timeindex").write_bytes(rebuilt.time_index)
    for path in sorted(home.glob("*.log"))[1:]:
        path.with_suffix(".snapshot").write_bytes(encode_snapshot([]))
    return root


def test_an_idle_partition(recovered: Path) -> None:
    row, home = idle(recovered), recovered / "plain-none-0"
    log = last(home, ".log")
    assert row["plain"] and not row["has_longer_indexes"]
    assert (row["log_end_offset"], row["last_base_offset"]) == (END, LAST_BASE)
    assert (row["last_size"], row["last_records"]) == (log.stat().st_size, END - LAST_BASE)
    assert row["index_size"] == log.with_suffix(".index").stat().st_size > 0
    assert row["time_index_size"] == log.with_suffix(".timeindex").stat().st_size > 0


def test_indexes_at_full_length(recovered: Path) -> None:
    """Whatever follows the entries: a recovery truncates it."""
    before = idle(recovered)
    for suffix in (".index", ".timeindex"):
        rewrite(last(recovered / "plain-none-0", suffix), lambda data: data + bytes(99) + b"x")
    row = idle(recovered)
    assert row["plain"] and row["has_longer_indexes"]
    for size in ("index_size", "time_index_size"):
        assert row[size] == before[size]


NOT_IDLE: dict[str, Change] = {
    "a bad CRC": lambda home: rewrite(
        last(home, ".log"), lambda data: data[:-1] + bytes([data[-1] ^ 1])),
    "a torn batch": lambda home: rewrite(last(home, ".log"), lambda data: data[:-1]),
    "zeros after the log": lambda home: rewrite(last(home, ".log"), lambda data: data + bytes(99)),
    "no index": lambda home: last(home, ".index").unlink(),
    "a directory as index": lambda home: (
        last(home, ".timeindex").unlink(),
        (home / f"{LAST_BASE:020d}.timeindex").mkdir()),
    "a transaction index": lambda home: last(home, ".log").with_suffix(".txnindex").touch(),
    "no snapshot at the base": lambda home: (home / f"{LAST_BASE:020d}.snapshot").unlink(),
    "a bad snapshot at the base": lambda home: (home / f"{LAST_BASE:020d}.snapshot").write_bytes(
        b"x"),
    "an open transaction": lambda home: (home / f"{LAST_BASE:020d}.snapshot").write_bytes(
        encode_snapshot([ProducerStateEntry(1, 0, -1, 5, 3, ())])),
    "a producer twice": lambda home: (home / f"{LAST_BASE:020d}.snapshot").write_bytes(
        encode_snapshot([ProducerStateEntry(1, 0, -1, 5, None, ())] * 2)),
    "two stray snapshots": lambda home: [
        shutil.copy(last(home, ".snapshot"), home / f"{offset:020d}.snapshot")
        for offset in (3, END - 1)],
    "an epoch less": lambda home: (home / "leader-epoch-checkpoint").write_text(""),
}


@pytest.mark.parametrize("what", NOT_IDLE)
def test_a_recovery_would_change_it(recovered: Path, what: str) -> None:
    assert idle(recovered)["plain"]
    NOT_IDLE[what](recovered / "plain-none-0")
    assert not idle(recovered)["plain"]


INDEXES: dict[str, Change] = {
    "an offset entry less": lambda home: rewrite(last(home, ".index"), lambda data: data[:-8]),
    "a time entry less": lambda home: rewrite(last(home, ".timeindex"), lambda data: data[:-12]),
    "another offset entry": lambda home: rewrite(
        last(home, ".index"), lambda data: b"\0\0\0\1" + data[4:]),
    "no entry": lambda home: rewrite(last(home, ".index"), lambda data: b""),
    "zeros": lambda home: rewrite(last(home, ".timeindex"), lambda data: bytes(INDEX_BYTES)),
    "half an entry more": lambda home: rewrite(last(home, ".index"), lambda data: data + b"1234"),
}


@pytest.mark.parametrize("what", INDEXES)
def test_the_indexes_that_a_recovery_writes(recovered: Path, what: str) -> None:
    """A load tells them and writes nothing; `write_indexes` does, or takes the row away."""
    home, arguments = recovered / "plain-none-0", ([END], [INTERVAL], [INDEX_BYTES])
    paths = [last(home, suffix) for suffix in (".index", ".timeindex")]
    good = [path.read_bytes() for path in paths]
    INDEXES[what](home)
    bad = [path.read_bytes() for path in paths]
    rows, _, contents = load_clean(recovered, ["plain-none-0"], [0], after_crash=arguments)
    assert rows[0]["plain"] and [path.read_bytes() for path in paths] == bad
    assert (rows[0]["indexes_at"] >= 0) == (what != "half an entry more")
    write_indexes(recovered, ["plain-none-0"], rows, contents)
    assert rows[0]["plain"] and [path.read_bytes() for path in paths] == good
    again, _, none = load_clean(recovered, ["plain-none-0"], [0], after_crash=arguments)
    assert again[0]["indexes_at"] == -1 and not again[0]["has_longer_indexes"] and none == b""
    home.rename(recovered / "away")
    rows["has_longer_indexes"] = True
    write_indexes(recovered, ["plain-none-0"], rows, contents)
    assert not rows[0]["plain"]
    write_indexes(recovered, ["away"], rows, contents)  # what is not plain is left alone
    with pytest.raises(ValueError, match="2 names but 1 rows"):
        write_indexes(recovered, ["a-0", "b-0"], rows, contents)
    rows["plain"], rows["indexes_at"] = True, 10**9
    with pytest.raises(ValueError, match="not in these contents"):
        write_indexes(recovered, ["away"], rows, contents)


def test_snapshots_of_a_process_that_died(recovered: Path) -> None:
    """None at the end, and one between the last base and the end, which a start deletes."""
    home = recovered / "plain-none-0"
    (home / f"{END:020d}.snapshot").rename(home / f"{END - 1:020d}.snapshot")
    row = idle(recovered)
    assert row["plain"] and not row["has_snapshot"]
    assert (row["stray_snapshot"], row["snapshot_at"]) == (END - 1, 0)
    (home / f"{END - 1:020d}.snapshot").unlink()
    row = idle(recovered)
    assert row["plain"] and (row["stray_snapshot"], row["snapshot_at"]) == (-1, 0)


def test_the_snapshot_that_a_recovery_writes(recovered: Path) -> None:
    """At the log's end, unless it is there: the producers at the base that are not idle."""
    at_base, at_end = (recovered / f"plain-none-0/{offset:020d}.snapshot"
                       for offset in (LAST_BASE, END))

    def written(**options: Any) -> bytes | None:
        rows, timestamps, snapshots = load_clean(
            recovered, ["plain-none-0"], [0], after_crash=([END], [INTERVAL], [INDEX_BYTES]),
            **options)
        [row] = rows
        assert row["plain"]
        if row["snapshot_at"] < 0:
            return None
        data = snapshots[row["snapshot_at"]:row["snapshot_at"] + row["snapshot_size"]]
        found = decode_snapshot(data)
        assert row["producers"] == len(found)
        assert timestamps.tolist() == [one.last_timestamp for one in found]
        return data

    def producer(number: int, timestamp: int) -> ProducerStateEntry:
        return ProducerStateEntry(number, 3, -1, timestamp, None, (
            BatchMetadata(number + 9, number, 2, timestamp),))

    before = at_end.read_bytes()
    assert written() is None
    for damaged in (b"", b"x", before[:-1] + b"\7", encode_snapshot([producer(1, 5)])):
        at_end.write_bytes(damaged)
        assert written() == before
    old, young = producer(7, 1_000), producer(2, 9_000)
    at_base.write_bytes(encode_snapshot([old, young]))
    assert written() == written(now_ms=10_000, producer_idle_ms=9_001) \
        == encode_snapshot([young, old])  # in the order of a hash table
    assert written(now_ms=10_000, producer_idle_ms=9_000) == encode_snapshot([young])
    at_end.write_bytes(encode_snapshot([young]))
    assert written(now_ms=10_000, producer_idle_ms=9_000) is None


def test_recovery_points_and_settings(recovered: Path) -> None:
    for point in (LAST_BASE, END - 1, END, END + 1, 2**63 - 2):
        row = idle(recovered, point=point)
        assert row["plain"] and row["recovery_point"] == min(point, END)
    for point in (-1, 0, LAST_BASE - 1, 2**63 - 1):
        assert not idle(recovered, point=point)["plain"]
    row = idle(recovered, interval=INTERVAL * 4)
    assert row["plain"] and row["indexes_at"] == 0 and row["has_longer_indexes"]


def test_a_sync(recovered: Path) -> None:
    """Each partition, or the whole file system for more than 64; the error names what failed."""
    rows, _, _ = load_clean(recovered, ["plain-none-0"], [0],
                            after_crash=([END], [INTERVAL], [INDEX_BYTES]))
    sync_clean(recovered, ["plain-none-0"], rows)
    sync_clean(recovered, ["plain-none-0"], rows, logs=True)
    sync_clean(recovered, ["plain-none-0"] * 65, np.repeat(rows, 65))
    sync_clean(recovered, [], rows[:0])
    with pytest.raises(ValueError, match="2 names but 1 rows"):
        sync_clean(recovered, ["a-0", "b-0"], rows)
    log = last(recovered / "plain-none-0", ".log")
    log.unlink()
    sync_clean(recovered, ["plain-none-0"], rows)
    with pytest.raises(KafkaStorageError, match="plain-none-0"):
        sync_clean(recovered, ["plain-none-0"], rows, logs=True)
    log.with_suffix(".index").unlink()
    with pytest.raises(KafkaStorageError, match="plain-none-0"):
        sync_clean(recovered, ["plain-none-0"], rows)
    with pytest.raises(KafkaStorageError, match="absent"):
        sync_clean(recovered / "absent", ["plain-none-0"] * 65, np.repeat(rows, 65))


def test_timestamps(root: Path) -> None:
    home = root / "plain-none-0"
    entry = min(home.glob("*.timeindex")).read_bytes()[-12:-4]
    [found] = largest_timestamps(root, ["plain-none-0"], [0]).tolist()
    assert found == int.from_bytes(entry, "big")
    (home / "00000000000000000000.timeindex").write_bytes(b"")
    os.utime(home / "00000000000000000000.log", ns=(0, 1_234_567_890))
    unknown = np.iinfo(np.int64).min
    assert largest_timestamps(root, ["plain-none-0", "absent-0", "plain-none-0"],
                              [0, 0, 77]).tolist() == [1234, unknown, unknown]
    with pytest.raises(ValueError):
        largest_timestamps(root, ["plain-none-0"], [])
