"""More damage for whole data directories: what no other kind makes out of one partition at once,
and contents at their limits. They register beside those of `damage_whole`."""

from __future__ import annotations

import os
import shutil
import socket
import struct

from tests.differential.damage_state import interesting_offset
from tests.differential.damage_whole import KINDS, whole
from tests.differential.registry import end_of, kinds
from tests.oracle import files
from tests.oracle.wire import crc32c
from tests.support.damage import Target, whole_entries

__all__ = ["KINDS"]

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_ENDINGS = (".swap", ".cleaned", ".deleted")
_LONGS = (-2**63, -1, 0, 1, 4_000_000_000_000, 2**63 - 1)


@whole
def several_damages(t: Target) -> str | None:
    """Many kinds for one log, one after the other."""
    names = sorted(set(kinds()) - {
        "directory_of_another_kind", "sealed_payload_flipped", "sealed_payload_cut",
        "sealed_payload_longer", "sealed_hostile_record", "decompressed_size_lies"})
    done = []
    for _ in range(t.random.choice([3, 5, 8])):
        name = t.random.choice(names)
        try:
            did = kinds()[name](t)
        except (AssertionError, OSError, IndexError, ValueError, struct.error):
            continue
        if did:
            done.append(f"{name}: {did}")
    return "; ".join(done) or None


@whole
def no_file_of_a_segment(t: Target) -> str | None:
    """Directories and sockets under the names of a segment's files, also temporary ones."""
    found = sorted(path for path in t.dir.iterdir() if path.is_file() and path.name[:20].isdigit())
    if not found:
        return None
    done = []
    for _ in range(t.random.choice([1, 1, 2, 3])):
        number = t.random.choice(found).name[:20]
        suffix, ending = t.random.choice(_SUFFIXES), t.random.choice(_ENDINGS)
        path = t.dir / f"{number}{suffix}{ending}"
        if path.is_dir():
            continue
        path.unlink(missing_ok=True)
        if t.random.random() < .5:
            path.mkdir()
            if t.random.random() < .5:
                (path / "inside").write_bytes(b"")
        else:
            with socket.socket(socket.AF_UNIX) as one:
                here = os.getcwd()
                os.chdir(t.dir)  # the name of a socket must be short
                try:
                    one.bind(path.name)
                finally:
                    os.chdir(here)
        done.append(path.name)
    return "; ".join(done) or None


@whole
def snapshot_of_another_form(t: Target) -> str | None:
    """Other versions and counts under a right CRC."""
    path = t.some(".snapshot")
    if path is None:
        return None
    raw = path.read_bytes()
    body = raw[10:] if len(raw) >= 10 else b""
    count = len(body) // 46
    version = t.random.choice([1, 1, 1, 1, 0, 2, 3, -1, 2**15 - 1])
    said = t.random.choice([count, count, count + 1, count - 1, -1, 0, 2**31 - 1, -2**31])
    body += t.random.choice([b"", b"", b"\0", bytes(46), b"\xff" * 46, t.random.randbytes(46)])
    rest = struct.pack(">i", said) + body
    path.write_bytes(struct.pack(">hI", version, crc32c(rest)) + rest)
    return f"{path.name} version {version}, {said} producers, {len(body)} bytes"


@whole
def time_index_odd(t: Target) -> str | None:
    """Entries at the limits of timestamps and offsets, ascending or not."""
    path = t.some(".timeindex", last=t.random.random() < .6)
    if path is None:
        return None
    entries = [(t.random.choice([*_LONGS, 1_600_000_000_000 + t.random.randrange(10**9)]),
                t.random.choice([0, 1, 5, 100, -1, 2**31 - 1, -2**31]))
               for _ in range(t.random.randint(1, 4))]
    if t.random.random() < .6:
        entries.sort()
    old = path.read_bytes().rstrip(b"\0") if t.random.random() < .5 else b""
    old += bytes(-len(old) % 12)
    path.write_bytes(old + b"".join(struct.pack(">qi", *one) for one in entries)
                     + bytes(t.random.choice([0, 0, 12, 24, 5])))
    return f"{path.name} ends with {entries}"


@whole
def times_of_files_odd(t: Target) -> str | None:
    """Times of files long ago and far ahead."""
    for path in t.dir.iterdir():
        if path.is_file():
            when = t.random.choice([0, -1, -10**9, 1, 2**31, 2**33, 1_600_000_000])
            os.utime(path, (when, when))
    return "times of files"


