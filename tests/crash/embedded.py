"""A writer through `seglog.open`, a job of tests/faults, and what it finds again after a crash."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import seglog
from seglog._native.status import Status
from seglog.errors import CorruptRecordError
from tests.crash.promises import Acknowledgements, Promises

PARTITION = "t-0"


def config_of(seed: int) -> dict[str, str]:
    """Small segments, sometimes preallocated, sometimes compressed."""
    source = random.Random(f"embedded {seed}")
    return {"internal.segment.bytes": source.choice(["700", "2000", "8000"]),
            "index.interval.bytes": source.choice(["0", "100", "400"]),
            "segment.index.bytes": "4096", "file.delete.delay.ms": source.choice(["0", "1000"]),
            "preallocate": source.choice(["false", "true"]),
            "compression.type": source.choice(["producer", "producer", "zstd"])}


def write_embedded(root: str, seed: int, count: int, durability: Literal["none", "append"],
                   generation: int = 1) -> Callable[[], dict[str, Any]]:
    """Opens the log as a program does, does `count` things to it, and does not close it."""
    source = random.Random(f"embedded {seed} {generation}")

    def work() -> dict[str, Any]:
        say = Acknowledgements(Path(root)).say
        log = seglog.open(Path(root) / PARTITION, config=config_of(seed), durability=durability,
                          batch_bytes=400)
        say("opened", end=log.log_end_offset, start=log.log_start_offset)
        for kind in source.choices(["append", "many", "flush", "delete"], [8, 4, 2, .5], k=count):
            end = log.log_end_offset
            if kind == "flush":
                log.flush()
                say("flushed", to=end)
            elif kind == "delete":
                at = source.randint(log.log_start_offset, end)
                say("starting", at=at)
                log.delete_before(at)
                say("started", at=at)
            else:
                size = source.choice([0, 20, 150])
                texts = [f"{end + number} {source.getrandbits(32):08x}" + "." * size
                         for number in range(1 if kind == "append" else source.randint(1, 30))]
                say("appending", first=end, texts=texts)
                if kind == "append":
                    log.append(texts[0].encode())
                else:
                    log.append_many(text.encode() for text in texts)
                say("appended", first=end, texts=texts)
                if durability == "append":
                    say("flushed", to=log.log_end_offset)
        return {"end": log.log_end_offset}
    return work


def check_embedded(root: Path, seed: int, promises: Promises, *, everything: bool) -> None:
    """The log after a crash: what was promised, each offset once, and nothing that was never
    appended."""
    with seglog.open(root / PARTITION, config=config_of(seed)) as log:
        start, held = log.log_start_offset, log.log_end_offset
        wanted = promises.end if everything else promises.flushed
        assert held >= wanted, f"ends at {held}, {wanted} was promised"
        assert promises.start <= start <= max(promises.start_at_most, promises.start)
        found = texts_of(log)
        assert start + len(found) >= wanted
        assert list(found) == list(range(start, start + len(found))), "a hole, or something twice"
        for offset, text in found.items():
            assert text in promises.possible[offset], f"{offset} was never {text}"
            if offset < wanted and offset in promises.texts:
                assert text == promises.texts[offset], f"{offset}: {text}"
        assert log.append(b"and on") == held


def texts_of(log: seglog.EmbeddedLog) -> dict[int, str]:
    """The texts by offset, to the log's end, or to a batch of which the sector with its first bytes
    alone did not reach the disk: no CRC covers a base offset, so recovery keeps it, as Kafka's."""
    found = {}
    try:
        for record in log.records():
            found[record.offset] = (record.value or b"").decode()
    except CorruptRecordError as error:
        if error.code != Status.BATCH_OFFSET_ORDER.code:
            raise
    else:
        assert log.log_start_offset + len(found) == log.log_end_offset
    return found
