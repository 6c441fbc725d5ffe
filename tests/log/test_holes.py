"""What a power cut left after the recovery point is truncated to a prefix of what was appended."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest

import seglog
from seglog.cleaner.cleaner import Round
from seglog.cli.main import main
from seglog.log.holes import cut_to_first_hole, remove_below_start
from seglog.recovery.disk import RealDisk
from seglog.storage.paths import HIGH_WATERMARK_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.oracle import batch as v2
from tests.support.synced import syncs

CONFIG = {"internal.segment.bytes": "400", "segment.index.bytes": "1200"}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A partition directory of ten segments, two records in each, as a crash leaves it."""
    with seglog.open(tmp_path / "t-0", config=CONFIG) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    return tmp_path / "t-0"


def bases(path: Path) -> list[int]:
    return sorted(int(log.stem) for log in path.glob("*.log"))


def values(path: Path) -> list[int]:
    with seglog.open(path, config=CONFIG) as log:
        return [int((record.value or b"").partition(b".")[0]) for record in log.records()]


def test_a_whole_log_is_left_alone(written: Path) -> None:
    before = {path.name: path.read_bytes() for path in written.iterdir()}
    assert cut_to_first_hole(str(written), 0, preallocated=True) is None
    assert {path.name: path.read_bytes() for path in written.iterdir()} == before


@pytest.mark.parametrize(("flushed", "row"), [(0, 3), (3, 3), (0, 0)])
def test_nothing_stays_behind_a_hole(written: Path, flushed: int, row: int,
                                     caplog: pytest.LogCaptureFixture) -> None:
    """Also in the segment at which the recovery begins."""
    at, point, following = bases(written)[row], bases(written)[flushed], bases(written)[row + 1]
    log = written / f"{at:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING):
        end = cut_to_first_hole(str(written), point)
    assert end is not None and at <= end < bases(written)[-1] + 2
    assert caplog.messages == [f"A power cut left no records of {written} from {end} to "
                               f"{following - 1}: the records after them are removed"]
    assert bases(written)[-1] == at
    assert all(int(path.stem) <= end for path in written.glob("*.snapshot"))
    assert cut_to_first_hole(str(written), 0) is None


def test_zeros_in_the_place_of_a_segment(written: Path) -> None:
    at = bases(written)[3]
    log = written / f"{at:020d}.log"
    log.write_bytes(bytes(log.stat().st_size))
    (written / f"{bases(written)[5]:020d}.index").unlink()
    with syncs() as synced:
        assert cut_to_first_hole(str(written), 0) == at
    assert (log, b"") in synced
    assert synced[-1] == (written, sorted(os.listdir(written)))
    assert bases(written)[-1] == at and log.stat().st_size == 0
    assert (written / f"{at:020d}.snapshot").exists(), "recovery begins with it"


def test_zeros_behind_a_segment_below_the_recovery_point(written: Path) -> None:
    first, last = bases(written)[0], bases(written)[-1]
    log = written / f"{first:020d}.log"
    whole = log.read_bytes()[:-1] + b"!"  # no CRC is checked there
    log.write_bytes(whole + bytes(3000))
    assert cut_to_first_hole(str(written), last) is None
    assert log.stat().st_size == len(whole) + 3000
    assert cut_to_first_hole(str(written), last, preallocated=True) is None
    assert log.read_bytes() == whole
    log.write_bytes(whole + b"\1" * 30)
    assert cut_to_first_hole(str(written), last, preallocated=True) is None
    assert log.stat().st_size == len(whole) + 30, "not the zeros of a preallocation"


def test_a_hole_behind_zeros_below_the_recovery_point(written: Path) -> None:
    *before, point, at = bases(written)[:5]
    wholes = {base: (written / f"{base:020d}.log").read_bytes() for base in before}
    for base, whole in wholes.items():
        (written / f"{base:020d}.log").write_bytes(whole + bytes(3000))
    os.truncate(written / f"{at:020d}.log", 0)
    assert cut_to_first_hole(str(written), point, preallocated=True) == at
    assert bases(written) == [*before, point, at]
    assert {base: (written / f"{base:020d}.log").read_bytes() for base in before} == wholes


