"""Damage to indexes, snapshots, checkpoints and names, and files that are no files."""

from __future__ import annotations

import os
import shutil
import stat
import struct
from pathlib import Path

from tests.support.damage import Target, kind, poke

_INDEXES = (".index", ".timeindex")
_CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
                "replication-offset-checkpoint", "cleaner-offset-checkpoint")


@kind
def index_gone(t: Target) -> str | None:
    gone = []
    for suffix in t.random.choice([[".index"], [".timeindex"], [*_INDEXES], [".txnindex"]]):
        path = t.some(suffix)
        if path:
            path.unlink()
            gone.append(path.name)
    return f"removed {gone}" if gone else None


@kind
def every_index_gone(t: Target) -> str | None:
    for suffix in (*_INDEXES, ".txnindex"):
        for path in t.files(suffix):
            path.unlink()
    return "all indexes removed"


@kind
def index_odd_size(t: Target) -> str | None:
    path = t.some(t.random.choice(_INDEXES))
    if path is None:
        return None
    with open(path, "ab") as file:
        file.write(b"\1" * t.random.randint(1, 7))
    return f"{path.name} of odd size"


@kind
def index_rewritten(t: Target) -> str | None:
    """An index of the right size with the wrong bytes."""
    path = t.some(t.random.choice(_INDEXES))
    if path is None:
        return None
    size, data = path.stat().st_size, path.read_bytes()
    name, raw = t.random.choice([
        ("zeroed", bytes(size)), ("random", t.random.randbytes(size)), ("emptied", b""),
        ("all ones", b"\xff" * size), ("backwards", data[::-1]), ("twice", data + data),
        ("followed by zeros", data + bytes(16368)), ("half zeros", data[:size // 2] + bytes(size)),
    ])
    path.write_bytes(raw)
    return f"{path.name} {name}"


@kind
def index_entry_changed(t: Target) -> str | None:
    suffix, width = t.random.choice([(".index", 8), (".timeindex", 12)])
    path = t.some(suffix)
    if path is None or path.stat().st_size < width:
        return None
    entry = t.random.randrange(path.stat().st_size // width)
    relative = t.random.choice([-2**31, -5, 0, 1, 2**31 - 1])
    other = t.random.choice([-2**31, -1, 0, 1, 7, 2**31 - 1])
    raw = struct.pack(">ii", relative, other) if width == 8 else \
        struct.pack(">qi", t.random.choice([-2**63, -1, 0, 2**63 - 1]), relative)
    poke(path, entry * width, raw)
    return f"{path.name} entry {entry} is {raw.hex()}"


@kind
def index_of_another_segment(t: Target) -> str | None:
    found = t.files(t.random.choice(_INDEXES))
    if len(found) < 2:
        return None
    one, two = t.random.sample(found, 2)
    shutil.copyfile(one, two)
    return f"{two.name} is a copy of {one.name}"


@kind
def index_huge(t: Target) -> str | None:
    path = t.some(t.random.choice(_INDEXES))
    if path is None:
        return None
    os.truncate(path, 1 << 36)
    return f"{path.name} sparse, 64 GiB"


@kind
def orphan_index(t: Target) -> str | None:
    suffix = t.random.choice([*_INDEXES, ".txnindex", ".snapshot"])
    path = t.dir / f"{t.random.randrange(10**6):020d}{suffix}"
    path.write_bytes(bytes(96))
    return f"{path.name} without a log"


@kind
def txnindex_damaged(t: Target) -> str | None:
    path = t.some(".txnindex") or t.dir / (t.log().name[:20] + ".txnindex")
    data = path.read_bytes() if path.exists() else b""
    name, raw = t.random.choice([
        ("cut", data[:t.random.randrange(len(data) + 1)]), ("random", t.random.randbytes(68)),
        ("of version 256", b"\1\0" + bytes(32)), ("of version -1", b"\xff\xff" + bytes(32)),
        ("with extremes", struct.pack(">hqqqq", 0, -1, 2**63 - 1, -2**63, 0)),
        ("backwards", b"".join(data[n:n + 34] for n in range(len(data) - 34, -1, -34))),
        ("with everything aborted", struct.pack(">hqqqq", 0, 2000, 0, 2**63 - 1, 0)),
    ])
    path.write_bytes(raw)
    return f"{path.name} {name}"


@kind
def snapshot_damaged(t: Target) -> str | None:
    path = t.some(".snapshot", last=True)
    if path is None:
        return None
    data = bytearray(path.read_bytes())
    if data:
        data[t.random.randrange(len(data))] ^= 0x40
    name, raw = t.random.choice([
        ("one bit", bytes(data)), ("emptied", b""), ("random", t.random.randbytes(100)),
        ("cut", bytes(data[:t.random.randrange(len(data) + 1)])), ("longer", bytes(data) + b"\0"),
        ("of 2 GiB entries", b"\0\1" + bytes(4) + b"\x7f\xff\xff\xff"),
    ])
    path.write_bytes(raw)
    return f"{path.name} {name}"


@kind
def snapshots_gone(t: Target) -> str | None:
    for path in t.files(".snapshot"):
        path.unlink()
    return "all snapshots removed"


def _bad_text(t: Target) -> bytes:
    return t.random.choice([
        b"", b"garbage\n", b"0\n3\n0 0\n", b"0\n1\n0 5 5\n", b"1\n1\n0 0\n", b"0\n-1\n",
        b"0\n2147483648\n", b"0\n1\n99999999999999999999 0\n", b"0\n1\nt 0 -1\n", b"\xff\xfe\0",
        b"0\n1\n" + b"9" * 100_000 + b" 1\n", b"0\n2\n3 0\n1 9\n", t.random.randbytes(200),
        b"0\r\n1\r\n0 0\r\n", b"0\n1\nt x 1\n", "0\n1\n٣ ٤\n".encode(), b"0\n1\n" * 20_000,
    ])


@kind
def epochs_damaged(t: Target) -> str | None:
    raw = _bad_text(t)
    (t.dir / "leader-epoch-checkpoint").write_bytes(raw)
    return f"leader-epoch-checkpoint {raw[:40]!r}"


@kind
def checkpoint_damaged(t: Target) -> str | None:
    name, raw = t.random.choice(_CHECKPOINTS), _bad_text(t)
    (t.root / name).write_bytes(raw)
    return f"{name} {raw[:40]!r}"


@kind
def partition_metadata_damaged(t: Target) -> str | None:
    raw = t.random.choice([b"", b"version: 7\ntopic_id: x\n", b"version: 0\n", b"\xff" * 50,
                           b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n", _bad_text(t)])
    (t.dir / "partition.metadata").write_bytes(raw)
    return f"partition.metadata {raw[:40]!r}"


@kind
def meta_properties_damaged(t: Target) -> str | None:
    raw = t.random.choice([b"", b"version=9\n", b"version=x\nnode.id=1\n", b"\\u12", b"\xff\0\n",
                           b"node.id=1\nversion=1\n", b"a" * 100_000, _bad_text(t)])
    (t.root / "meta.properties").write_bytes(raw)
    return f"meta.properties {raw[:40]!r}"


@kind
def offset_checkpoint_moved(t: Target) -> str | None:
    topic, _, number = t.partition.rpartition("-")
    name = t.random.choice(_CHECKPOINTS[:3])
    offset = t.random.choice([0, 1, 57, 100, 250, 10**7, 2**63 - 1])
    (t.root / name).write_text(f"0\n1\n{topic} {number} {offset}\n")
    return f"{name} {offset}"


@kind
def marker_changed(t: Target) -> str | None:
    marker = t.root / ".kafka_cleanshutdown"
    if marker.exists():
        marker.unlink()
        return "marker removed"
    marker.write_bytes(t.random.choice([b"", b"{", b'{"version":0,"brokerEpoch":1}', b"\xff"]))
    return "marker added"


@kind
def temporary_files(t: Target) -> str | None:
    path, names = t.log(), []
    for ending in t.random.choice([[".cleaned"], [".swap"], [".deleted"], [".cleaned", ".swap"]]):
        for suffix in (".log", ".index", ".timeindex"):
            source = t.dir / (path.name[:20] + suffix)
            if source.exists():
                shutil.copy(source, f"{source}{ending}")
                names.append(source.name + ending)
    return f"added {names}"


@kind
def odd_file_names(t: Target) -> str | None:
    name = t.random.choice([
        b"notes.txt", b"abc.log", b"0.log", b"00000000000000000005.checkpoint", b".log",
        b"\xff.log",
        b"-0000000000000000005.log", b".hidden", b"99999999999999999999.log", b"5.log.swap",
        b"00000000000000000000.log\n", b"0000000000000000000x.index", b"x.snapshot", b"...",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٥.log".encode(), b"n" * 251 + b".log"])
    path = os.path.join(os.fsencode(t.dir), name)
    try:
        with open(path, "wb") as file:
            file.write(t.random.randbytes(40))
    except OSError:  # a file system that takes only UTF-8
        return None
    return f"file {name!r}"


@kind
def odd_directory_names(t: Target) -> str | None:
    name = t.random.choice([
        b"lost+found", b"notopic", b"a-", b"-1", b"topic--1", b"topic-99999999999", b"topic-x",
        b"x-0.0123456789abcdef0123456789abcdef-delete", b"x-0.y-stray", b"x-0-future", b"-delete",
        b"x-0.0123456789abcdef0123456789abcdef-future", b"\xff-0", b"line\nbreak-0", b"t-+1",
        "тема-0".encode(), b"remote-log-index-cache", b"n" * 253 + b"-0", b". .-0",
        "t-٣".encode()])
    path = os.path.join(os.fsencode(t.root), name)
    try:
        os.mkdir(path)
    except OSError:
        return None
    shutil.copy(os.fsencode(t.log()), os.path.join(path, b"00000000000000000000.log"))
    return f"directory {name!r}"


def _no_file(t: Target, path: Path) -> str:
    """Puts something other than a regular file at `path`; it must not block a process that opens
    it."""
    kinds = ["a directory", "a fifo", "a dangling link", "a looping link", "a link to a device",
             "a link to the file", "a link through a file"]
    if os.geteuid() == 0:
        kinds.append("a device")
    name = t.random.choice(kinds)
    target = path.with_name(path.name + "-kept")
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        os.replace(path, target)
    if name == "a directory":
        path.mkdir()
    elif name == "a fifo":
        os.mkfifo(path)
    elif name == "a device":
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    else:
        path.symlink_to({"a dangling link": "nowhere", "a looping link": path.name,
                         "a link to a device": "/dev/zero", "a link to the file": str(target),
                         "a link through a file": str(target / "below")}[name])
    return f"{path.name} is {name}"


@kind
def log_is_no_file(t: Target) -> str | None:
    return _no_file(t, t.log())


@kind
def index_is_no_file(t: Target) -> str | None:
    return _no_file(t, t.dir / (t.log().name[:20] + t.random.choice([*_INDEXES, ".txnindex"])))


@kind
def state_is_no_file(t: Target) -> str | None:
    names = [path.name for path in t.files(".snapshot")]
    return _no_file(t, t.dir / t.random.choice(
        [*names, "leader-epoch-checkpoint", "partition.metadata"]))


@kind
def checkpoint_is_no_file(t: Target) -> str | None:
    return _no_file(t, t.root / t.random.choice(
        [*_CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown", ".lock"]))


@kind
def partition_is_no_directory(t: Target) -> str | None:
    return _no_file(t, t.root / "other-0")


@kind
def log_huge(t: Target) -> str | None:
    """Sparse zeros behind the last segment: above what a segment may have, or just a lot."""
    path, size = t.log(last=True), t.random.choice([1 << 26, 2**31, 1 << 40])
    os.truncate(path, size)
    return f"{path.name} sparse, {size} bytes"
