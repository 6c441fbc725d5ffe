"""Seeds of the fuzz targets, cut from the golden data: what a real broker wrote is where to start.

Each function yields inputs as its target reads them: steering bytes first, then bytes of a file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

SEED_SIZE_MAX = 8192


def _contents(golden: Path, suffix: str) -> Iterator[tuple[Path, bytes]]:
    """Every file of that suffix, damaged ones too, each content once and cut to a fair size."""
    seen: set[bytes] = set()
    for path in sorted(golden.rglob(f"*{suffix}")):
        if path.is_file():
            data = path.read_bytes()[:SEED_SIZE_MAX]
            if data not in seen:
                seen.add(data)
                yield path, data


def _base_offset(path: Path) -> int:
    digits = path.name.partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def wire(golden: Path) -> Iterator[bytes]:
    for width in range(1, 11):
        yield b"\xff" * (width - 1) + b"\x01"
        yield b"\x80" * width + b"\x00"
    for _, data in _contents(golden, ".log"):
        yield data[61:125]


def index(golden: Path) -> Iterator[bytes]:
    for kind, suffix in enumerate((".index", ".timeindex", ".txnindex")):
        for path, data in _contents(golden, suffix):
            base = _base_offset(path)
            for flags in (0, 8, 16):
                steer = next(n for n in range(flags, flags + 8) if n % 3 == kind)
                yield struct.pack(">Bqq", steer, base, base + 1000) + data.rstrip(b"\0")[:4096]


def scan(golden: Path) -> Iterator[bytes]:
    names = {path.name for path in golden.rglob("*")}
    numbered = [f"{5:020}{suffix}" for suffix in (
        ".log.swap", ".index.cleaned", ".log.deleted", "-0000000001.checkpoint",
        "-0000000001.checkpoint.part", "-0000000001.checkpoint.deleted")]
    for name in sorted(names | {*numbered, "5.log", "-5.log", "9223372036854775808.log", ".log"}):
        yield name.encode("utf-8", "surrogateescape")


def batch(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        for steer in (0x03, 0x00, 0x07, 0x0b):
            yield bytes((steer, 8)) + data
        # A last offset of 2^63 - 1, and a batch behind it.
        last = bytearray(data[:4096])
        last[0:8] = struct.pack(">q", (1 << 63) - 1)
        last[23:27] = bytes(4)
        yield b"\x03\x08" + last
    yield b"\x03\x08" + bytes(200)


def records(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        yield bytes((0x01, 3)) + data
        yield bytes((0x0f, 1)) + data
        yield bytes((0x11, 9)) + struct.pack(">qq", 3, 30) + data
        yield bytes((0x11, 9)) + struct.pack(">qq", 1 << 62, -1 << 63) + data[:2048]
        yield bytes((0x11, 9)) + struct.pack(">qq", (1 << 63) - 1, (1 << 63) - 1) + data[:2048]


def dump(golden: Path) -> Iterator[bytes]:
    for suffix in (".log", ".checkpoint"):
        for _, data in _contents(golden, suffix):
            for steer in (0x00, 0x07, 0x0b, 0x15):
                yield bytes((steer, 40)) + data


def framing(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        for magic in (b"\x04\x22\x4d\x18", b"\x82SNAPPY"):
            at = data.find(magic)
            while at >= 0:
                yield data[at:at + 2048]
                yield data[at + (11 if magic[0] == 4 else 20):at + 2048]  # the raw block
                at = data.find(magic, at + 1)
    yield b"\x04\x22\x4d\x18\x60\x40\x82\3\0\0\x80abc" + bytes(4)
    yield b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\4\2\4ab\0\0\0\3\1\0c"
    yield b"\x40abcd\4\0\xc00123456789xy"
    yield b"\x14\x24abcdefghij\x2a\7\0"


def encode_columns(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        yield data[:1024]
    for kind in range(8):  # well-formed columns: small steps and nothing wild
        yield bytes([9, 0, 7, 60, 3, 40]) + bytes([kind, 1, 1, *range(1, 120)]) * 4
        yield bytes([9, 4, 7, 60, 3, 40]) + bytes([kind, 1, 1, *range(1, 120)]) * 4


def validate(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        for steer in (0x00, 0x12, 0x57, 0x9f):
            yield bytes((steer, 90, 1)) + data
        for steer in (0x13, 0x36):  # the records of the first batch alone
            yield bytes((steer, 90, 1)) + data[61:2048]


def append(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        for steer in (0x00, 0x01, 0x0b, 0x60, 0x80):
            yield bytes((steer,)) + data


def clean(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        for steer in (0x01, 0x05, 0x57, 0xff):
            yield bytes((steer, 200, 3)) + data


def producers(golden: Path) -> Iterator[bytes]:
    for _, data in _contents(golden, ".log"):
        for steer in (0x00, 0x01, 0x03, 0x07):
            yield bytes((steer,)) + data


SEEDS: dict[str, Callable[[Path], Iterable[bytes]]] = {
    "append": append,
    "batch": batch,
    "clean": clean,
    "dump": dump,
    "encode_columns": encode_columns,
    "framing": framing,
    "index": index,
    "producers": producers,
    "records": records,
    "scan": scan,
    "validate": validate,
    "wire": wire,
}


def write_corpus(target: str, golden: Path, directory: Path) -> int:
    """One file per seed, named by its content; how many there are."""
    directory.mkdir(parents=True, exist_ok=True)
    for seed in SEEDS[target](golden):
        (directory / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    return sum(1 for _ in directory.iterdir())
