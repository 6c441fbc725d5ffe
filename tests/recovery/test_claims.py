"""What headers in lost bytes claim: counted whole where they can be read, and bounded always."""

from __future__ import annotations

import multiprocessing
import random
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seglog
from seglog._native.batch import BATCH_DTYPE
from seglog.cli.main import main
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.recovery import claims
from seglog.recovery.claims import Claims, _most_records, claims_after
from seglog.recovery.scans import Extent
from seglog.storage.codecs import CODECS
from tests.oracle.legacy import Message, encode, wrap

BASE = 13000
HEADER = 61


def batch(base: int, count: int, rng: random.Random, codec: str = "none") -> bytes:
    builder = RecordBatchBuilder(base_offset=base, codec=codec)
    for number in range(count):
        builder.append(1_700_000_000_000 + number, None, rng.randbytes(rng.randrange(5, 60)))
    return builder.build()


@dataclass
class Log:
    """A segment: its bytes, and (position, base offset, records) of each batch."""

    data: bytearray = field(default_factory=bytearray)
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    end_offset: int = BASE

    def add(self, raw: bytes, count: int) -> None:
        self.batches.append((len(self.data), self.end_offset, count))
        self.data += raw
        self.end_offset += count

    def behind(self, row: int) -> tuple[int, int]:
        """(batches, records) from a batch on."""
        return len(self.batches) - row, sum(count for *_, count in self.batches[row:])

    def claims(self, path: Path, row: int, data: bytes | None = None) -> Claims:
        """What a recovery that cuts at a batch is told."""
        path.write_bytes(self.data if data is None else data)
        position, next_offset, _ = self.batches[row]
        extent = Extent(str(path), 0, path.stat().st_size)
        return claims_after(extent, position, next_offset, BASE)


def make(rng: random.Random, batches: int) -> Log:
    log = Log()
    for _ in range(batches):
        count = rng.randrange(1, 30)
        codec = rng.choice(("none", "none", "gzip", "snappy", "lz4", "zstd"))
        log.add(batch(log.end_offset, count, rng, codec), count)
    return log


def test_a_torn_batch(tmp_path: Path) -> None:
    rng, log = random.Random(1), Log(end_offset=13741)
    log.add(batch(13741, 19, rng), 19)
    for size in (HEADER, HEADER + 1, len(log.data) - 1):
        claims = log.claims(tmp_path / "log", 0, bytes(log.data[:size]))
        assert claims == Claims(1, 19, 13741, 13759)
        assert str(claims) == "up to 19 records in 1 batch, offsets 13741 to 13759"
    # The count is truncated, the offsets are not; then these are.
    for size in (40, 27):
        assert log.claims(tmp_path / "log", 0, bytes(log.data[:size])) == Claims(
            1, 19, 13741, 13759)
    for size in (26, 20):
        assert log.claims(tmp_path / "log", 0, bytes(log.data[:size])) == Claims(unread_bytes=size)
    assert "20 bytes without a readable batch header" in str(Claims(unread_bytes=20))
    assert not Claims() and Claims(unread_bytes=1)
    assert str(Claims(1, 2)) == "up to 2 records in 1 batch", "of which no offset is known"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_batch_after_a_few_wrong_bytes_is_found(tmp_path: Path, size: int) -> None:
    log = Log()
    log.add(batch(BASE, 3, random.Random(1)), 3)
    assert log.claims(tmp_path / "log", 0, b"\x7f" * size + log.data) == Claims(
        1, 3, BASE, BASE + 2, size)


def test_a_negative_length_begins_no_batch(tmp_path: Path) -> None:
    log = Log()
    log.add(batch(BASE, 3, random.Random(1)), 3)
    log.data[8:12] = b"\xff" * 4
    assert log.claims(tmp_path / "log", 0) == Claims(unread_bytes=len(log.data))


@pytest.mark.parametrize(("more", "batches"), [(0, 1), (1, 0)])
def test_a_batch_fits_a_segment_up_to_the_largest_relative_offset(
        tmp_path: Path, more: int, batches: int) -> None:
    first = BASE + 2**31 - 3 + more
    log = Log(end_offset=first)
    log.add(batch(first, 3, random.Random(1)), 3)
    assert log.claims(tmp_path / "log", 0).batches == batches


