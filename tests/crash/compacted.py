"""A writer of a compacted log through `seglog.open`, a job of tests/faults, and what it finds again
after a crash: of each key the last value, once."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import seglog
from tests.crash.promises import Acknowledgements, Promises

PARTITION = "t-0"
KEYS = 7


def config_of(seed: int) -> dict[str, str]:
    """Small segments, and only requested rounds."""
    source = random.Random(f"compacted {seed}")
    return {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1",
            "internal.segment.bytes": source.choice(["700", "2000"]),
            "index.interval.bytes": source.choice(["0", "100", "400"]),
            "segment.index.bytes": "4096", "file.delete.delay.ms": source.choice(["0", "1000"]),
            "compression.type": source.choice(["producer", "producer", "zstd", "lz4"])}


def write_compacted(root: str, seed: int, count: int, durability: Literal["none", "append"],
                    generation: int = 1) -> Callable[[], dict[str, Any]]:
    """Opens the log, puts and compacts `count` times, and does not close it."""
    source = random.Random(f"compacted {seed} {generation}")

    def work() -> dict[str, Any]:
        say = Acknowledgements(Path(root)).say
        log = seglog.open(Path(root) / PARTITION, config=config_of(seed), durability=durability,
                          batch_bytes=400)
        say("opened", end=log.log_end_offset, start=log.log_start_offset)
        for kind in source.choices(["put", "flush", "compact"], [8, 1, 3], k=count):
            end = log.log_end_offset
            if kind == "flush":
                log.flush()
                say("flushed", to=end)
            elif kind == "compact":
                log.compact()
            else:
                texts = [f"{end + number} {source.randrange(KEYS)} {source.getrandbits(32):08x}"
                         + "." * source.choice([0, 20, 150])
                         for number in range(source.randint(1, 20))]
                say("appending", first=end, texts=texts)
                log.append_many((key_of(text), text.encode()) for text in texts)
                say("appended", first=end, texts=texts)
                if durability == "append":
                    say("flushed", to=log.log_end_offset)
        return {"end": log.log_end_offset}
    return work


def key_of(text: str) -> bytes:
    return text.split()[1].encode()


def check_compacted(root: Path, seed: int, promises: Promises, *, everything: bool) -> None:
    """The log after a crash: nothing that was never put, of each key what was promised last or
    something later, and after one more round each key once."""
    with seglog.open(root / PARTITION, config=config_of(seed)) as log:
        wanted = promises.end if everything else promises.flushed
        assert log.log_end_offset >= wanted, f"ends at {log.log_end_offset}, {wanted} was promised"
        found = {record.offset: (record.value or b"").decode() for record in log.records()}
        assert sorted(found) == list(found), "out of order, or something twice"
        last = {key_of(text): (offset, text) for offset, text in found.items()}
        for offset, text in found.items():
            assert text in promises.possible[offset], f"{offset} was never {text}"
        for offset, text in promises.texts.items():
            if offset < wanted:
                there = last.get(key_of(text), (-1, ""))
                assert there[0] > offset or there == (offset, text), f"{text} is gone: {there}"
        assert not [*(root / PARTITION).glob("*.cleaned"), *(root / PARTITION).glob("*.swap")]
        log.compact()
        kept = [(record.key, (record.value or b"").decode()) for record in log.records()]
        assert sorted(kept) == sorted((key, text) for key, (_, text) in last.items())
        assert log.latest(b"0") == (last[b"0"][1].encode() if b"0" in last else None)
