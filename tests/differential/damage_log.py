"""Damage to the bytes of a log: tails, boundaries, and batches that are wrong under a right CRC."""

from __future__ import annotations

import os
import struct
from typing import Any

from tests.differential.registry import base_of, end_of, kind
from tests.oracle import batch as v2
from tests.oracle import legacy
from tests.oracle.log import Entry
from tests.support.damage import Target, poke, splice, whole_entries
from tests.support.damage_records import _bad_message, _fields, _is_v2

_MASK = (1 << 64) - 1


def _long(number: int) -> bytes:
    """The low 64 bits, as Java's arithmetic leaves them."""
    return (number & _MASK).to_bytes(8, "big")


def _reseal(t: Target, path: Any, entry: Entry, **changed: int) -> None:
    fields = {**_fields(entry), **changed}
    splice(path, entry, v2.seal(**fields))


@kind
def tail_short(t: Target) -> str | None:
    """Fewer bytes than an entry begins with."""
    path, count = t.log(), t.random.randint(1, 17)
    raw = t.random.choice([bytes(count), t.random.randbytes(count), b"\xff" * count])
    with open(path, "ab") as file:
        file.write(raw)
    return f"{path.name} {raw.hex()} behind the end"


@kind
def tail_torn_batch(t: Target) -> str | None:
    """The beginning of a batch that a crash cut, at the next offset."""
    path = t.log(last=t.random.random() < .8)
    entry = t.entry(path)
    if entry is None:
        return None
    count = t.random.choice([1, 11, 12, 16, 17, 18, 60, 61, entry.size - 1,
                             t.random.randrange(1, entry.size)])
    raw = _long(end_of(t)) + entry.data[8:]
    at = sum(one.size for one in whole_entries(path))
    poke(path, at, raw[:min(count, entry.size - 1)])
    return f"{path.name} {count} bytes of a batch at {at}"


@kind
def tail_preallocated(t: Target) -> str | None:
    path = t.log(last=t.random.random() < .8)
    size = path.stat().st_size + t.random.choice([18, 61, 512, 4096, 16384, 65536])
    os.truncate(path, size)
    return f"{path.name} zeros up to {size}"


@kind
def tail_then_batch(t: Target) -> str | None:
    """A good batch behind garbage: what recovery cuts with it."""
    path = t.log()
    entry = t.entry(path)
    if entry is None:
        return None
    gap = t.random.choice([bytes(8), bytes(100), t.random.randbytes(30), entry.data[:-1]])
    with open(path, "ab") as file:
        file.write(gap + _long(end_of(t)) + entry.data[8:])
    return f"{path.name} {len(gap)} bytes and a batch behind the end"