@pytest.mark.parametrize("row", [-1, -2, 0])
def test_a_batch_without_its_offset(tmp_path: Path, row: int, caplog: pytest.LogCaptureFixture
                                    ) -> None:
    """Its base offset, which no CRC covers, was alone in a sector that the power cut took. Kafka's
    loader fails there, or empties the segment."""
    config = CONFIG | {"internal.segment.bytes": "1000"}
    with seglog.open(tmp_path / "t-0", config=config) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 0\n")
    at = bases(tmp_path / "t-0")[row]
    log_file = tmp_path / "t-0" / f"{at:020d}.log"
    data = bytearray(log_file.read_bytes())
    second = int.from_bytes(data[8:12], "big") + 12
    data[second:second + 8] = bytes(8)
    log_file.write_bytes(data)
    assert offsets(tmp_path / "t-0", config) == [*range(at + 1)]
    if row == -1:
        assert (f"A power cut left no offset of the batch at byte {second} of {log_file}: "
                f"{len(data) - second} bytes from there on are removed") in caplog.messages


def test_a_first_batch_without_its_offset(tmp_path: Path) -> None:
    """0 is the offset before the segment."""
    with seglog.open(tmp_path / "t-0", config=CONFIG) as log:
        log.append(b"0")
        log.log.roll()
        log.append(b"1")
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 0\n")
    with (tmp_path / "t-0" / f"{1:020d}.log").open("r+b") as file:
        file.write(bytes(8))
    assert offsets(tmp_path / "t-0") == [0]


def test_a_batch_that_reaches_into_the_next_segment(written: Path) -> None:
    """A truncation was not durable when the next segment's name was."""
    at, behind = bases(written)[3:5]
    log = written / f"{at:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole + (written / f"{behind:020d}.log").read_bytes())
    assert cut_to_first_hole(str(written), 0) is None
    assert log.read_bytes() == whole


def test_seglog_open_begins_with_it(written: Path) -> None:
    at = bases(written)[3]
    (written.parent / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    log = written / f"{at:020d}.log"
    log.write_bytes(log.read_bytes()[:-1])
    found = values(written)
    assert found == list(range(len(found))) and at <= len(found) < 20


def test_a_compacted_log_has_gaps_that_are_no_holes(written: Path) -> None:
    """Only bytes that are no batch are a hole in it."""
    at = bases(written)[3]
    log = written / f"{at:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:int.from_bytes(whole[8:12], "big") + 12])  # its first batch
    before = bases(written)
    assert cut_to_first_hole(str(written), 0, may_have_gaps=True) is None
    assert bases(written) == before
    log.write_bytes(bytes(len(whole)))
    assert cut_to_first_hole(str(written), 0, may_have_gaps=True) == at
    assert bases(written)[-1] == at


@pytest.mark.parametrize("checkpoint", [None, b"\xff", b"0\n1\nt 0 many\n"])
def test_a_log_that_was_compacted_has_them_whatever_its_settings_are_now(
        tmp_path: Path, checkpoint: bytes | None) -> None:
    """A killed process loses nothing, also if the next one does not know of the compaction."""
    config = CONFIG | {"cleanup.policy": "compact"}
    with seglog.open(tmp_path / "of" / "t-0", config=config) as log:
        for number in range(30):
            log.append(b"." * 120, key=b"%d" % (number % 3 if number < 20 else number))
        log.compact()
        expected = [record.offset for record in log.records()]
        assert expected == list(range(17, 30))
        shutil.copytree(tmp_path / "of", tmp_path / "killed", ignore=lambda *_: [".lock"])
    if checkpoint is not None:
        (tmp_path / "killed" / "cleaner-offset-checkpoint").write_bytes(checkpoint)
    with seglog.open(tmp_path / "killed" / "t-0") as log:
        assert log.log_end_offset == 30
        assert [record.offset for record in log.records()] == expected


def test_a_compacted_log_opens_after_zeros(tmp_path: Path) -> None:
    """Its last segment has no indexes and no snapshot: the load reads the zeros before it."""
    config = CONFIG | {"cleanup.policy": "compact"}
    with seglog.open(tmp_path / "t-0", config=config) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120, key=b"%d" % number)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    *_, zeros, last = bases(tmp_path / "t-0")
    hole = tmp_path / "t-0" / f"{zeros:020d}.log"
    hole.write_bytes(bytes(hole.stat().st_size))
    for name in (f"{last:020d}.index", f"{last:020d}.timeindex", f"{last:020d}.snapshot"):
        (tmp_path / "t-0" / name).unlink()
    with seglog.open(tmp_path / "t-0", config=config) as log:
        assert log.log_end_offset == zeros
        assert [record.offset for record in log.records()] == list(range(zeros))


