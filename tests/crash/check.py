"""Opens what a crash left, and holds it against what was promised."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.crash.promises import Promises
from tests.crash.writer import ABORTED, COMMITTED, PARTITION, open_log
from tests.oracle import batch as v2
from tests.oracle.files import segment_path


def recover(root: Path, seed: int, promises: Promises, source: random.Random, *,
            everything: bool) -> None:
    """The log after a crash: all that was flushed, or appended where only the process died.

    `promises` is brought to what the log holds now: a second crash may take no more.
    """
    log, _ = open_log(root, seed, recovery_point=source.choice([0, promises.flushed]),
                      log_start_offset=source.choice([0, promises.start]))
    try:
        held = log.log_end_offset
        wanted = promises.end if everything else promises.flushed
        assert held >= wanted, f"ends at {held}, {wanted} was promised"
        assert log.log_start_offset <= max(promises.start_at_most, promises.start)
        start = log.log_start_offset
        found, held = texts(root / PARTITION, start, held)
        assert held >= wanted, f"readable to {held}, {wanted} was promised"
        assert list(found) == list(range(start, held)), "a hole, or something twice"
        for offset, text in found.items():
            if offset < wanted and offset in promises.texts:
                assert text == promises.texts[offset], f"{offset}: {text}"
            assert text in promises.possible[offset], f"{offset} was never {text}"
        for offset in source.sample(range(start, held), min(5, len(found))):
            raw = bytes(log.read(offset, 1 << 20, "log_end", True).records)
            assert found[offset] in dict(records_of(raw)).values()
        promises.lost(held)
        promises.texts = found
    finally:
        log.close_handlers()


def texts(path: Path, start: int, end: int) -> tuple[dict[int, str], int]:
    """The texts of all records in [start, end) by the files alone, in their order, and where they
    end: at `end`, or before a batch that is below those before it. No CRC covers a base offset, so
    recovery keeps a batch that reached the disk without its first bytes, as Kafka's does."""
    found: dict[int, str] = {}
    last = -1
    for base in sorted(int(log.stem) for log in path.glob("*.log")):
        data = segment_path(path, base).read_bytes()
        for offset, text in records_of(data):
            if offset < last:
                return found, min(end, max(start, last + 1))
            last = offset
            if start <= offset < end:
                found[offset] = text
    return found, end


def records_of(data: bytes) -> Iterator[tuple[int, str]]:
    """(offset, text) of the records in batches behind each other; zeros end them."""
    at = 0
    while at + v2.HEADER.size <= len(data):
        size = int.from_bytes(data[at + 8:at + 12], "big") + 12
        if size == 12 or at + size > len(data):
            break
        batch = v2.decode(data[at:at + size])
        kind = v2.marker_kind(batch)
        for record in batch.records:
            text = (record.value or b"").decode() if kind is None else \
                COMMITTED if kind else ABORTED
            yield record.offset, text
        at += size
