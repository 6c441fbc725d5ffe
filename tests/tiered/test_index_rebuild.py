"""Indexes rebuilt from the bytes of remote segments, against those that a real broker stored."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from seglog.config import LogConfig
from seglog.errors import ConfigError
from seglog.remote_log.index_rebuild import RebuiltSegment, rebuild_indexes
from seglog.storage.producer_state import decode_snapshot, encode_snapshot
from seglog.tiered import IndexType, open_bucket
from tests.cli.test_json import violations
from tests.support import verbs
from tests.support.effort import quick_first
from tests.tiered.conftest import Tiered, read

CONFIG = LogConfig(index_interval_bytes=1)  # of the golden topics
SUFFIXES = {IndexType.OFFSET: ".index", IndexType.TIMESTAMP: ".timeindex",
            IndexType.TRANSACTION: ".txnindex", IndexType.PRODUCER_SNAPSHOT: ".snapshot",
            IndexType.LEADER_EPOCH: ".leader_epoch_checkpoint"}
#: Flushed and closed while the segment was active: the broker counted the bytes since the last
#: entry from 0 again.
REOPENED = {("t-none-0", 200), ("t-txn-0", 120), ("t-txn-1", 109), ("t-epochs-0", 0)}


def rebuilt(tiered: Tiered, name: str, *, write: bool = False) -> list[RebuiltSegment]:
    topic, _, partition = name.rpartition("-")
    log = open_bucket(tiered.remote).log(topic, int(partition))
    return list(rebuild_indexes(log, CONFIG, write=write))


def partitions(tiered: Tiered) -> list[str]:
    return [str(one) for one in open_bucket(tiered.remote).partitions]


def contents(tiered: Tiered, name: str) -> dict[str, bytes]:
    """Every object of a partition."""
    return {path.name: path.read_bytes() for path in tiered.objects(name, "")}


def test_good_indexes_come_out_as_the_broker_wrote_them(tiered: Tiered) -> None:
    states: Counter[str] = Counter()
    for name in partitions(tiered):
        for segment in rebuilt(tiered, name):
            assert segment.is_sound, segment
            for one in segment.indexes:
                states[one.state] += 1
                known = (name, segment.start_offset) in REOPENED and one.kind in (
                    IndexType.OFFSET, IndexType.TIMESTAMP)
                lost = name == "t-start-0" and one.kind is IndexType.LEADER_EPOCH
                assert one.state == "same" or ((known or lost) and one.state == "sound"), (
                    segment.path, one)
    assert states["same"] >= 160 and states["sound"] <= 10


@pytest.mark.parametrize(("name", "kind"), [
    (name, kind) for name in ("t-gzip-0", "t-txn-0") for kind in IndexType
    if name == "t-txn-0" or kind is not IndexType.TRANSACTION])
@pytest.mark.parametrize("how", quick_first(["absent", "cut", "empty", "flipped", "swapped"], 2))
def test_damaged_indexes_come_back(tiered_copy: Tiered, name: str, kind: IndexType, how: str
                                   ) -> None:
    other, path = tiered_copy.objects(name, SUFFIXES[kind])[:2]
    good = contents(tiered_copy, name)
    if how == "absent":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    elif how == "flipped":
        content = bytearray(path.read_bytes())
        content[-4] ^= 0x21
        path.write_bytes(content)
    else:
        shutil.copy(other, path)
    if contents(tiered_copy, name) == good:
        return  # the neighbour's is the same
    damaged = contents(tiered_copy, name)
    before = rebuilt(tiered_copy, name)
    assert contents(tiered_copy, name) == damaged  # nothing is written without the flag
    bad = [(segment.start_offset, one.kind) for segment in before for one in segment.indexes
           if one.state in ("absent", "damaged")]
    assert bad == [(int(path.name[:20]), kind)], before
    after = rebuilt(tiered_copy, name, write=True)
    assert all(segment.is_sound for segment in after)
    assert contents(tiered_copy, name) == good
    assert all(one.state in ("same", "sound") for segment in rebuilt(tiered_copy, name)
               for one in segment.indexes)


def test_all_indexes_of_a_tier_from_its_logs_alone(tiered_copy: Tiered) -> None:
    """Without one index, snapshot or checkpoint every file comes back, and reads are as before."""
    name = "t-txn-0"
    good = contents(tiered_copy, name)
    for path in tiered_copy.objects(name, ""):
        if path.suffix != ".log":
            path.unlink()
    assert all(one.is_sound for one in rebuilt(tiered_copy, name, write=True))
    found = contents(tiered_copy, name)
    assert found.keys() == good.keys()
    differing = {file.partition(".")[0][:20].lstrip("0") + "." + file.partition(".")[2]
                 for file in good if found[file] != good[file]}
    assert differing <= {"120.index", "120.timeindex"}
    log = open_bucket(tiered_copy.remote).log("t-txn", 0)
    assert read(log, "read_committed") == [
        row for row in tiered_copy.rows(name, "read_committed") if row.offset < 201]


@pytest.mark.parametrize("damage", ["flip", "cut", "swap"])
def test_a_damaged_log_is_no_source(tiered_copy: Tiered, damage: str) -> None:
    one, other = tiered_copy.objects("t-gzip-0")[1:3]
    content = bytearray(one.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 0xFF
    elif damage == "cut":
        del content[-100:]
    else:
        content = bytearray(other.read_bytes())
    one.write_bytes(content)
    index = one.with_suffix(".index")
    index.write_bytes(b"x")
    segments = {segment.start_offset: segment for segment in rebuilt(tiered_copy, "t-gzip-0",
                                                                     write=True)}
    assert segments[46].error and not segments[46].is_sound and segments[46].indexes == ()
    assert index.read_bytes() == b"x"
    assert all(segment.is_sound for start, segment in segments.items() if start != 46)


def test_an_index_of_another_interval_is_left(tiered_copy: Tiered) -> None:
    before = contents(tiered_copy, "t-gzip-0")
    log = open_bucket(tiered_copy.remote).log("t-gzip", 0)
    states = Counter(one.state for segment in rebuild_indexes(log, LogConfig(), write=True)
                     for one in segment.indexes)
    assert states["sound"] and set(states) == {"same", "sound"}
    assert contents(tiered_copy, "t-gzip-0") == before


@pytest.mark.parametrize("name", ["t-txn-0", "t-txn-1"])
def test_producers_that_expired_may_be_absent(tiered_copy: Tiered, name: str) -> None:
    """A restart forgets them, and the epochs of their coordinators; not those with an open
    transaction. Sound snapshots are not replaced."""
    dropped = open_ones = 0
    for path in tiered_copy.objects(name, ".snapshot"):
        entries = decode_snapshot(path.read_bytes())
        kept = [replace(one, coordinator_epoch=-1) for one in entries
                if one.current_txn_first_offset is not None]
        dropped, open_ones = dropped + len(entries) - len(kept), open_ones + len(kept)
        path.write_bytes(encode_snapshot(kept))
    assert dropped
    before = contents(tiered_copy, name)
    assert all(one.is_sound for one in rebuilt(tiered_copy, name, write=True))
    assert contents(tiered_copy, name) == before
    for path in tiered_copy.objects(name, ".snapshot"):
        path.write_bytes(encode_snapshot([
            one for one in decode_snapshot(path.read_bytes())
            if one.current_txn_first_offset is None]))
    assert any(not one.is_sound for one in rebuilt(tiered_copy, name)) == bool(open_ones)


def test_more_batches_than_a_new_index_has_room_for(tiered: Tiered) -> None:
    """A broker that was restarted left more batches in a segment than its index has entries for:
    Kafka's own recovery fails there."""
    log = open_bucket(tiered.remote).log("t-none", 0)
    config = LogConfig(index_interval_bytes=1, segment_index_bytes=24)
    assert [one.error for one in rebuild_indexes(log, config)] == [None] * len(log.segments)