# ---- gaps that are no holes -------------------------------------------------------------------


def offsets(path: Path, config: dict[str, str] | None = None) -> list[int]:
    """What the next program finds; the path is a copy that a killed one left."""
    with seglog.open(path, config=config or CONFIG) as log:
        found = [record.offset for record in log.records()]
        assert log.append(b"and on", key=b"k") == log.log_end_offset - 1 > found[-1]
        return found


def killed(path: Path, name: str = "killed") -> Path:
    """The partition directory as it is, in a data directory that no process has."""
    target = path.parent.parent / name
    shutil.copytree(path.parent, target, ignore=lambda *_: [".lock"])
    return target / path.name


def replicated(offset: int) -> bytes:
    return v2.encode(v2.Batch(offset, 0, [v2.Record(offset, 1, b"k", b"." * 120)],
                              base_timestamp=1, max_timestamp=1))


GAPS = [10 * number for number in range(12)]


def with_gaps(path: Path) -> Path:
    """The log of a follower whose leader has lost records to a cleaner."""
    log = seglog.open(path, config=CONFIG)
    for offset in GAPS:
        log.log.append_as_follower(replicated(offset), 0)
    found = killed(path)
    log.close()
    return found


def test_a_follower_keeps_its_gaps(tmp_path: Path) -> None:
    path = with_gaps(tmp_path / "of" / "t-0")
    assert len(bases(path)) > 4
    assert offsets(path) == GAPS


def test_a_follower_is_flushed_where_a_gap_begins_a_segment(tmp_path: Path) -> None:
    """What it acknowledged is durable, because the recovery point has passed the gap."""
    log = seglog.open(tmp_path / "t-0", config=CONFIG)
    for offset in GAPS:
        log.log.append_as_follower(replicated(offset), 0)
        point = int((tmp_path / RECOVERY_POINT_CHECKPOINT).read_text().split()[-1])
        assert point == log.log.recovery_point and point >= bases(tmp_path / "t-0")[-1]
    log.close()


def test_a_follower_without_a_gap_is_not_flushed(tmp_path: Path) -> None:
    with seglog.open(tmp_path / "t-0", config=CONFIG) as log:
        for offset in range(2):
            log.log.append_as_follower(replicated(offset), 0)
        assert log.log.recovery_point == 0
        log.log.truncate_to(1)
        assert log.log.recovery_point == 0


@pytest.mark.parametrize("place", ["alone", "broker"])
def test_a_log_from_elsewhere_keeps_its_gaps(tmp_path: Path, place: str) -> None:
    """Alone it has no recovery point. A broker writes high watermarks more often than those."""
    path = with_gaps(tmp_path / "of" / "t-0")
    checkpoint = path.parent / RECOVERY_POINT_CHECKPOINT
    if place == "alone":
        for file in path.parent.glob("*-checkpoint"):
            file.unlink()
    else:
        checkpoint.write_text("0\n1\nt 0 0\n")
        (path.parent / HIGH_WATERMARK_CHECKPOINT).write_text("0\n1\nt 0 0\n")
    log = seglog.open(path, config=CONFIG)
    log.append(b"x")
    again = killed(path, "again")
    log.close()
    assert offsets(again) == [*GAPS, GAPS[-1] + 1], "the next open knows of them, too"
    assert offsets(path) == [*GAPS, GAPS[-1] + 1]