@pytest.mark.parametrize("seed", range(20))
def test_headers_that_are_whole_tell_everything(tmp_path: Path, seed: int) -> None:
    """Bad CRCs, also of those behind the first; a tail torn anywhere behind its header."""
    rng = random.Random(seed)
    log = make(rng, rng.randrange(2, 40))
    row = rng.randrange(len(log.batches))
    data = bytearray(log.data)
    for victim in {row, *rng.sample(range(row, len(log.batches)),
                                    rng.randrange(1 + len(log.batches) - row))}:
        data[log.batches[victim][0] + HEADER + rng.randrange(4)] ^= 1 << rng.randrange(8)
    last = log.batches[-1][0]
    if rng.random() < .5:
        data = data[:rng.randrange(last + HEADER, len(data) + 1)]
    count, records = log.behind(row)
    assert log.claims(tmp_path / "log", row, bytes(data)) == Claims(
        count, records, log.batches[row][1], log.end_offset - 1)
    if len(data) == len(log.data):  # zeros behind are none of anybody's records
        assert log.claims(tmp_path / "log", row, bytes(data) + bytes(5000)).records == records


@pytest.mark.parametrize("seed", range(60))
def test_a_length_that_is_wrong_hides_no_batch(tmp_path: Path, seed: int) -> None:
    """What is behind is found by its CRC, what is between by its offsets."""
    rng = random.Random(100 + seed)
    log = make(rng, rng.randrange(3, 40))
    row = rng.randrange(len(log.batches) - 1)
    victim = rng.randrange(row, len(log.batches) - 1)
    data, at = bytearray(log.data), log.batches[victim][0]
    wrong = rng.choice((0, -1, 2**31 - 1, rng.randrange(49, 3000),
                        struct.unpack_from(">i", data, at + 8)[0] + rng.randrange(1, 50)))
    struct.pack_into(">i", data, at + 8, wrong)
    _, records = log.behind(row)
    claims = log.claims(tmp_path / "log", row, bytes(data))
    offsets = log.end_offset - log.batches[row][1]
    assert records <= claims.records <= 2 * offsets
    assert claims.last_offset == log.end_offset - 1


@pytest.mark.parametrize("seed", range(60))
def test_hostile_headers_are_bounded(tmp_path: Path, seed: int) -> None:
    """No count beyond the offsets, none beyond what the bytes can hold, no overflow, no hang."""
    rng = random.Random(200 + seed)
    log = make(rng, 8)
    data = bytearray(log.data)
    for position, *_ in log.batches:
        if rng.random() < .7:  # record count
            struct.pack_into(">i", data, position + 57, rng.choice((2**31 - 1, -1, -2**31, 0)))
        if rng.random() < .3:  # last offset delta
            struct.pack_into(">i", data, position + 23, rng.choice((2**31 - 1, -1, -2**31)))
        if rng.random() < .3:  # base offset
            struct.pack_into(">q", data, position, rng.choice((2**63 - 1, -1, -2**63, 2**62)))
        if rng.random() < .2:
            data[position:position + HEADER] = rng.randbytes(HEADER)
    claims = log.claims(tmp_path / "log", 0, bytes(data))
    assert 0 <= claims.records <= len(data) * 40000
    assert claims.batches <= len(data) // 26 and claims.unread_bytes <= len(data)
    if claims.first_offset is not None and claims.last_offset is not None:
        assert BASE <= claims.first_offset <= claims.last_offset < BASE + 2**31
    random_bytes = log.claims(tmp_path / "log", 0, rng.randbytes(20000))
    assert random_bytes and random_bytes.records <= 20000 * 40000


def test_a_count_is_bounded_by_the_offsets(tmp_path: Path) -> None:
    rng, log = random.Random(5), Log()
    log.add(batch(BASE, 19, rng), 19)
    data = bytearray(log.data)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    assert log.claims(tmp_path / "log", 0, bytes(data)).records == 19
    assert log.claims(tmp_path / "log", 0, bytes(data[:100])).records == 19
    struct.pack_into(">i", data, 23, 2**31 - BASE)  # and the offsets by the bytes
    assert log.claims(tmp_path / "log", 0, bytes(data)).records < len(data) / 7


