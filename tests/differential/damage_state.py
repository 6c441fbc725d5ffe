"""Damage to what stands around a log: indexes, snapshots, epochs, checkpoints, the marker."""

from __future__ import annotations

import dataclasses
import os
import shutil
import struct

from tests.differential.registry import base_of, end_of, kind, last_of
from tests.oracle import files
from tests.oracle.files import ProducerEntry
from tests.support.damage import Target, poke, whole_entries

_WIDTHS = {".index": 8, ".timeindex": 12, ".txnindex": 34}


def interesting_offset(t: Target) -> int:
    """An offset at, just beside or far from what the log has boundaries at."""
    path = t.log()
    base, end = int(path.name[:20]), end_of(t)
    entry = t.entry(path)
    around = [base, base - 1, base + 1, end, end - 1, end + 1, end // 2, end + 10**6, 0, 1,
              2**63 - 1, 2**63 - 2, 2**31, 2**31 + 1]
    if entry is not None:
        around += [base_of(entry), base_of(entry) + 1, last_of(entry), last_of(entry) + 1] * 2
    return min(t.random.choice(around), 2**63 - 1)


@kind
def index_cut(t: Target) -> str | None:
    suffix, width = t.random.choice(list(_WIDTHS.items()))
    path = t.some(suffix)
    if path is None or not path.stat().st_size:
        return None
    size = t.random.randrange(path.stat().st_size // width + 1) * width
    size += t.random.choice([0, 0, 1, width // 2, width - 1])
    os.truncate(path, size)
    return f"{path.name} cut to {size}"


@kind
def index_bit_flipped(t: Target) -> str | None:
    path = t.some(t.random.choice(list(_WIDTHS)))
    if path is None or not path.stat().st_size:
        return None
    data = path.read_bytes()
    used = len(data.rstrip(b"\0")) or len(data)
    at = t.random.randrange(used)
    poke(path, at, bytes([data[at] ^ 1 << t.random.randrange(8)]))
    return f"{path.name} one bit at {at}"


@kind
def index_grown(t: Target) -> str | None:
    """Preallocated again, also beyond what the configuration allows."""
    path = t.some(t.random.choice([".index", ".timeindex"]))
    if path is None:
        return None
    size = t.random.choice([8, 12, 24, 96, 1000, 16384, 16380, 16385, 20000, 65536])
    if size < path.stat().st_size and t.random.random() < .7:
        return None
    os.truncate(path, size)
    return f"{path.name} of {size} bytes, zeros at its end"


@kind
def index_of_last_entry(t: Target) -> str | None:
    """A last entry that points into the middle, to the end, or behind it."""
    path = t.log(last=t.random.random() < .8)
    index = path.with_suffix(".index")
    entry = t.entry(path)
    if entry is None or not index.exists():
        return None
    raw = index.read_bytes()
    used = len(raw.rstrip(b"\0") + bytes(7)) // 8 * 8
    relative = last_of(entry) - int(path.name[:20])
    position = t.random.choice([entry.position, entry.position + 1, entry.position + entry.size,
                                path.stat().st_size, path.stat().st_size - 5, 0, -1, 2**31 - 1])
    if not 0 <= relative < 2**31:
        return None
    at = max(0, used - 8) if t.random.random() < .5 else used
    with open(index, "r+b") as file:
        file.seek(at)
        file.write(struct.pack(">ii", relative, position))
        if t.random.random() < .5:
            file.truncate()
    return f"{index.name} last entry {relative} at {position}"


@kind
def txnindex_added(t: Target) -> str | None:
    """Entries of transactions that never were; sound, or out of their segment."""
    path = t.log().with_suffix(".txnindex")
    base, end = int(path.name[:20]), end_of(t)
    entries = [files.AbortedTransaction(
        t.random.choice([1, 2000, -1]), t.random.choice([base, 0, end]),
        t.random.choice([base, base - 1, base + 3, end, 2**40]), t.random.choice([base, end]))
        for _ in range(t.random.randint(0, 3))]
    old = path.read_bytes() if path.exists() and t.random.random() < .5 else b""
    path.write_bytes(old + files.encode_txn_index(entries))
    return f"{path.name} with {entries}"


@kind
def snapshot_added(t: Target) -> str | None:
    """A copy of a snapshot, or an empty or broken one, at some other offset."""
    offset = max(0, interesting_offset(t))
    path, source = t.dir / f"{offset:020d}.snapshot", t.some(".snapshot")
    name, raw = t.random.choice([
        ("copied", source.read_bytes() if source else b""), ("of none", files.encode_snapshot([])),
        ("empty", b""), ("random", t.random.randbytes(56))])
    path.write_bytes(raw)
    return f"{path.name} {name}"


@kind
def snapshot_resealed(t: Target) -> str | None:
    """A snapshot that is wrong under a right CRC."""
    path = t.some(".snapshot")
    if path is None:
        return None
    try:
        entries = files.decode_snapshot(path.read_bytes())
    except ValueError:
        entries = []
    end = end_of(t)
    strange = ProducerEntry(t.random.choice([0, 1, 77, -1, 2000]), t.random.choice([0, 3, -1]),
                            t.random.choice([-1, 0, 9, 2**31 - 1]),
                            t.random.choice([-1, 0, end - 1, end + 9]), t.random.choice([0, 3, -1]),
                            t.random.choice([-1, 0, 4_000_000_000_000, 2**63 - 1, -2**63]),
                            t.random.choice([-1, 0, 5]), t.random.choice([-1, 0, 1, end, end + 7]))
    if entries and t.random.random() < .5:
        at = t.random.randrange(len(entries))
        name = t.random.choice([field.name for field in dataclasses.fields(strange)])
        entries[at] = dataclasses.replace(entries[at], **{name: getattr(strange, name)})
    else:
        entries.append(strange)
    if t.random.random() < .2:
        entries += entries[:1]
    path.write_bytes(files.encode_snapshot(entries))
    return f"{path.name} with {strange}"


@kind
def snapshot_kept_alone(t: Target) -> str | None:
    """All but one, or all but the newest few."""
    found = t.files(".snapshot")
    if len(found) < 2:
        return None
    kept = set(t.random.sample(found, t.random.randint(1, len(found) - 1)))
    for path in found:
        if path not in kept:
            path.unlink()
    return f"only {sorted(path.name for path in kept)} kept"


@kind
def epochs_rewritten(t: Target) -> str | None:
    """A checkpoint that parses, with entries in and out of the log and in and out of order."""
    count = t.random.randint(0, 5)
    entries = [(t.random.choice([0, 1, 2, 3, 5, 8, 100, 2**31 - 1, -1]), interesting_offset(t))
               for _ in range(count)]
    if t.random.random() < .6:
        entries = list(zip(sorted(epoch for epoch, _ in entries),
                           sorted(start for _, start in entries), strict=True))
    text = files.encode_checkpoint([f"{epoch} {start}" for epoch, start in entries])
    (t.dir / "leader-epoch-checkpoint").write_text(text)
    return f"leader-epoch-checkpoint {entries}"


@kind
def epochs_leftover(t: Target) -> str | None:
    """The temporary file of a checkpoint that was being replaced."""
    name = t.random.choice(["leader-epoch-checkpoint", "partition.metadata"])
    path, other = t.dir / name, t.dir / f"{name}.tmp"
    if path.exists():
        shutil.copy(path, other)
        if t.random.random() < .5:
            path.unlink()
    else:
        other.write_bytes(b"0\n0\n")
    return f"{other.name} left behind"


def _set_checkpoint(t: Target, name: str, offset: int) -> None:
    topic, _, number = t.partition.rpartition("-")
    (t.root / name).write_text(files.encode_checkpoint([f"{topic} {number} {offset}"]))


@kind
def recovery_point_moved_near(t: Target) -> str | None:
    offset = interesting_offset(t)
    _set_checkpoint(t, "recovery-point-offset-checkpoint", offset)
    return f"recovery point {offset}"


@kind
def start_offset_moved_near(t: Target) -> str | None:
    offset = interesting_offset(t)
    _set_checkpoint(t, "log-start-offset-checkpoint", offset)
    return f"log start offset {offset}"


@kind
def both_offsets_moved(t: Target) -> str | None:
    found = []
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        found.append(interesting_offset(t))
        _set_checkpoint(t, name, found[-1])
    return f"recovery point {found[0]}, log start offset {found[1]}"


@kind
def offset_negative(t: Target) -> str | None:
    name = t.random.choice(["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
    offset = t.random.choice([-1, -2, -2**63, -100])
    _set_checkpoint(t, name, offset)
    return f"{name} {offset}"


@kind
def checkpoints_gone(t: Target) -> str | None:
    names = ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
             "leader-epoch-checkpoint", "partition.metadata"]
    gone = t.random.sample(names, t.random.randint(1, len(names)))
    for name in gone:
        (t.root / name).unlink(missing_ok=True)
        (t.dir / name).unlink(missing_ok=True)
    return f"removed {gone}"


@kind
def marker_gone(t: Target) -> str | None:
    """Unclean, and everything from the recovery point on is read."""
    (t.root / ".kafka_cleanshutdown").unlink(missing_ok=True)
    if t.random.random() < .5:
        (t.root / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    return "no marker"


@kind
def clean_but_unflushed(t: Target) -> str | None:
    """A wrong marker: the tail of the log was not closed cleanly."""
    (t.root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    path = t.log(last=True)
    entries = whole_entries(path)
    if entries and t.random.random() < .5:
        os.truncate(path, entries[-1].position + t.random.randrange(entries[-1].size))
        return f"marker added, {path.name} torn"
    return "marker added"