def test_a_new_log_has_a_recovery_point_at_once(tmp_path: Path) -> None:
    """It is the mark of a log that has no gaps."""
    log = seglog.open(tmp_path / "of" / "t-0", config=CONFIG)
    for number in range(20):
        log.append(b"%d" % number + b"." * 120)
    path = killed(tmp_path / "of" / "t-0")
    log.close()
    at = bases(path)[3]
    file = path / f"{at:020d}.log"
    file.write_bytes(file.read_bytes()[:int.from_bytes(file.read_bytes()[8:12], "big") + 12])
    assert offsets(path) == list(range(at + 1))


def test_a_gap_below_the_recovery_point_is_no_hole(written: Path) -> None:
    at, behind = bases(written)[3:5]
    log = written / f"{at:020d}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:int.from_bytes(whole[8:12], "big") + 12])
    before = bases(written)
    assert cut_to_first_hole(str(written), behind) is None
    assert bases(written) == before
    assert cut_to_first_hole(str(written), at + 1) == at + 1


def test_a_replacement_that_was_interrupted_loses_nothing(written: Path) -> None:
    """The segment's new files wait for their names, which the load gives them."""
    at = bases(written)[3]
    for kind in ("log", "index", "timeindex"):
        file = written / f"{at:020d}.{kind}"
        file.rename(f"{file}.swap")
    (written.parent / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 0\n")
    assert values(written) == list(range(20))


def test_a_killed_round_leaves_gaps_that_the_next_program_keeps(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it does not know of the compaction, before whose end the first segments are swapped
    in."""
    config = CONFIG | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    swap, images = Round._swap, list[Path]()
    with seglog.open(tmp_path / "of" / "t-0", config=config) as log:
        for number in range(30):
            log.append(b"." * 120, key=b"%d" % (number % 3 if number < 20 else number))

        def swapped(self: Round, *what: object) -> None:
            swap(self, *what)  # type: ignore[arg-type]
            images.append(killed(tmp_path / "of" / "t-0", f"killed-{len(images)}"))

        monkeypatch.setattr(Round, "_swap", swapped)
        log.compact()
        assert len(images) > 2
    for image in images:
        assert offsets(image)[-10:] == list(range(20, 30))


def test_a_compacted_log_that_was_truncated_keeps_its_gaps(tmp_path: Path) -> None:
    """Its line in the cleaner's checkpoint was above its end, and stayed a line."""
    config = CONFIG | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}
    with seglog.open(tmp_path / "of" / "t-0", config=config) as log:
        for number in range(30):
            log.append(b"." * 120, key=b"%d" % (number % 3))
        log.compact()
        for _ in range(4):
            log.append(b"." * 120, key=b"k")
        log.log.truncate_to(29)
    log = seglog.open(tmp_path / "of" / "t-0", config=config)
    expected = [record.offset for record in log.records()]
    assert expected == [27, 28]
    path = killed(tmp_path / "of" / "t-0")
    log.close()
    (path.parent / RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 0\n")
    assert offsets(path) == expected


def test_a_log_that_was_truncated_in_a_gap_keeps_it(tmp_path: Path) -> None:
    """Its next segment begins at the end that the truncation gave it, after the gap."""
    log = seglog.open(tmp_path / "of" / "t-0", config=CONFIG)
    log.append(b"0")
    log.log.append_as_follower(replicated(10), 0)
    log.log.truncate_to(7)
    log.log.roll()
    assert log.append(b"7") == 7 and bases(tmp_path / "of" / "t-0") == [0, 7]
    path = killed(tmp_path / "of" / "t-0")
    log.close()
    assert offsets(path) == [0, 7]


# ---- deletions that a crash ended ---------------------------------------------------------------


def test_a_killed_truncation_leaves_no_hole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    images = list[Path]()
    rename = RealDisk.rename

    def renamed(disk: RealDisk, *names: str) -> bool:
        images.append(killed(tmp_path / "of" / "t-0", f"killed-{len(images)}"))
        return rename(disk, *names)

    with seglog.open(tmp_path / "of" / "t-0", config=CONFIG) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120)
    with seglog.open(tmp_path / "of" / "t-0", config=CONFIG) as log:
        assert len(bases(tmp_path / "of" / "t-0")) == 10 and log.log.recovery_point == 20
        monkeypatch.setattr(RealDisk, "rename", renamed)
        log.log.truncate_to(5)
        monkeypatch.undo()
    assert len(images) > 10
    for image in images:
        found = offsets(image)
        assert found == list(range(len(found))) and len(found) >= 5


def test_segments_of_a_truncation_are_gone_before_the_end_of_the_one_that_stays(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Durably: a power cut would bring them back after it."""
    path = tmp_path / "t-0"
    with seglog.open(path, config=CONFIG) as log:
        for number in range(20):
            log.append(b"%d" % number + b"." * 120)
        resize, seen = RealDisk.resize, list[bool]()
        with syncs() as synced:
            def resized(disk: RealDisk, name: str, size: int) -> None:
                if name.endswith(".log"):
                    directories = [names for place, names in synced if place == path]
                    seen.append(bool(directories) and f"{6:020d}.log" not in directories[-1])
                resize(disk, name, size)

            monkeypatch.setattr(RealDisk, "resize", resized)
            log.log.truncate_to(5)
            monkeypatch.undo()
        assert seen == [True]


def test_segments_below_the_start_of_the_log_are_removed(tmp_path: Path,
                                                         caplog: pytest.LogCaptureFixture) -> None:
    """A power cut brought them back, without what was never flushed of them, as they count as
    durable. No reader sees them, but `seglog verify` and a cleaner do."""
    log = seglog.open(tmp_path / "of" / "t-0", config=CONFIG)
    for number in range(20):
        log.append(b"%d" % number + b"." * 120)
    before = killed(tmp_path / "of" / "t-0", "before")
    log.delete_before(13)
    path = killed(tmp_path / "of" / "t-0")
    log.close()
    for at in (4, 6, 8):
        shutil.copy(before / f"{at:020d}.log", path)
    damaged = path / f"{8:020d}.log"
    damaged.write_bytes(bytes(damaged.stat().st_size))
    copy = killed(path, "copy")
    with syncs() as synced:
        remove_below_start(str(copy), 13)
    assert synced == [(copy, sorted(os.listdir(copy)))]
    with caplog.at_level(logging.INFO, "seglog.UnifiedLog"):
        assert offsets(path) == [*range(13, 20)]
    assert f"Removed segments of {path}, whose deletion a crash ended, from 4 to below 12" \
        in caplog.messages
    assert bases(path)[0] == 12
    assert main(["verify", str(path.parent)]) == 0


# ---- checkpoints after a truncation -----------------------------------------------------------


def test_a_truncation_writes_the_recovery_point(tmp_path: Path) -> None:
    """Without it the next recovery would trust what was appended since, and never flushed."""
    log = seglog.open(tmp_path / "of" / "t-0", config=CONFIG)
    for number in range(20):
        log.append(b"%d" % number + b"." * 120)
    log.flush()
    log.delete_before(1)  # writes the recovery point
    log.log.truncate_to(6)
    for number in range(6, 30):
        log.append(b"%d" % number + b"." * 120)
    path = killed(tmp_path / "of" / "t-0")
    log.close()
    at = bases(path)[4]
    file = path / f"{at:020d}.log"
    file.write_bytes(file.read_bytes()[:-1])
    found = offsets(path)
    assert found == list(range(1, len(found) + 1)) and at <= found[-1] + 1 < at + 2


def test_a_log_that_begins_again_below_its_start_is_kept(tmp_path: Path) -> None:
    """The start on the disk was above its new end, where a load deletes all segments."""
    log = seglog.open(tmp_path / "of" / "t-0", config=CONFIG)
    for number in range(20):
        log.append(b"%d" % number)
    log.delete_before(15)
    log.log.truncate_fully_and_start_at(2)
    assert log.append(b"2") == 2
    path = killed(tmp_path / "of" / "t-0")
    log.close()
    assert offsets(path) == [2]