@whole
def partition_of_a_long_name(t: Target) -> str | None:
    """A topic whose name leaves little room for an ending."""
    number = t.partition.rpartition("-")[2]
    name = f"{'long' * 64}"[:t.random.choice([200, 208, 209, 210, 214, 215, 249, 252])]
    other = t.root / f"{name}-{number}"
    if other.exists():
        return None
    (os.replace if t.random.random() < .5 else shutil.copytree)(t.dir, other)
    for checkpoint in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        if t.random.random() < .5:
            (t.root / checkpoint).write_text(files.encode_checkpoint(
                [f"{name} {number} {max(0, interesting_offset(t))}"]))
    return f"{other.name}"


@whole
def everything_about_one_offset(t: Target) -> str | None:
    """The marker, the recovery point, the log start offset, the last epoch and a snapshot, at or
    beside the same place."""
    offset = interesting_offset(t)
    near = [offset, offset, max(0, offset - 1), min(2**63 - 1, offset + 1), 0, end_of(t)]
    topic, _, number = t.partition.rpartition("-")
    done = []
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        if t.random.random() < .7:
            done.append((name, t.random.choice(near)))
            path = t.root / name
            lines = [line for line in (path.read_text().splitlines()[2:] if path.exists() else [])
                     if not line.startswith(f"{topic} {number} ")]
            path.write_text(files.encode_checkpoint([*lines, f"{topic} {number} {done[-1][1]}"]))
    if t.random.random() < .5:
        starts = sorted({max(0, t.random.choice(near)) for _ in range(3)})
        (t.dir / "leader-epoch-checkpoint").write_text(files.encode_checkpoint(
            [f"{epoch} {start}" for epoch, start in enumerate(starts)]))
        done.append(("epochs", starts))  # type: ignore[arg-type]
    source = t.some(".snapshot")
    if t.random.random() < .5:
        path = t.dir / f"{max(0, t.random.choice(near)):020d}.snapshot"
        path.write_bytes(source.read_bytes() if source and t.random.random() < .6
                         else files.encode_snapshot([]))
        done.append((path.name, 0))
    marker = t.root / ".kafka_cleanshutdown"
    if t.random.random() < .4:
        marker.unlink(missing_ok=True)
    elif t.random.random() < .5:
        marker.write_text('{"version":0,"brokerEpoch":3}')
    return f"{done}, {'clean' if marker.exists() else 'unclean'}"


@whole
def swaps_of_whole_segments(t: Target) -> str | None:
    """All files of some segments as a compaction or a split leaves them, with their indexes."""
    bases = [path.name[:20] for path in t.files(".log") if path.name[:20].isdigit()]
    if not bases:
        return None
    done = []
    for base in t.random.sample(bases, min(len(bases), t.random.choice([1, 2, 3]))):
        ending = t.random.choice([".swap", ".swap", ".cleaned", ".deleted"])
        away = 0 if t.random.random() < .7 else t.random.choice([1, -1, 7])
        number = f"{int(base) + away:020d}"
        if number.startswith("-"):
            continue
        for suffix in _SUFFIXES:
            path = t.dir / f"{base}{suffix}"
            if path.is_file() and t.random.random() < .85:
                (os.replace if t.random.random() < .5 else shutil.copyfile)(
                    path, t.dir / f"{number}{suffix}{ending}")
        done.append(f"{number}{ending}")
    return "; ".join(done) or None


@whole
def same_batches_twice(t: Target) -> str | None:
    """A segment again under the base offset of one of its batches, or of a later segment."""
    path = t.log()
    found = whole_entries(path)
    if not found:
        return None
    entry = t.random.choice(found)
    base = int.from_bytes(entry.data[:8], "big", signed=True)
    if not 0 <= base < 2**63:
        return None
    other = t.dir / f"{base:020d}.log"
    if other == path:
        return None
    other.write_bytes(path.read_bytes()[t.random.choice([0, entry.position]):])
    return f"{other.name} holds what {path.name} has from {entry.position} on"


@whole
def checkpoint_in_another_code(t: Target) -> str | None:
    """Bytes before, inside and behind the lines of a checkpoint."""
    name = t.random.choice(["recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                            "cleaner-offset-checkpoint", f"{t.partition}/leader-epoch-checkpoint"])
    path = t.root / name
    raw = path.read_bytes() if path.exists() else b"0\n0\n"
    choice = t.random.randrange(8)
    raw = [b"\xef\xbb\xbf" + raw, raw.decode("latin-1").encode("utf-16"),
           raw.replace(b"\n", b"\r\n"), raw.replace(b"\n", b"\r"), raw + b"\0",
           raw.replace(b"\n", b"\n\n"), raw.rstrip(b"\n"), raw.replace(b" ", b"\t ")][choice]
    path.write_bytes(raw)
    return f"{name} {raw[:60]!r}"