def pairs(batches: int) -> Log:
    """Batches of two records."""
    rng, log = random.Random(7), Log()
    for _ in range(batches):
        log.add(batch(log.end_offset, 2, rng), 2)
    return log


def test_batches_that_were_moved_leave_their_offsets_missing(tmp_path: Path) -> None:
    """Their bytes count as unread, and the offsets that are missing as one batch each."""
    log = pairs(6)
    data, moved = bytearray(log.data), (1, 3)
    for row in moved:
        struct.pack_into(">q", data, log.batches[row][0], 5)
    sizes = [log.batches[row + 1][0] - log.batches[row][0] for row in moved]
    assert log.claims(tmp_path / "log", 0, bytes(data)) == Claims(
        6, 12, BASE, BASE + 11, sum(sizes))


def test_batches_of_another_segment_are_passed_one_by_one(tmp_path: Path) -> None:
    """Two with offsets below the segment's, where those of the first two batches are missing."""
    log = pairs(4)
    data, third = bytearray(log.data), log.batches[2][0]
    for row, base in enumerate((5, 7)):
        struct.pack_into(">q", data, log.batches[row][0], base)
    assert log.claims(tmp_path / "log", 0, bytes(data)) == Claims(3, 8, BASE, BASE + 7, third)


def test_entries_that_break_a_rule_are_passed_a_limited_number_of_times(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a call of its own. After too many the rest is unread."""
    monkeypatch.setattr(claims, "_PASSES_MAX", 3)
    for moved in (3, 4):
        log = pairs(moved + 1)
        for row in range(moved):
            struct.pack_into(">q", log.data, log.batches[row][0], 5 + 2 * row)
        assert log.claims(tmp_path / "log", 0).unread_bytes == (
            log.batches[-1][0] if moved == 3 else len(log.data))


def test_batches_after_garbage_are_searched_a_limited_number_of_times(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search may read much of the file."""
    monkeypatch.setattr(claims, "_SEARCHES_MAX", 2)
    pieces, log = pairs(4), Log()
    ends = [at for at, *_ in pieces.batches[1:]] + [len(pieces.data)]
    for (start, *_), end in zip(pieces.batches, ends, strict=True):
        log.add(b"\xff" * 100 + pieces.data[start:end], 2)
    third = log.batches[2][0]
    assert log.claims(tmp_path / "log", 0) == Claims(
        2, 4, BASE, BASE + 3, 200 + len(log.data) - third)


def test_missing_offsets_count_to_the_batch_whose_length_is_wrong(tmp_path: Path) -> None:
    """Nobody knows how many batches are between it and the next sound one."""
    log = pairs(4)
    data = bytearray(log.data)
    first, second = (at for at, *_ in log.batches[1:3])
    struct.pack_into(">i", data, first + 8, second - first - 12 + 7)
    data[second + HEADER] ^= 1
    assert log.claims(tmp_path / "log", 0, bytes(data)) == Claims(3, 8, BASE, BASE + 7)


def test_a_batch_inside_the_value_of_a_moved_one_that_leads_to_the_end_does_not_count(
        tmp_path: Path) -> None:
    builder, log = RecordBatchBuilder(base_offset=5), Log()
    builder.append(1, None, bytes(pairs(1).data))
    log.add(builder.build(), 1)
    assert log.claims(tmp_path / "log", 0) == Claims(unread_bytes=len(log.data))


def test_a_length_that_leads_into_a_batch_hides_it_from_nobody(tmp_path: Path) -> None:
    """That of a batch which was moved, so that nothing in its header is trusted."""
    log = pairs(3)
    second = log.batches[1][0]
    struct.pack_into(">qi", log.data, 0, 5, second - 12 + 7)
    assert log.claims(tmp_path / "log", 0) == Claims(3, 6, BASE, BASE + 5, second)


@pytest.mark.parametrize(("count", "records"), [(-1, 2), (0, 0), (1, 1), (2, 2), (3, 2)])
def test_a_count_is_taken_unless_it_is_negative(tmp_path: Path, count: int, records: int) -> None:
    """Also that of a batch which a compaction emptied, and of a torn one."""
    log = pairs(1)
    struct.pack_into(">i", log.data, 57, count)
    for size in (len(log.data), len(log.data) - 1):
        assert log.claims(tmp_path / "log", 0, bytes(log.data[:size])) == Claims(
            1, records, BASE, BASE + 1)


def test_a_batch_of_an_unknown_codec_is_unread(tmp_path: Path) -> None:
    """Its offsets are missing then."""
    log = pairs(2)
    log.data[22] = len(CODECS)  # the low byte of its attributes
    assert log.claims(tmp_path / "log", 0) == Claims(2, 4, BASE, BASE + 3, log.batches[1][0])


def test_missing_offsets_end_before_the_next_batch(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where that one is not counted any more."""
    monkeypatch.setattr(claims, "_PASSES_MAX", 0)
    log = pairs(2)
    struct.pack_into(">q", log.data, 0, 5)
    assert log.claims(tmp_path / "log", 0) == Claims(1, 2, BASE, BASE + 1, len(log.data))


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_is_one_record_whatever_its_offset(tmp_path: Path, magic: int) -> None:
    """Of a compacted log, whose messages leave out offsets."""
    log = Log()
    for offset in (BASE + 3, BASE + 9):
        log.add(encode(Message(offset, magic, value=b"v" * 99, timestamp=5 if magic else -1)), 1)
    assert log.claims(tmp_path / "log", 0) == Claims(2, 2, BASE + 3, BASE + 9)


@pytest.mark.parametrize(("size", "expected"), [
    (33, Claims(unread_bytes=33)), (34, Claims(1, 1, BASE + 3, BASE + 3))])
def test_an_old_message_that_is_cut_counts_by_its_header(tmp_path: Path, size: int,
                                                         expected: Claims) -> None:
    """Its offset, size, CRC, magic, attributes, timestamp, and the sizes of key and value."""
    log = Log()
    log.add(encode(Message(BASE + 3, 1, value=b"v" * 99, timestamp=5)), 1)
    assert log.claims(tmp_path / "log", 0, bytes(log.data[:size])) == expected


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2])
def test_wrappers_hold_up_to_their_offsets(tmp_path: Path, magic: int, codec: int) -> None:
    log = Log()
    for count in (5, 1, 12):
        messages = [Message(log.end_offset + number, magic, value=b"v" * 9,
                            timestamp=5 if magic else -1) for number in range(count)]
        if codec:
            log.add(encode(wrap(messages, codec)), count)
        else:
            for message in messages:
                log.add(encode(message), 1)
    count, records = log.behind(0)
    assert log.claims(tmp_path / "log", 0) == Claims(count, records, BASE, log.end_offset - 1)
    torn = log.claims(tmp_path / "log", 0, bytes(log.data[:-3]))
    assert (torn.batches, torn.records) == (count, records)


# ---- what the command line makes of it -----------------------------------------------------------

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *args: str | Path) -> tuple[int, str]:
    code = main([str(arg) for arg in args])
    return code, capsys.readouterr().out


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory of an embedded log that was never closed, of batches of 19 records."""
    root = tmp_path_factory.mktemp("killed") / "data"
    writer = multiprocessing.get_context("spawn").Process(target=_write, args=(str(root),))
    writer.start()
    writer.join()
    return root


@pytest.fixture
def killed(killed_once: Path, tmp_path: Path) -> Path:
    """A copy, which the test may change."""
    return shutil.copytree(killed_once, tmp_path / "data")


def _write(root: str) -> None:
    import os
    log: Any = seglog.open(f"{root}/events-0", config={"internal.segment.bytes": 4096})
    for _ in range(120):
        log.append_many([b"x" * 20] * 19)
    log.flush()
    os._exit(9)


def logs_of(root: Path) -> list[Path]:
    return sorted((root / "events-0").glob("*.log"))


def last_batch(log: Path) -> int:
    """Where the last batch of a log begins."""
    data, at = log.read_bytes(), 0
    while True:
        size = 12 + struct.unpack_from(">i", data, at + 8)[0]
        if at + size >= len(data) or data[at + size + 16] == 0:
            return at
        at += size


@pytest.mark.parametrize("verb", [("verify",), ("load", "--dry-run"), ("load", "--recover")])
def test_a_torn_tail_is_a_loss_that_is_counted(killed: Path, capsys: Capture,
                                               verb: tuple[str, ...]) -> None:
    log = logs_of(killed)[-1]
    at = last_batch(log)
    with open(log, "r+b") as stream:
        stream.truncate(at + 90)
    base = struct.unpack_from(">q", log.read_bytes(), at)[0]
    code, out = run(capsys, *verb, killed)
    assert code == 1
    assert f"up to 19 records in 1 batch, offsets {base} to {base + 18}" in out
    assert "events: up to 19 records in 1 batch, 90 B; partition 0" in out
    last = out.splitlines()[-1]
    assert last.startswith("data w") and "up to 19 records in 1 batch" in last


@pytest.mark.parametrize("verb", [("verify",), ("load", "--dry-run"), ("load", "--recover")])
def test_padding_is_no_loss(killed: Path, capsys: Capture, verb: tuple[str, ...]) -> None:
    log = logs_of(killed)[-1]
    with open(log, "r+b") as stream:
        stream.truncate(last_batch(log) + 100_000)
        stream.seek(last_batch(log))
        stream.write(bytes(100_000))
    code, out = run(capsys, *verb, killed)
    assert code == 0, out
    assert "nothing but zeros" in out and "no errors were found" in out.splitlines()[-1]


def test_damage_below_the_recovery_point_is_said_to_stay(killed: Path, capsys: Capture) -> None:
    logs = logs_of(killed)
    point = int(logs[-1].stem)
    (killed / "recovery-point-offset-checkpoint").write_text(f"0\n1\nevents 0 {point}\n")
    data = bytearray(logs[1].read_bytes())
    data[200] ^= 1
    logs[1].write_bytes(data)
    untouched = killed.with_name("copy")
    shutil.copytree(killed, untouched)

    code, out = run(capsys, "load", "--recover", killed)
    assert code == 0
    assert f"not read: {len(logs) - 1} segments" in out and "seglog verify" in out
    assert "not read" in out.splitlines()[-1]
    shutil.rmtree(killed)
    shutil.copytree(untouched, killed)
    for verb in (("load", "--dry-run"), ("load", "--recover"), ("verify",)):
        code, out = run(capsys, *verb, *(["--level", "verify"] if verb[0] == "load" else []),
                        killed)
        assert code == 1
        assert f"batch-crc: events-0/{logs[1].name}@0" in out and "leaves it in the log" in out
        assert out.splitlines()[-1].startswith(
            "damaged batches stay in the log: up to 19 records in 1 batch")
    assert logs[1].read_bytes() == data


@pytest.mark.parametrize(("magic", "codec", "offsets", "count", "room", "most"), [
    # No more than offsets, than the count, and than fit the bytes (of at least 7).
    (2, 0, 1, 5, 700, 1), (2, 0, 2, 5, 700, 2), (2, 0, 5, 2, 700, 2), (2, 0, 500, 400, 70, 10),
    (2, 0, 5, -1, 700, 5), (2, 0, 0, 5, 700, 5), (2, 0, -3, 500, 70, 10), (2, 0, 5, 0, 700, 0),
    # An old message is one record; a wrapper has no count, and at least one.
    (1, 0, 1, -1, 700, 1), (1, 0, 9, -1, 700, 1), (1, 1, 9, -1, 700, 9), (1, 1, 1, -1, 700, 1),
    (1, 1, 0, -1, 700, 1), (1, 1, -3, -1, 700, 1),
    # No more than its bytes hold: gzip makes up to 1032 of one, and a message has at least 26.
    (1, 1, 10**6, -1, 3, 52 * 1032 // 26)])
def test_a_batch_claims_at_most(magic: int, codec: int, offsets: int, count: int, room: int,
                                most: int) -> None:
    row = np.zeros(1, BATCH_DTYPE)
    row["magic"], row["attributes"], row["record_count"] = magic, codec, count
    row["size"], row["base_offset"], row["last_offset"] = 61 + room, 100, 99 + offsets
    assert _most_records(row, np.array([100]), None).tolist() == [most]
