"""Seeded damage to a broker's tier: whatever is read is true, and what is lost is reported."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from seglog.errors import SeglogError
from seglog.storage.partition_log import PartitionLog
from seglog.storage.ranges import LogGap
from seglog.tiered import open_bucket
from tests.support.effort import quick_first
from tests.tiered.conftest import Row, Tiered, read, rows_of

NAMES = ("t-gzip-0", "t-epochs-0", "t-none-0", "t-txn-0", "t-start-0")
KINDS = (".log", ".log", ".index", ".leader_epoch_checkpoint", ".snapshot", ".timeindex")
DAMAGES = ("cut", "gone", "flip", "extend", "empty", "zero", "swap", "other")


def damage(tier: Tiered, name: str, kind: str, how: str, rng: random.Random) -> set[int]:
    """Damages one object, or swaps two; returns the start offsets of their segments."""
    paths = tier.objects(name, kind)
    path = rng.choice(paths)
    content, hit = path.read_bytes(), {int(path.name[:20])}
    if how == "gone":
        path.unlink()
    elif how == "swap":
        other = rng.choice(paths)
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        hit.add(int(other.name[:20]))
    elif how == "other":
        topic = rng.choice([one for one in NAMES if one != name])
        # Of the same offset only the metadata topic could tell: see test_tier_damage.
        path.write_bytes(rng.choice([one for one in tier.objects(topic, kind)
                                     if one.name[:20] != path.name[:20]]).read_bytes())
    elif how == "extend":
        path.write_bytes(content + rng.choice([rng.randbytes(rng.randint(1, 300)), content,
                                               bytes(rng.randint(1, 300))]))
    else:
        at = rng.randrange(len(content) + 1)
        changed = {"cut": content[:at], "empty": b"", "zero": content[:at].ljust(
            len(content), b"\0"), "flip": content[:at] + bytes(
                byte ^ 1 << rng.randrange(8) for byte in content[at:at + 1]) + content[at + 1:]}
        path.write_bytes(changed[how])
    return hit


def offsets_of(tier: Tiered, name: str, starts: set[int], end: int) -> set[int]:
    """The offsets of the segments that begin there."""
    bases = sorted({int(path.name[:20]) for path in tier.objects(name)})
    following = dict(zip(bases, [*bases[1:], end], strict=True))
    return {offset for start in starts for offset in range(start, following[start])}


@pytest.mark.parametrize("seed", quick_first(range(200), 30))
def test_what_is_read_is_true(tiered: Tiered, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(NAMES)
    topic, _, partition = name.rpartition("-")
    shutil.copytree(tiered.remote, tmp_path / "remote")
    damaged = Tiered(tmp_path)
    first_local = int(PartitionLog.open(tiered.data / name).segments.base_offsets[0])
    how, kind = rng.choice(DAMAGES), rng.choice(KINDS)
    hit = damage(damaged, name, kind, how, rng)
    lost = offsets_of(tiered, name, hit, first_local) if kind == ".log" else set()
    for local, metadata in ((True, True), (False, True), (False, False)):
        if local:
            # The metadata topic is beside the partition.
            log = PartitionLog.open(tiered.data / name, remote=damaged.remote)
        else:
            log = open_bucket(damaged.remote, metadata=tiered.data if metadata else ()).log(
                topic, int(partition), log_start_offset=tiered.marks()[name][0])
        rows = [row for row in tiered.rows(name, "read_uncommitted")
                if local or row.offset < first_local]
        # Names do not say what is absent at the ends, the tier's end is where its segments end.
        is_open_ended = not local and (first_local - 1 in lost or (
            not metadata and min(lost, default=-1) <= log.log_start_offset))
        check(log, rows, lost, is_open_ended, (how, kind, sorted(hit), local, metadata))


def check(log: PartitionLog, rows: list[Row], lost: set[int], is_open_ended: bool,
          about: object) -> None:
    """One that raises reads up to the damage; one that skips it loses the damaged segment at
    most."""
    try:
        assert read(log) == rows or is_open_ended, about
    except SeglogError:
        assert lost, about
    gaps: list[LogGap] = []
    found = [row for batch in log.to_arrow(
        columns=["offset", "timestamp", "key", "value", "headers"], on_damage="skip",
        on_gap=gaps.append) for row in rows_of(batch)]
    assert set(row.offset for row in found) >= {row.offset for row in rows} - lost, about
    assert [row for row in rows if row.offset in {one.offset for one in found}] == found, about
    assert len(found) == len(rows) or gaps or is_open_ended, about