@kind
def log_cut_at_index_entry(t: Target) -> str | None:
    path = t.log()
    index = path.with_suffix(".index")
    raw = index.read_bytes()
    positions = [position for _, position in struct.iter_unpack(">ii", raw[:len(raw) // 8 * 8])
                 if 0 < position <= path.stat().st_size]
    if not positions:
        return None
    size = t.random.choice(positions) + t.random.choice([0, 0, 1, -1])
    os.truncate(path, size)
    return f"{path.name} cut to {size}, where an index entry points"


@kind
def log_cut_inside_batch(t: Target) -> str | None:
    """Fields of the header, the body, the last byte."""
    path = t.log()
    entry = t.entry(path)
    if entry is None:
        return None
    inside = t.random.choice([7, 8, 11, 12, 16, 17, 20, 23, 43, 57, 60, 61, entry.size // 2,
                              entry.size - 1])
    size = entry.position + min(inside, entry.size)
    os.truncate(path, size)
    return f"{path.name} cut to {size}, byte {inside} of a batch"


@kind
def header_field_flipped(t: Target) -> str | None:
    path = t.log()
    entry = t.entry(path)
    if entry is None:
        return None
    name, start, end = t.random.choice([
        ("base offset", 0, 8), ("length", 8, 12), ("leader epoch", 12, 16), ("magic", 16, 17),
        ("crc", 17, 21), ("attributes", 21, 23), ("last offset delta", 23, 27),
        ("base timestamp", 27, 35), ("max timestamp", 35, 43), ("producer id", 43, 51),
        ("producer epoch", 51, 53), ("base sequence", 53, 57), ("count", 57, 61),
        ("body", 61, entry.size)])
    at = t.random.randrange(start, max(start + 1, min(end, entry.size)))
    if at >= entry.size:
        return None
    poke(path, entry.position + at, bytes([entry.data[at] ^ 1 << t.random.randrange(8)]))
    return f"{path.name} one bit of the {name} at {entry.position}"


@kind
def offsets_moved(t: Target) -> str | None:
    """All batches from one on: gaps, overlaps, and offsets that do not fit their segment."""
    path = t.log(last=t.random.random() < .6)
    found = whole_entries(path)
    if not found:
        return None
    moved = found[t.random.randrange(len(found)):]
    by = t.random.choice([1, -1, 7, -7, 1000, 2**31 - 1, 2**31, 2**31 + 7, 2**32, 2**33 + 1,
                          2**62, -2**31, -10**6])
    for entry in moved:
        poke(path, entry.position, _long(base_of(entry) + by))
    if t.random.random() < .4:
        for suffix in (".index", ".timeindex"):
            path.with_suffix(suffix).unlink(missing_ok=True)
    return f"{path.name} {len(moved)} entries moved by {by}"


@kind
def offsets_overflow_often(t: Target) -> str | None:
    """Several jumps beyond 2^31: a split into several segments, or one after the other."""
    path = t.log(last=t.random.random() < .8)
    found = whole_entries(path)
    if len(found) < 3:
        return None
    jumps = sorted(t.random.sample(range(1, len(found)), min(len(found) - 1,
                                                               t.random.randint(1, 4))))
    by, step = 0, t.random.choice([2**31 - 1, 2**31 + 5, 2**32, 3 * 2**31])
    for number, entry in enumerate(found):
        by += step * (number in jumps)
        poke(path, entry.position, _long(base_of(entry) + by))
    return f"{path.name} jumps of {step} at entries {jumps}"


@kind
def offset_backwards(t: Target) -> str | None:
    """A batch at or below the one before it, where an index entry may be due."""
    path = t.log()
    found = whole_entries(path)
    if len(found) < 2:
        return None
    for _ in range(t.random.choice([1, 1, 3])):
        number = t.random.randrange(1, len(found))
        before = base_of(found[number - 1])
        base = t.random.choice([before, before - 1, base_of(found[0]), int(path.name[:20])])
        poke(path, found[number].position, _long(base))
    return f"{path.name} batches with offsets below those before them"


@kind
def epochs_of_batches(t: Target) -> str | None:
    """Leader epochs up and down through a segment."""
    path = t.log()
    found = [entry for entry in whole_entries(path) if entry.magic >= 2]
    if not found:
        return None
    chosen = t.random.sample(found, min(len(found), t.random.randint(1, 6)))
    epochs = [t.random.choice([-1, 0, 1, 2, 3, 5, 9, 100, 2**31 - 1, -2**31]) for _ in chosen]
    if t.random.random() < .5:
        epochs.sort()
        chosen.sort(key=lambda entry: entry.position)
    for entry, epoch in zip(chosen, epochs, strict=True):
        poke(path, entry.position + 12, struct.pack(">i", epoch))
    return f"{path.name} leader epochs {epochs}"


@kind
def producers_of_batches(t: Target) -> str | None:
    """Producer ids, epochs and sequences under a right CRC, of several batches."""
    path = t.log(last=t.random.random() < .7)
    done = []
    for _ in range(t.random.choice([1, 1, 2, 4])):
        entry = t.entry(path, _is_v2)
        if entry is None:
            return None
        changed: dict[str, int] = {"producer_id": t.random.choice([-1, 0, 1, 2000, 7, 2**40])}
        if t.random.random() < .5:
            changed["producer_epoch"] = t.random.choice([-1, 0, 1, 5, 2**15 - 1])
        if t.random.random() < .5:
            changed["base_sequence"] = t.random.choice([-1, 0, 5, 2**31 - 2, 2**31 - 1])
        if t.random.random() < .3:
            changed["attributes"] = _fields(entry)["attributes"] ^ v2.TRANSACTIONAL
        _reseal(t, path, entry, **changed)
        done.append(changed)
    return f"{path.name} {done}"


@kind
def header_sealed(t: Target) -> str | None:
    """Any field of one header, under a right CRC, control and empty batches too."""
    path = t.log()
    entry = t.entry(path, _is_v2)
    if entry is None:
        return None
    now = _fields(entry)
    name = t.random.choice(["last_offset_delta", "base_timestamp", "max_timestamp", "producer_id",
                            "producer_epoch", "base_sequence", "record_count", "attributes",
                            "magic"])
    wide = {"base_timestamp": 63, "max_timestamp": 63, "producer_id": 63, "producer_epoch": 15,
            "attributes": 15, "magic": 7}.get(name, 31)
    number = t.random.choice([0, -1, 1, now[name] + 1, now[name] - 1, 2**wide - 1, -2**wide])
    number = max(-2**wide, min(2**wide - 1, number))
    _reseal(t, path, entry, **{name: number})
    return f"{path.name} {name} {number} at {entry.position}"


def _is_marker(entry: Entry) -> bool:
    return _is_v2(entry) and bool(_fields(entry)["attributes"] & v2.CONTROL)


@kind
def marker_changed_inside(t: Target) -> str | None:
    """The control record of a transaction's end: its type, version, coordinator epoch, size."""
    place = t.place(_is_marker)
    if place is None:
        return None
    path, entry = place
    batch = v2.decode(entry.data)
    if not batch.records:
        return None
    record = batch.records[0]
    number = t.random.choice([-1, 0, 1, 2, 3, 5, 99, 2**15 - 1, -2**15])
    name, key, value = t.random.choice([
        ("type", b"\0\0" + struct.pack(">h", number), record.value),
        ("version", struct.pack(">h", number) + b"\0\1", record.value),
        ("value version", record.key, struct.pack(">h", number) + (record.value or b"")[2:]),
        ("coordinator epoch", record.key, b"\0\0" + struct.pack(">i", number)),
        ("short key", (record.key or b"")[:t.random.randrange(4)], record.value),
        ("long key", (record.key or b"") + b"\0\0", record.value),
        ("no key", None, record.value), ("no value", record.key, None),
        ("short value", record.key, (record.value or b"")[:t.random.randrange(6)]),
        ("long value", record.key, (record.value or b"") + b"\0\0\0"),
    ])
    record.key, record.value = key, value
    splice(path, entry, v2.encode(batch))
    return f"{path.name} {name} ({number}) of the marker at {entry.position}"


@kind
def marker_moved(t: Target) -> str | None:
    """A marker gone, or there twice, or of another producer or epoch."""
    place = t.place(_is_marker)
    if place is None:
        return None
    path, entry = place
    name = t.random.choice(["gone", "twice", "of another producer", "of another epoch"])
    if name == "gone":
        splice(path, entry, b"")
    elif name == "twice":
        splice(path, entry, entry.data + _long(base_of(entry) + 1) + entry.data[8:])
    elif name == "of another producer":
        other = t.entry(path, lambda one: _is_v2(one) and _fields(one)["producer_id"] >= 0)
        _reseal(t, path, entry, producer_id=_fields(other)["producer_id"] if other else 4)
    else:
        epoch = _fields(entry)["producer_epoch"] + t.random.choice([-1, 1])
        _reseal(t, path, entry, producer_epoch=max(-1, epoch))
    return f"{path.name} the marker at {entry.position} {name}"


@kind
def batches_of_another_log(t: Target) -> str | None:
    """Batches of one segment behind those of another, with their own offsets or the next ones."""
    one, two = t.log(last=True), t.log()
    entry = t.entry(two)
    if entry is None:
        return None
    base = t.random.choice([base_of(entry), end_of(t), end_of(t) + 2**31, 0])
    with open(one, "ab") as file:
        file.write(_long(base) + entry.data[8:])
    return f"{one.name} a batch of {two.name} behind it, at offset {base}"


@kind
def old_message_resealed(t: Target) -> str | None:
    """A wrapper of magic 0 or 1 that is wrong inside, under a right CRC."""
    place = t.place(lambda entry: entry.magic in (0, 1))
    if place is None:
        return None
    path, entry = place
    name, message = _bad_message(t, entry)
    if name in ("bomb", "inner size of 2 GiB"):
        return None
    splice(path, entry, legacy.encode(message))
    return f"{path.name} {name} at {entry.position}"
