"""Damages copies of log directories in seeded ways: one kind, one seed, one damage.

Every kind takes a `Target` and describes what it did, or returns None if the directory has nothing
to damage that way. `KINDS` names them all. Kinds of `damage_records` keep the CRC valid, so that
readers reach the damage; kinds of `damage_files` are about files and names.
"""

from __future__ import annotations

import functools
import os
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.log import Entry, entries
from tests.oracle.wire import OracleError


@dataclass
class Target:
    """One partition of a data directory that is the caller's to destroy."""

    root: Path
    partition: str
    random: random.Random

    @property
    def dir(self) -> Path:
        return self.root / self.partition

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.dir.glob("*" + suffix))

    def some(self, suffix: str, *, last: bool = False) -> Path | None:
        """A file with that suffix, one with bytes in it where there is one."""
        found = [path for path in self.files(suffix) if path.stat().st_size] or self.files(suffix)
        if not found:
            return None
        return found[-1] if last or self.random.random() < .5 else self.random.choice(found)

    def log(self, *, last: bool = False) -> Path:
        found = self.some(".log", last=last)
        assert found is not None, f"no log in {self.dir}"
        return found

    def entry(self, path: Path, want: Callable[[Entry], bool] = lambda entry: True) -> Entry | None:
        """An entry of a log file that `want` accepts."""
        found = [entry for entry in whole_entries(path) if want(entry)]
        return self.random.choice(found) if found else None


    def log_entry(self, want: Callable[[Entry], bool] = lambda entry: True, *, last: bool = False
                  ) -> Place | None:
        """A log file, and an entry of it that `want` accepts."""
        path = self.log(last=last)
        entry = self.entry(path, want)
        return None if entry is None else (path, entry)

    def place(self, want: Callable[[Entry], bool]) -> Place | None:
        """A log file and an entry of it that `want` accepts, wherever the log holds one."""
        for path in self.random.sample(self.files(".log"), len(self.files(".log"))):
            entry = self.entry(path, want)
            if entry is not None:
                return path, entry
        return None


def whole_entries(path: Path) -> list[Entry]:
    """The entries of a file up to the first invalid one."""
    found = []
    try:
        for entry in entries(path.read_bytes()):
            found.append(entry)
    except OracleError:
        pass
    return found


