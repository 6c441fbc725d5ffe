"""Files that are gone, renamed, doubled or filled with zeros, and directories of other kinds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.differential.registry import kind
from tests.support.damage import Target

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_TEMPORARY = (".swap", ".cleaned", ".deleted")


def _any_file(t: Target) -> Path | None:
    found = sorted(path for path in t.dir.iterdir() if path.is_file())
    return t.random.choice(found) if found else None


def _numbered(t: Target) -> Path | None:
    found = sorted(path for path in t.dir.iterdir()
                   if path.is_file() and path.name[:20].isascii() and path.name[:20].isdigit())
    return t.random.choice(found) if found else None


def _offset(t: Target) -> int:
    bases = [int(path.name[:20]) for path in t.files(".log") if path.name[:20].isdigit()] or [0]
    return max(0, t.random.choice([*bases, *bases, t.random.choice(bases) + 1, bases[-1] + 500, 0,
                                   bases[0] - 1, 2**31, 2**62]))


@kind
def file_gone(t: Target) -> str | None:
    path = _any_file(t)
    if path is None:
        return None
    path.unlink()
    return f"{path.name} removed"


@kind
def file_zeroed(t: Target) -> str | None:
    """As a crash leaves a file whose size was journaled and whose bytes were not."""
    path = _any_file(t)
    if path is None or not path.stat().st_size:
        return None
    size = path.stat().st_size
    start = t.random.choice([0, 0, size // 2, max(0, size - 100)])
    with open(path, "r+b") as file:
        file.seek(start)
        file.write(bytes(size - start))
    return f"{path.name} zeros from {start} on"


@kind
def file_emptied(t: Target) -> str | None:
    path = _any_file(t)
    if path is None:
        return None
    os.truncate(path, 0)
    return f"{path.name} emptied"


@kind
def file_cut(t: Target) -> str | None:
    path = _any_file(t)
    if path is None or not path.stat().st_size:
        return None
    size = t.random.randrange(path.stat().st_size)
    os.truncate(path, size)
    return f"{path.name} cut to {size}"


@kind
def file_doubled(t: Target) -> str | None:
    """A copy under another number, another suffix, or both."""
    path = _numbered(t)
    if path is None:
        return None
    suffix = t.random.choice([path.name[20:], path.name[20:], *_SUFFIXES])
    other = t.dir / f"{_offset(t):020d}{suffix}"
    if other != path:
        shutil.copy(path, other)
    return f"{path.name} copied to {other.name}"


@kind
def file_renamed(t: Target) -> str | None:
    path = _numbered(t)
    if path is None:
        return None
    suffix = t.random.choice([path.name[20:], path.name[20:], *_SUFFIXES])
    other = t.dir / f"{_offset(t):020d}{suffix}"
    os.replace(path, other)
    return f"{path.name} renamed to {other.name}"


@kind
def suffixes_left(t: Target) -> str | None:
    """Any files copied or renamed to any temporary name, in any combination."""
    done = []
    for _ in range(t.random.choice([1, 1, 2, 3, 5, 8])):
        path = _numbered(t)
        if path is None:
            break
        name = path.name.split(".")
        ending = t.random.choice(_TEMPORARY)
        number = name[0] if t.random.random() < .7 else f"{_offset(t):020d}"
        other = t.dir / f"{number}.{name[1]}{ending}"
        if t.random.random() < .5:
            os.replace(path, other)
            done.append(f"{path.name} -> {other.name}")
        else:
            shutil.copy(path, other)
            done.append(f"{path.name} copied to {other.name}")
    return "; ".join(done) or None


@kind
def temporaries_of_others(t: Target) -> str | None:
    """Temporary names that belong to no segment."""
    name = t.random.choice([
        "leader-epoch-checkpoint.deleted", "00000000000000000003-0000000001.checkpoint.deleted",
        "00000000000000000005.snapshot.deleted", "00000000000000000005.log.deleted",
        "00000000000000000000.log.cleaned", "00000000000000000000.snapshot.swap", "x.swap",
        "00000000000000000900.index.swap", "5.log.cleaned", "00000000000000000007.swap",
        "00000000000000000005.timeindex.cleaned", "partition.metadata.swap", ".cleaned",
        "00000000000000000000.txnindex.swap", "-5.log.swap", "9223372036854775807.log.swap",
        "00000000000000000005.log.swap.deleted", "00000000000000000005.foo.swap",
        "00000000000000000010.part", "00000000000000000010.log.part", "1.2.3.deleted"])
    (t.dir / name).write_bytes(t.random.choice([b"", bytes(24), t.random.randbytes(40)]))
    return f"{name} added"


@kind
def segment_at_the_end_of_offsets(t: Target) -> str | None:
    base = t.random.choice([2**63 - 1, 2**63 - 2, 2**62, 2**31, 2**33 + 5])
    path = t.dir / f"{base:020d}.log"
    path.write_bytes(t.random.choice([b"", t.log().read_bytes()]))
    if t.random.random() < .5:
        path.with_suffix(".index").write_bytes(b"")
    return f"{path.name} added"


@kind
def empty_segments(t: Target) -> str | None:
    """Empty logs between and behind the others, with and without indexes."""
    done = []
    for _ in range(t.random.randint(1, 3)):
        path = t.dir / f"{_offset(t):020d}.log"
        if not path.exists():
            path.write_bytes(b"")
            done.append(path.name)
            for suffix in (".index", ".timeindex"):
                if t.random.random() < .5:
                    path.with_suffix(suffix).write_bytes(
                        bytes(t.random.choice([0, 0, 24, 16368])))
    return f"empty {done}" if done else None


@kind
def only_some_files(t: Target) -> str | None:
    """Nothing but files of one kind is left."""
    kept = t.random.choice([(".log",), (".index",), (".snapshot",), (".timeindex",), (),
                            (".log", ".snapshot"), (".log", ".index"), ("checkpoint",)])
    for path in t.dir.iterdir():
        if path.is_file() and not path.name.endswith(kept or ("?",)):
            path.unlink()
    return f"only files {kept} are left"


@kind
def no_files_around(t: Target) -> str | None:
    for path in t.root.iterdir():
        if path.is_file():
            path.unlink()
    return "no file of the data directory is left"


@kind
def first_segments_gone(t: Target) -> str | None:
    """The oldest or the newest segments are missing, snapshots and all."""
    found = t.files(".log")
    if len(found) < 2:
        return None
    count = t.random.randint(1, len(found) - 1)
    gone = found[:count] if t.random.random() < .6 else found[-count:]
    for path in gone:
        for other in t.dir.glob(path.name[:20] + ".*"):
            if other.suffix != ".snapshot" or t.random.random() < .7:
                other.unlink()
    return f"{[path.name for path in gone]} removed"


@kind
def directory_inside(t: Target) -> str | None:
    """Directories in a partition are ignored, under most names."""
    name = t.random.choice(["nested", "00000000000000000003.deleted", "x.swap", "a.cleaned",
                            "00000000000000000123.log.swap"])
    (t.dir / name).mkdir()
    return f"directory {name}"


@kind
def directory_of_another_kind(t: Target) -> str | None:
    """The partition waits for its deletion, is a future replica, or a stray one."""
    ending = t.random.choice(["-delete", "-delete", "-future", "-stray"])
    if t.partition.endswith(("-delete", "-future", "-stray")):
        return None
    other = t.root / f"{t.partition}.0123456789abcdef0123456789abcdef{ending}"
    if t.random.random() < .4:
        shutil.copytree(t.dir, other)
    else:
        os.replace(t.dir, other)
    return f"{t.partition} is {other.name}"