def test_layouts_that_are_not_written(tiered_copy: Tiered) -> None:
    bucket = open_bucket(tiered_copy.remote / "kafka-tiered-storage",
                         layout="{topic}-{partition}-{topic_id}/{start_offset}-{segment_id}.{kind}")
    with pytest.raises(ConfigError, match="cannot be written"):
        list(rebuild_indexes(bucket.log("t-gzip", 0), CONFIG, write=True))
    assert all(one.is_sound for one in rebuild_indexes(bucket.log("t-gzip", 0), CONFIG))


@pytest.mark.parametrize("encrypt", [False, True])
def test_aivens_indexes(tiered: Tiered, tmp_path: Path, encrypt: bool) -> None:
    pytest.importorskip("cryptography", reason="needs cryptography (the extra [aiven])")
    pytest.importorskip("Crypto", reason="needs pycryptodome (the extra [aiven])")
    pytest.importorskip("pyarrow", reason="needs pyarrow, whose zstd is independent")
    from tests.tiered import aiven_by_hand as by_hand

    key, pem = by_hand.key_pair()
    name = "t-gzip-0"
    starts = [int(path.name[:20]) for path in tiered.objects(name)]
    manifests = [by_hand.write_segment(
        tmp_path, path, chunk_size=1000, compress=True, metadata=True, end_offset=end - 1,
        key=("k1", key) if encrypt else None)
        for path, end in zip(tiered.objects(name), [*starts[1:], 234], strict=True)]

    def states(*, write: bool = False) -> list[tuple[int, str, str]]:
        log = open_bucket(tmp_path, keys={"k1": pem}).log("t-gzip", 0)
        return [(segment.start_offset, one.kind.value, one.state)
                for segment in rebuild_indexes(log, CONFIG, write=write)
                for one in segment.indexes if one.state != "same"]

    assert states() == []
    described = json.loads(manifests[1].read_text())
    part = described["segmentIndexes"]["timestamp"]
    indexes = manifests[1].with_suffix(".indexes")
    content = bytearray(indexes.read_bytes())
    content[part["position"] + part["size"] - 6] ^= 0x41
    indexes.write_bytes(content)
    assert states() == [(46, "timestamp", "damaged")]
    assert states(write=True) == [(46, "timestamp", "damaged")]
    assert states() == []
    renewed = json.loads(manifests[1].read_text())
    assert {one: renewed[one] for one in renewed if one != "segmentIndexes"} == {
        one: described[one] for one in described if one != "segmentIndexes"}
    log = open_bucket(tmp_path, keys={"k1": pem}).log("t-gzip", 0)
    assert read(log) == [row for row in tiered.rows(name, "read_uncommitted") if row.offset < 234]
    with indexes.open("r+b") as file:
        file.truncate(20)
    assert len(states(write=True)) == 4
    assert states() == []
    if encrypt:
        segments = list(rebuild_indexes(open_bucket(tmp_path).log("t-gzip", 0), CONFIG))
        assert len(segments) == 5
        assert all("not given" in (one.error or "") for one in segments)


