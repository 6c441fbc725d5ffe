"""Damage that takes a log manager to tell: names of directories, lines of checkpoints, and names
that Kafka reads and never writes. Cases of one log (`cases`) do not draw from these kinds."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.differential.damage_state import interesting_offset
from tests.support import damage_files
from tests.support.damage import Kind, Target, poke

KINDS: dict[str, Kind] = {}

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
_ENDINGS = ("", "", "", ".swap", ".cleaned", ".deleted", ".part", ".tmp")
_TEXTS = ("leader-epoch-checkpoint", "partition.metadata")
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
_UNIQUE = "0123456789abcdef0123456789abcdef"


def whole(function: Kind) -> Kind:
    """Registers a kind of this module."""
    KINDS[function.__name__] = function
    return function


def spelled(t: Target, number: int) -> str:
    """A number in a way in which Java reads it, or nearly."""
    digits = str(number)
    wide = "".join(chr(0xFF10 + int(one)) if one.isdigit() else one for one in digits)
    arabic = "".join(chr(0x660 + int(one)) if one.isdigit() else one for one in digits)
    return t.random.choice([digits, f"{number:020d}", f"+{digits}", f"0{digits}", f"{number:021d}",
                            f"-{digits}", wide, arabic, f" {digits}", f"{digits}_0", f"0x{digits}"])


@whole
def files_spelled_otherwise(t: Target) -> str | None:
    """Files of a segment under names that Kafka reads as its own, with their contents."""
    done = []
    for _ in range(t.random.choice([1, 1, 2, 4])):
        found = sorted(path for path in t.dir.iterdir()
                       if path.is_file() and path.name[:20].isdigit() and path.name.isascii())
        if not found:
            break
        path = t.random.choice(found)
        suffix = path.name[20:] if t.random.random() < .7 else t.random.choice(_SUFFIXES)
        number = int(path.name[:20]) if t.random.random() < .6 else max(0, interesting_offset(t))
        other = t.dir / f"{spelled(t, number)}{suffix}{t.random.choice(_ENDINGS)}"
        if not other.exists():
            (os.replace if t.random.random() < .5 else shutil.copy)(path, other)
            done.append(f"{path.name} -> {other.name}")
    return "; ".join(done) or None


@whole
def directory_spelled_otherwise(t: Target) -> str | None:
    """The number of the partition in another spelling, alone or beside the usual one."""
    topic, _, number = t.partition.rpartition("-")
    other = t.root / f"{topic}-{spelled(t, int(number))}"
    if other.exists():
        return None
    if t.random.random() < .2:
        shutil.copytree(t.dir, other)
    else:
        os.replace(t.dir, other)
    return f"{t.partition} -> {other.name}"


@whole
def directory_marked(t: Target) -> str | None:
    """A future, stray or deleted replica, alone or beside the partition, also with odd ids. No
    broker has a future replica beside the current one in one data directory."""
    ending = t.random.choice(["-delete", "-future", "-stray"])
    unique = t.random.choice([_UNIQUE, _UNIQUE, _UNIQUE[::-1], "x", "a-b", ".", "9.", ""])
    number = t.partition if t.random.random() < .8 else f"{t.partition}0"
    other = t.root / f"{number}.{unique}{ending}"
    if other.exists():
        return None
    is_same = int(number.rpartition("-")[2]) == int(t.partition.rpartition("-")[2])
    if t.random.random() < .5 and (ending != "-future" or not is_same):
        shutil.copytree(t.dir, other)
    else:
        os.replace(t.dir, other)
    return f"{t.partition} -> {other.name}"


@whole
def directory_added(t: Target) -> str | None:
    """Other partitions and what is none, with a log, with nothing, or with a part of a log."""
    name = t.random.choice([
        "remote-log-index-cache", "__cluster_metadata-0", "__cluster_metadata-7",
        f"__cluster_metadata-0.{_UNIQUE}-delete", "a.b-c-12", "a--1", "-0-0", "a-2147483647",
        "a-2147483648", "тема-0", ". .-0", "a b-3", "a\tb-0", "__consumer_offsets-49",
        "no-partition", f"{t.partition}-0", f"{t.partition}.{_UNIQUE}", "a..b-0", "..-0", "A-0"])
    other = t.root / name
    if other.exists():
        return None
    kept = t.random.choice([None, (), _TEXTS, ("partition.metadata",), (".log",)])
    shutil.copytree(t.dir, other, ignore=None if kept is None else lambda _, names: [
        one for one in names if not one.endswith(kept or ("?",))])
    return f"{name} added with {'everything' if kept is None else kept}"


@whole
def directory_linked(t: Target) -> str | None:
    """The partition lies elsewhere, and a link leads to it."""
    elsewhere = t.root.parent / f"elsewhere-of-{t.root.name}"
    elsewhere.mkdir(exist_ok=True)
    os.replace(t.dir, elsewhere / t.partition)
    t.dir.symlink_to(Path("..") / elsewhere.name / t.partition)
    return f"{t.partition} is a link"


@whole
def checkpoint_lines(t: Target) -> str | None:
    """Lines for this partition and others, in ways in which Kafka reads them, or nearly."""
    name = t.random.choice([*_CHECKPOINTS, *_CHECKPOINTS, "cleaner-offset-checkpoint"])
    path = t.root / name
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    topic, _, number = t.partition.rpartition("-")
    for _ in range(t.random.choice([1, 1, 2, 3])):
        offset = interesting_offset(t) if t.random.random() < .8 else -interesting_offset(t)
        line = t.random.choice([
            f"{topic} {spelled(t, int(number))} {offset}", f"{topic} {number} {offset}",
            f"{topic} {number} {spelled(t, offset)}", f"gone 3 {offset}", f"{topic} 9 {offset}",
            f"{topic}\t{number}\x0b{offset}", f"{topic} {number} {offset} ", f"{topic} -1 {offset}",
            f" {topic} {number} {offset}", f"{topic} {number}", "", f"a\u00a0b {number} {offset}"])
        lines.insert(t.random.randint(0, len(lines)), line)
    count = str(len(lines)) if t.random.random() < .9 else str(len(lines) + 1)
    newline = t.random.choice(["\n", "\n", "\n", "\r\n", "\r"])
    text = newline.join([spelled(t, 0) if t.random.random() < .2 else "0", count, *lines])
    path.write_bytes((text + newline * t.random.choice([0, 1, 1, 1, 2])).encode())
    return f"{name} {lines}"


@whole
def topic_id_odd(t: Target) -> str | None:
    """Ids in odd spellings, of another topic, and none."""
    path = t.dir / "partition.metadata"
    topic_id = t.random.choice([
        "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAB",
        "Sl08ZXU2QW6uF5hIoSzc8w", "Sl08ZXU2QW6uF5hIoSzc8x", "Sl08ZXU2QW6uF5hIoSzc8w==",
        "_-_-_-_-_-_-_-_-_-_-_Q", "Sl08ZXU2QW6uF5hIoSzc8", "", "+/08ZXU2QW6uF5hIoSzc8w",
        "AFuDzgTUSe-I8UvG25UYtQ"])
    path.write_text(t.random.choice([
        f"version: 0\ntopic_id: {topic_id}\n", f"version: 0\ntopic_id: {topic_id}",
        f"version: +0\ntopic_id: {topic_id}\nmore\n", f"version:0\ntopic_id:{topic_id}\n",
        f"version: 1\ntopic_id: {topic_id}\n", f"topic_id: {topic_id}\nversion: 0\n",
        f"version: 0\r\ntopic_id: {topic_id}\r\n", f"\nversion: 0\ntopic_id: {topic_id}\n"]))
    return f"{path.name} {path.read_bytes()!r}"


@whole
def marker_odd(t: Target) -> str | None:
    """The content of the marker does not count, only that it is there."""
    path = t.root / ".kafka_cleanshutdown"
    raw = t.random.choice([b"", b"{", b'{"version":7,"brokerEpoch":"x"}', b"\xff", bytes(4096)])
    path.write_bytes(raw)
    return f"the marker is {raw[:40]!r}"


def _files(t: Target) -> list[Path]:
    return sorted(path for path in t.dir.iterdir() if path.is_file())


@whole
def file_of_another_kind(t: Target) -> str | None:
    """A directory, or a link that leads nowhere, where a file is or could be."""
    # docs/differences.md has the directory in the place of an index.
    names = [path.name for path in _files(t) if path.suffix not in (".index", ".timeindex")]
    number = f"{interesting_offset(t) % 2**63:020d}"
    path = t.random.choice([
        *(t.dir / name for name in names), *(t.dir / f"{name}{t.random.choice(_ENDINGS)}"
                                             for name in (*names, *_TEXTS)),
        *(t.dir / f"{number}{suffix}" for suffix in _SUFFIXES), t.dir / f"{number}.log.swap",
        t.root / ".lock", t.root / ".kafka_cleanshutdown", t.root / "meta.properties",
        t.root / "cleaner-offset-checkpoint", t.root / "x-7",
        *(t.root / f"{name}{end}" for name in _CHECKPOINTS for end in ("", ".tmp"))])
    if path.is_dir():
        return None
    path.unlink(missing_ok=True)
    if t.random.random() < .7 or path.suffix in _SUFFIXES or path.name == ".lock":
        path.mkdir()
        if t.random.random() < .3:
            (path / "inside").write_bytes(b"")
        return f"{path.name} is a directory"
    path.symlink_to("nowhere")
    return f"{path.name} leads nowhere"


@whole
def text_linked(t: Target) -> str | None:
    """A checkpoint or another text lies elsewhere, and a link leads to it."""
    path = t.random.choice([t.dir / one for one in _TEXTS] + [t.root / one for one in (
        *_CHECKPOINTS, "cleaner-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown")])
    if not path.is_file() or path.is_symlink():
        return None
    elsewhere = t.root.parent / f"{t.root.name}-{t.partition}-{path.name}"
    os.replace(path, elsewhere)
    path.symlink_to(os.path.relpath(elsewhere, path.parent))
    return f"{path.name} is a link"


@whole
def files_swapped(t: Target) -> str | None:
    """Two files with each other's content."""
    found = _files(t)
    if len(found) < 2:
        return None
    one, two = t.random.sample(found, 2)
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    return f"{one.name} and {two.name} swapped"


