"""Every state in which a crash can leave the replacement of segments (LocalLog.replaceSegments).

A compaction or a split writes new segments as `.cleaned`, renames them to `.swap` from the last to
the first, the old ones to `.deleted`, and the new ones to their names. The steps are listed here
one by one, and a random number of them is done; sometimes the disk forgot one of the renames.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.differential.registry import base_of, kind, last_of, timestamp_of
from tests.oracle import files
from tests.oracle.log import Entry
from tests.oracle.writer import Segment
from tests.support.damage import Target, whole_entries

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")
Step = Callable[[], object]


def _built(base: int, entries: list[Entry], interval: int) -> Segment:
    """A new segment as the cleaner writes it."""
    segment = Segment(base)
    for entry in entries:
        segment.append(entry.data, last_of(entry), timestamp_of(entry), interval)
    segment.append_time()
    return segment


def _contents(segment: Segment, txn_index: bytes) -> dict[str, bytes]:
    base = segment.base_offset
    found = {".log": bytes(segment.data),
             ".index": files.encode_offset_index(segment.offsets, base),
             ".timeindex": files.encode_time_index(segment.times, base)}
    if txn_index:
        found[".txnindex"] = txn_index
    return found


def _compacted(t: Target, old: list[Path], share: float) -> list[tuple[int, list[Entry]]]:
    """One or two segments with what is left of the old ones."""
    kept = [entry for path in old for entry in whole_entries(path) if t.random.random() < share]
    base = int(old[0].name[:20])
    if len(old) < 3 or not kept or t.random.random() < .5:
        return [(base, kept)]
    second = int(old[t.random.randrange(1, len(old))].name[:20])
    return [(base, [entry for entry in kept if base_of(entry) < second]),
            (second, [entry for entry in kept if base_of(entry) >= second])]


def _split(t: Target, path: Path) -> list[tuple[int, list[Entry]]]:
    """The batches of one segment in two to four; each begins at its first batch."""
    found = whole_entries(path)
    if len(found) < 2:
        return []
    cuts = sorted(t.random.sample(range(1, len(found)),
                                  min(len(found) - 1, t.random.randint(1, 3))))
    parts = [found[start:end] for start, end in
             zip([0, *cuts], [*cuts, len(found)], strict=True)]
    return [(base_of(part[0]), part) for part in parts]


def _steps(t: Target, old: list[Path], new: list[tuple[int, dict[str, bytes]]]) -> Iterator[Step]:
    """The operations on the directory, in Kafka's order."""
    def at(base: int, suffix: str) -> Path:
        return t.dir / f"{base:020d}{suffix}"

    def rename(path: Path, other: Path) -> Step:
        return lambda: os.replace(path, other) if path.exists() else None

    for base, contents in new:
        for suffix, raw in contents.items():
            yield functools.partial(at(base, suffix + ".cleaned").write_bytes, raw)
    for base, contents in reversed(new):
        for suffix in contents:
            yield rename(at(base, suffix + ".cleaned"), at(base, suffix + ".swap"))
    for path in old:
        for suffix in _SUFFIXES:
            live = path.with_suffix(suffix)
            yield rename(live, live.with_name(live.name + ".deleted"))
    bases = {base for base, _ in new}
    for path in old:
        if int(path.name[:20]) not in bases:
            snapshot = path.with_suffix(".snapshot")
            yield rename(snapshot, snapshot.with_name(snapshot.name + ".deleted"))
    for base, contents in new:
        for suffix in contents:
            yield rename(at(base, suffix + ".swap"), at(base, suffix))
    for path in old:
        for suffix in (*_SUFFIXES, ".snapshot"):
            deleted = path.with_name(path.name[:20] + suffix + ".deleted")
            yield functools.partial(deleted.unlink, missing_ok=True)


def _crash(t: Target, old: list[Path], parts: list[tuple[int, list[Entry]]]) -> str | None:
    if not parts:
        return None
    interval = t.random.choice([512, 512, 0, 4096])
    txn = b"".join(path.with_suffix(".txnindex").read_bytes() for path in old
                   if path.with_suffix(".txnindex").exists())
    new = [(base, _contents(_built(base, entries, interval), txn if not number else b""))
           for number, (base, entries) in enumerate(parts)]
    steps = list(_steps(t, old, new))
    count = t.random.randint(1, len(steps))
    forgotten = t.random.randrange(count) if t.random.random() < .25 else None
    for number, step in enumerate(steps[:count]):
        if number != forgotten:
            step()
    lost = "" if forgotten is None else f" but {forgotten}"
    return (f"{[path.name[:20] for path in old]} replaced by {[base for base, _ in parts]}: "
            f"{count} of {len(steps)} steps{lost}")


@kind
def crash_in_compaction(t: Target) -> str | None:
    found = t.files(".log")
    first = t.random.randrange(len(found))
    # The cleaner never takes the active segment; here it may, now and then.
    last = len(found) - (len(found) > 1 and t.random.random() < .8)
    old = found[min(first, last - 1):last][:t.random.randint(1, 4)]
    return _crash(t, old, _compacted(t, old, t.random.choice([0, .1, .5, .9, 1])))


@kind
def crash_in_split(t: Target) -> str | None:
    path = t.log()
    return _crash(t, [path], _split(t, path))


@kind
def crash_in_split_of_overflow(t: Target) -> str | None:
    """A split that was really needed: offsets that do not fit, before or after the split."""
    path = t.log(last=t.random.random() < .7)
    found = whole_entries(path)
    if len(found) < 2:
        return None
    first = t.random.randrange(1, len(found))
    data = bytearray(path.read_bytes())
    for entry in found[first:]:
        moved = base_of(entry) + 2**31 + 11
        data[entry.position:entry.position + 8] = (moved & (1 << 64) - 1).to_bytes(8, "big")
    path.write_bytes(data)
    found = whole_entries(path)
    return _crash(t, [path], [(base_of(found[0]), found[:first]),
                              (base_of(found[first]), found[first:])])