def test_the_verb(tiered_copy: Tiered, capsys: pytest.CaptureFixture[str],
                  tmp_path: Path) -> None:
    def run(*args: object) -> tuple[int, str, str]:
        return verbs.run(capsys, "tier", "rebuild-indexes", *args)

    remote, name = tiered_copy.remote, "t-gzip-0"
    good = contents(tiered_copy, name)
    path = tiered_copy.objects(name, ".index")[1]
    path.write_bytes(path.read_bytes()[:-1])
    command: tuple[object, ...] = (remote, name, "--metadata", tiered_copy.data)
    code, out, _ = run(*command)
    assert code == 1 and "offset damaged" in out and ": not sound" in out
    code, out, _ = run(*command, "--json", "--write")
    row = json.loads(out)
    assert (code, row["ok"], row["written"]) == (0, True, 1)
    assert violations(row, "Tier rebuild-indexes") == []
    assert [violations(one, "Rebuilt indexes") for one in row["indexes"]] == [[]]
    assert contents(tiered_copy, name) == good  # the interval came from __cluster_metadata
    tiered_copy.objects(name)[1].unlink()
    code, out, _ = run(*command, "--json")
    assert code == 1 and "object_missing" in "".join(json.loads(out)["errors"])
    for args, sentence in (((remote, "--config", "retention.ms=1"), "expected index.interval"),
                           ((remote, "nothing-0"), "holds no segment of nothing-0"),
                           ((tmp_path / "none",), "none")):
        code, _, err = run(*args)
        assert code == 2 and sentence in err and err.count("\n") == 1