@whole
def file_of_another_partition(t: Target) -> str | None:
    """A file under its own name, or in the place of another of its kind."""
    others = [path for path in sorted(t.root.iterdir()) if path.is_dir() and path != t.dir]
    found = [path for other in others for path in sorted(other.iterdir()) if path.is_file()]
    if not found:
        return None
    path = t.random.choice(found)
    alike = [one.name for one in _files(t) if one.suffix == path.suffix]
    other = t.dir / t.random.choice([path.name, *alike])
    shutil.copyfile(path, other)
    return f"{path.parent.name}/{path.name} copied to {other.name}"


@whole
def sector_wrong(t: Target) -> str | None:
    """A write that the disk lost, did elsewhere, or did twice: 512 or 4096 bytes, aligned."""
    path = t.random.choice(_files(t))
    size = t.random.choice([512, 512, 4096])
    count = -(-path.stat().st_size // size)
    if not count:
        return None
    at = t.random.randrange(count)
    from_at = t.random.randrange(count)
    data = path.read_bytes()
    name, raw = t.random.choice([
        ("zeros", bytes(size)), ("random", t.random.randbytes(size)), ("ones", b"\xff" * size),
        (f"as at {from_at * size}", data[from_at * size:(from_at + 1) * size])])
    poke(path, at * size, raw[:size if t.random.random() < .3 else len(data) - at * size])
    return f"{path.name} {size} bytes at {at * size}: {name}"


@whole
def file_extended(t: Target) -> str | None:
    """Any file with something behind its end: garbage, zeros, its own content again."""
    path = t.random.choice(_files(t))
    data = path.read_bytes()
    raw = t.random.choice([bytes(t.random.choice([1, 34, 512, 5000])), t.random.randbytes(50),
                           data, data[:len(data) // 2], b"\n", b"0 0\n", b" "])
    with open(path, "ab") as file:
        file.write(raw)
    return f"{path.name} {len(raw)} bytes longer"


@whole
def replica_elsewhere(t: Target) -> str | None:
    """A future, stray or deleted replica in another data directory, with all of the log, a part of
    it, or nothing."""
    roots = [path for path in sorted(t.root.parent.iterdir())
             if path.is_dir() and path != t.root and len(path.name) == 2]
    if not roots:
        return None
    ending = t.random.choice(["-future", "-future", "-delete", "-stray"])
    other = t.random.choice(roots) / f"{t.partition}.{_UNIQUE}{ending}"
    if other.exists():
        return None
    shutil.copytree(t.dir, other)
    kept = t.random.choice([None, None, 0, 1, 2])
    if kept is not None:
        for path in sorted(other.glob("*.*"))[kept * 3:]:
            if path.name[:20].isdigit():
                path.unlink()
    return f"{t.partition} also {other.parent.name}/{other.name}, {kept}"


@whole
def root_replaced(t: Target) -> str | None:
    """The data directory is gone, empty, a file, or elsewhere, where a link leads to."""
    kind = t.random.choice(["gone", "empty", "a file", "a link", "a link", "a link to nowhere"])
    elsewhere = t.root.parent / f"elsewhere-{t.root.name}"
    if t.root.is_symlink() or elsewhere.exists():
        return None
    os.replace(t.root, elsewhere)
    if kind == "empty":
        t.root.mkdir()
    elif kind == "a file":
        t.root.write_bytes(b"x")
    elif kind == "a link":
        t.root.symlink_to(elsewhere.name)
    elif kind == "a link to nowhere":
        t.root.symlink_to("nowhere")
    return f"{t.root.name} is {kind}"


@whole
def owner_odd(t: Target) -> str | None:
    """meta.properties of another broker, of another version, or what is none."""
    path = t.root / "meta.properties"
    if t.random.random() < .4:
        return damage_files.meta_properties_damaged(t)
    lines = path.read_text().splitlines()
    name, value = t.random.choice([
        ("cluster.id", "another"), ("node.id", "2"), ("node.id", "x"), ("version", "0"),
        ("version", " 1"), ("version", "2"), ("directory.id", "AAAAAAAAAAAAAAAAAAAAAA"),
        ("directory.id", "AAAAAAAAAAAAAAAAAAAAZA"), ("directory.id", "q0n3XIYaR9K1yH5yLkX1Pg"),
        ("directory.id", "q0n3"), ("broker.id", "1"), ("directory.id", ""), ("cluster.id", "")])
    kept = [line for line in lines if not line.startswith(name)]
    if t.random.random() < .7:
        kept.append(f"{name}={value}")
    path.write_text("\n".join(kept) + "\n")
    return f"meta.properties {kept[2:]}"


@whole
def temporaries_around(t: Target) -> str | None:
    """What a process that died leaves in a data directory."""
    names = t.random.sample([f"{one}.tmp" for one in _CHECKPOINTS] + [
        ".kafka_cleanshutdown.tmp", "meta.properties.tmp", ".lock", "t-0", "x.deleted",
        "cleaner-offset-checkpoint.tmp"], 3)
    for name in names:
        path = t.root / name
        if not path.exists():
            path.write_bytes(t.random.choice([b"", b"0\n1\nt 0 5\n", b"\xff"]))
    return f"{names} added"