def poke(path: Path, at: int, raw: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(raw)


def splice(path: Path, entry: Entry, raw: bytes) -> None:
    """Puts `raw` in the place of an entry, whatever its size."""
    data = path.read_bytes()
    path.write_bytes(data[:entry.position] + raw + data[entry.position + entry.size:])


Kind = Callable[[Target], str | None]
Place = tuple[Path, Entry]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    """Registers a kind under its name."""
    KINDS[function.__name__] = function
    return function


def damaging(choose: Callable[[Target], Place | None]
             ) -> Callable[[Callable[[Target, Path, Entry], str]], Kind]:
    """Makes a kind of a function that damages the entry that `choose` finds."""
    def decorate(function: Callable[[Target, Path, Entry], str]) -> Kind:
        @functools.wraps(function)
        def apply(t: Target) -> str | None:
            found = choose(t)
            return None if found is None else function(t, *found)
        return apply
    return decorate


an_entry = damaging(Target.log_entry)
old_message = damaging(lambda t: t.place(lambda entry: entry.magic in (0, 1)))


def damage(root: Path, partition: str, name: str, seed: int) -> str | None:
    """Damages a partition in the way `name`; what was done, or None when nothing could be."""
    return KINDS[name](Target(root, partition, random.Random(f"{name}-{seed}")))


def _end(path: Path) -> int:
    return sum(entry.size for entry in whole_entries(path))


@kind
def log_truncated(t: Target) -> str | None:
    path = t.log()
    size = t.random.randrange(1, max(2, path.stat().st_size))
    os.truncate(path, size)
    return f"{path.name} cut to {size} bytes"


@kind
@an_entry
def log_truncated_at_a_boundary(t: Target, path: Path, entry: Entry) -> str:
    size = entry.position + t.random.choice([0, 1, 8, 12, 16, 17, 18, 21, 60, 61, 62])
    os.truncate(path, min(size, path.stat().st_size))
    return f"{path.name} cut to {size} bytes, an entry begins at {entry.position}"


@kind
def log_emptied(t: Target) -> str | None:
    path = t.log()
    os.truncate(path, 0)
    return f"{path.name} emptied"


@kind
@an_entry
def log_byte_flipped(t: Target, path: Path, entry: Entry) -> str:
    at = entry.position + t.random.randrange(entry.size)
    poke(path, at, bytes([path.read_bytes()[at] ^ 1 << t.random.randrange(8)]))
    return f"{path.name} one bit at {at}, in the entry at {entry.position}"


@kind
@an_entry
def log_header_byte_random(t: Target, path: Path, entry: Entry) -> str:
    at = entry.position + t.random.randrange(min(61, entry.size))
    poke(path, at, t.random.randbytes(1))
    return f"{path.name} a random byte at {at}, in the header at {entry.position}"


@kind
def log_zeroed_range(t: Target) -> str | None:
    path = t.log()
    size = path.stat().st_size
    if not size:
        return None
    at = t.random.randrange(size)
    count = min(size - at, t.random.choice([1, 100, 4096]))
    poke(path, at, bytes(count))
    return f"{path.name} {count} zero bytes at {at}"


@kind
def log_garbage_tail(t: Target) -> str | None:
    path, raw = t.log(last=True), t.random.randbytes(t.random.randint(1, 300))
    at = _end(path)
    poke(path, at, raw)
    return f"{path.name} {len(raw)} random bytes at {at}"


@kind
def log_zero_tail(t: Target) -> str | None:
    path, count = t.log(last=True), t.random.randint(1, 5000)
    with open(path, "ab") as file:
        file.write(bytes(count))
    return f"{path.name} {count} zero bytes at the end"


@kind
@an_entry
def log_zeros_then_data(t: Target, path: Path, entry: Entry) -> str:
    """Zeros are a tail only when nothing follows them."""
    data = path.read_bytes()
    path.write_bytes(data[:entry.position] + bytes(200) + data[entry.position:])
    return f"{path.name} 200 zero bytes before the entry at {entry.position}"


@kind
def log_random(t: Target) -> str | None:
    path = t.log()
    path.write_bytes(t.random.randbytes(path.stat().st_size))
    return f"{path.name} random"


@kind
@an_entry
def log_bad_length(t: Target, path: Path, entry: Entry) -> str:
    length = t.random.choice([-1, -2**31, 0, 5, 13, 14, 22, 48, 49, entry.size - 13,
                              entry.size - 11, 10**6, 2**31 - 13, 2**31 - 1])
    poke(path, entry.position + 8, struct.pack(">i", length))
    return f"{path.name} length {length} at {entry.position}"


@kind
@an_entry
def log_bad_magic(t: Target, path: Path, entry: Entry) -> str:
    magic = t.random.choice([-128, -1, 0, 1, 3, 99, 127])
    poke(path, entry.position + 16, struct.pack(">b", magic))
    return f"{path.name} magic {magic} at {entry.position}"


@kind
@an_entry
def log_base_offset_changed(t: Target, path: Path, entry: Entry) -> str:
    base = int.from_bytes(entry.data[:8], "big")
    number = t.random.choice([0, base - 1, base + 1, base + 10**6, base + 2**32, -1, -2**63,
                              2**63 - 1])
    poke(path, entry.position, struct.pack(">q", number))
    return f"{path.name} base offset {base} to {number} at {entry.position}"


@kind
def log_overflowed(t: Target) -> str | None:
    path = t.log(last=True)
    found = whole_entries(path)
    if not found:
        return None
    moved = found[t.random.randrange(len(found)):]
    for entry in moved:
        base = int.from_bytes(entry.data[:8], "big")
        poke(path, entry.position, struct.pack(">q", base + 2**31 + 7))
    return f"{path.name} {len(moved)} entries moved past a relative offset of 2**31"


@kind
@damaging(lambda t: t.log_entry(lambda entry: entry.magic >= 2))
def log_epoch_changed(t: Target, path: Path, entry: Entry) -> str:
    epoch = t.random.choice([-1, -2**31, 0, 5, 10**6, 2**31 - 1])
    poke(path, entry.position + 12, struct.pack(">i", epoch))
    return f"{path.name} leader epoch {epoch} at {entry.position}"


@kind
@damaging(lambda t: t.log_entry(last=True))
def log_entry_twice(t: Target, path: Path, entry: Entry) -> str:
    poke(path, _end(path), entry.data)
    return f"{path.name} the entry at {entry.position} again at the end"


@kind
def log_entries_swapped(t: Target) -> str | None:
    path = t.log()
    found = whole_entries(path)
    if len(found) < 2:
        return None
    first = t.random.randrange(len(found) - 1)
    one, two = found[first], found[first + 1]
    poke(path, one.position, two.data + one.data)
    return f"{path.name} the entries at {one.position} and {two.position} swapped"


@kind
@an_entry
def log_entry_gone(t: Target, path: Path, entry: Entry) -> str:
    splice(path, entry, b"")
    return f"{path.name} the entry at {entry.position} cut out"


@kind
def middle_segment_gone(t: Target) -> str | None:
    stem = t.random.choice(t.files(".log")).name[:20]
    for path in t.dir.glob(stem + ".*"):
        path.unlink()
    return f"segment {stem} removed"


@kind
def segment_renamed(t: Target) -> str | None:
    """The name of a segment has a wrong base offset."""
    path = t.log()
    base = max(0, int(path.name[:20]) + t.random.choice([-3, -1, 1, 2, 10**6, 2**33]))
    if (t.dir / f"{base:020d}.log").exists():
        return None
    for other in t.dir.glob(path.name[:20] + ".*"):
        other.rename(t.dir / (f"{base:020d}" + other.name[20:]))
    return f"segment {path.name[:20]} renamed to {base}"


@kind
def segment_twice(t: Target) -> str | None:
    """A copy of a segment under a base offset inside it: offsets overlap."""
    path = t.log()
    base = int(path.name[:20]) + 1
    if (t.dir / f"{base:020d}.log").exists():
        return None
    (t.dir / f"{base:020d}.log").write_bytes(path.read_bytes())
    return f"{path.name} copied to {base}"


@kind
def untouched(t: Target) -> str | None:
    return "nothing"
