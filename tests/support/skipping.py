"""Logs with damage of which it is known what it cost: what a reader that skips damage must give."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.oracle import compression
from tests.oracle.batch import Row
from tests.oracle.builder import Shape, build_log
from tests.oracle.wire import crc32c
from tests.oracle.writer import BuiltLog, LogConfig, Placed


@dataclass
class Piece:
    """An entry of a file, or invalid bytes, and the expected result."""

    data: bytes
    entry: Placed | None = None
    is_lost: bool = False
    #: not among the rows that must come, nor among those that must not
    is_unsure: bool = False


@dataclass
class Damaged:
    """A log with damage."""

    built: BuiltLog
    notes: list[str] = field(default_factory=list)
    files: dict[int, list[Piece]] = field(default_factory=dict)
    #: segments of which more damage would leave it open which batch is right
    decided: set[int] = field(default_factory=set)

    def lost(self) -> list[Placed]:
        return [piece.entry for pieces in self.files.values() for piece in pieces
                if piece.is_lost and piece.entry is not None]

    def rows(self, start: int, end: int, *, unsure: bool = False) -> list[Row]:
        """The rows that must come; with `unsure` all that may."""
        return [row for base in sorted(self.files) for piece in self.files[base]
                if piece.entry is not None and not piece.is_lost
                and (unsure or not piece.is_unsure)
                for row in piece.entry.rows if start <= row["offset"] < end]


def make(path: Path, seed: int) -> Damaged:
    """A random log of all formats with some random damage; the same for the same seed."""
    rnd = random.Random(f"skipping-{seed}")
    magics = rnd.choice([(2,), (2, 2, 2, 1, 0), (1, 2), (0,), (1,), (0, 1)])
    built = build_log(path, seed, Shape(
        batches=rnd.choice([8, 30, 60]), magics=magics,
        config=LogConfig(segment_bytes=rnd.choice([3000, 12_000, 60_000]),
                         index_interval_bytes=rnd.choice([100, 700, 4096]))))
    damaged = Damaged(built)
    for base in built.segments:
        data = (path / f"{base:020d}.log").read_bytes()
        damaged.files[base] = [Piece(data[entry.position:entry.position + entry.size], entry)
                               for entry in built.entries if entry.segment == base]
    for _ in range(rnd.choice([0, 1, 1, 2, 5])):
        damaged.notes.append(_damage(damaged, rnd))
    for base, pieces in damaged.files.items():
        file = path / f"{base:020d}.log"
        if file.is_file():
            file.write_bytes(b"".join(piece.data for piece in pieces))
    return damaged


def _damage(damaged: Damaged, rnd: random.Random) -> str:
    full = [base for base, pieces in damaged.files.items()
            if pieces and base not in damaged.decided]
    if not full:
        return "nothing is left"
    base = rnd.choice(full)
    pieces = damaged.files[base]
    at = rnd.randrange(len(pieces))
    piece = pieces[at]
    if piece.entry is None or piece.is_lost or piece.is_unsure:
        return "already damaged"
    kind = rnd.choice([_flip, _flip, _length, _length_of_two, _offset, _garbage, _zeros, _hole,
                       _grown, _unknown_magic, _bad_payload, _too_many, _twice])
    if kind in (_offset, _twice):
        damaged.decided.add(base)
    note = kind(pieces, at, rnd)
    return f"{base}/{at}: {kind.__name__[1:]} {note}"


def _flip(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    data = bytearray(pieces[at].data)
    first = 17 if data[16] == 2 else 12  # what the CRC covers, and itself
    where = rnd.randrange(first, len(data))
    data[where] ^= 1 << rnd.randrange(8)
    pieces[at].data, pieces[at].is_lost = bytes(data), True
    return str(where)


def _length(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    size = len(pieces[at].data) - 12
    wrong = rnd.choice([0, -1, 13, 14, size - 1, size + 1, size + rnd.randrange(1, 500),
                        max(14, size - 30), 2**31 - 1, rnd.randrange(2**31)])
    _poke(pieces[at], 8, struct.pack(">i", wrong))
    return f"{size} to {wrong}"


def _length_of_two(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    """The length of a batch and the next one: it leads on, past a sound batch."""
    if at + 1 == len(pieces) or pieces[at + 1].is_lost or pieces[at + 1].entry is None:
        return "nothing"
    _poke(pieces[at], 8, struct.pack(">i", len(pieces[at].data) + len(pieces[at + 1].data) - 12))
    return ""


def _offset(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    """A base offset that more than one other batch contradicts."""
    whole = [piece for piece in pieces if piece.entry is not None and not piece.is_lost]
    bases = [piece.entry.base_offset for piece in whole]  # type: ignore[union-attr]
    here = whole.index(pieces[at])
    choices = [bases[0] - 1 - rnd.randrange(5), 2**62, -1, -2**63, 2**63 - 1, bases[0] + 2**31]
    if len(whole) == len(pieces):
        choices += [bases[n] for n in (here - 3, here + 3) if 0 <= n < len(bases)] * 3
    if bases[0] == 0:
        choices[0] = -7
    wrong = rnd.choice(choices)
    segment = pieces[at].entry.segment  # type: ignore[union-attr]
    if segment <= wrong < bases[0]:
        wrong = -1  # compaction took the first batches of this segment
    _poke(pieces[at], 0, struct.pack(">q", wrong))
    return f"to {wrong}"


def _poke(piece: Piece, at: int, raw: bytes) -> None:
    if piece.data[at:at + len(raw)] != raw:
        piece.data = piece.data[:at] + raw + piece.data[at + len(raw):]
        piece.is_lost = True


def _garbage(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    raw = rnd.choice([bytes(200), rnd.randbytes(rnd.randint(1, 300)), b"\xff" * 70])
    pieces.insert(at, Piece(raw))
    return f"of {len(raw)} bytes before it"


def _zeros(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    last = min(len(pieces) - 1, at + rnd.randint(0, 2))
    for piece in pieces[at:last + 1]:
        piece.data, piece.is_lost = bytes(len(piece.data)), True
    return f"up to {last}"


def _hole(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    data = pieces[at].data
    start = rnd.randrange(len(data) - 1)
    stop = rnd.randrange(start + 1, len(data))
    following = pieces[at + 1].data if at + 1 < len(pieces) else b""
    if (data[:start] + data[stop:] + following).startswith(data):
        return "nothing"  # what is missing is not this one's
    pieces[at].data, pieces[at].is_lost = data[:start] + data[stop:], True
    return f"{start} to {stop} of {len(data)} bytes"


def _grown(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    data, where = pieces[at].data, rnd.randrange(18, len(pieces[at].data))
    pieces[at].data = data[:where] + rnd.randbytes(rnd.randint(1, 50)) + data[where:]
    pieces[at].is_lost = True
    return f"at {where}"


def _reseal(data: bytes, at: int, raw: bytes) -> bytes:
    """A batch of magic 2 with other bytes and the right CRC and length."""
    data = data[:at] + raw + data[at + len(raw):]
    return (data[:8] + struct.pack(">i", len(data) - 12) + data[12:17]
            + struct.pack(">I", crc32c(data[21:])) + data[21:])


def _unknown_magic(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    if pieces[at].entry.magic != 2:  # type: ignore[union-attr]
        return "nothing"
    pieces[at].data, pieces[at].is_lost = _reseal(pieces[at].data, 16, b"\x03"), True
    return "3"


def _bad_payload(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    entry, data = pieces[at].entry, pieces[at].data
    if entry.magic != 2 or not entry.rows or data[22] & 0x20:  # type: ignore[union-attr]
        return "nothing"
    codec = rnd.choice([compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD,
                        5, 7])
    head = data[:22] + bytes([data[22] & ~7 | codec]) + data[23:61]
    pieces[at].data, pieces[at].is_lost = _reseal(head + b"\xff" * 40, 0, b""), True
    return f"of codec {codec}"


def _too_many(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    """One more record than there is: those that are there come all the same."""
    entry, data = pieces[at].entry, pieces[at].data
    if entry.magic != 2 or not entry.rows or data[22] & 7:  # type: ignore[union-attr]
        return "nothing"
    count = struct.unpack_from(">i", data, 57)[0]
    pieces[at].data = _reseal(data, 57, struct.pack(">i", count + 1))
    pieces[at].is_unsure = True
    return f"records, {count + 1}"


def _twice(pieces: list[Piece], at: int, rnd: random.Random) -> str:
    """The same batch again: one of them counts."""
    if len(pieces) > at + 1 and pieces[at + 1].entry is None:
        return "nothing"
    pieces.insert(at, Piece(pieces[at].data))
    return "there"


def facts(row: Row) -> dict[str, Any]:
    """A row without its position: damage moves batches."""
    return {name: value for name, value in row.items() if name != "position"}
