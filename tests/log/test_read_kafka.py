"""Reads by offset and by timestamp beside Kafka's, on what real brokers wrote and on damage.

Both sides open a copy of the same directory and answer the same questions (Driver.java, drive.py).
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kafka.conftest import kafka_lib
from tests.sequences import drivers
from tests.sequences.drivers import Side
from tests.support import golden

__all__ = ["kafka_lib"]

pytestmark = [pytest.mark.kafka, pytest.mark.judge]
_ISOLATIONS = ("LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED")


def partitions() -> dict[str, Path]:
    """Every kind of log that there is, by a name."""
    root = golden.unpack()
    found = {f"{kind}-{path.name}": path for kind in ("real/clean", "old")
             for path in sorted((root / kind).iterdir()) if any(path.glob("*.log"))}
    for case in sorted((root / "damaged").iterdir()):
        if any(word in case.name for word in ("index", "log_", "swap", "batch", "segment")):
            found.update((f"{case.name}-{path.name}", path) for path in sorted(case.iterdir())
                         if path.is_dir() and any(path.glob("*.log")))
    return {name.replace("/", "-"): path for name, path in found.items()}


def questions(path: Path, rng: random.Random) -> list[dict[str, Any]]:
    """Reads around every place where something changes: segments, the watermark, the ends."""
    bases = sorted(int(one.stem) for one in path.glob("*.log"))
    end = bases[-1] + max(20, bases[-1] - bases[0]) // len(bases) * 3
    offsets = sorted({*bases, *(base - 1 for base in bases[1:]), bases[0] - 1, end,
                      *(rng.randrange(bases[0], end + 1) for _ in range(12))})
    ops: list[dict[str, Any]] = []
    for watermark in [None, *rng.sample(offsets, min(4, len(offsets))), 2**62]:
        if watermark is not None:
            ops.append({"op": "high_watermark", "offset": watermark})
        for _ in range(12):
            ops.append({"op": "read", "offset": rng.choice(offsets),
                        "max_bytes": rng.choice([0, 1, 100, 5000, 70_000, 10**8, -1]),
                        "isolation": rng.choice(_ISOLATIONS), "min_one": rng.random() < 0.5})
    first = 1_600_000_000_000
    for ts in [*range(-7, 3), first, 2**60, *(rng.randrange(first, 1_900_000_000_000)
                                              for _ in range(5))]:
        ops.append({"op": "timestamp", "ts": ts})
    return ops


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory, kafka_lib: Path) -> Iterator[tuple[Side, Side]]:
    home = tmp_path_factory.mktemp("reads")
    with Side(home / "kafka", drivers.kafka) as theirs, Side(home / "ours", drivers.ours) as ours:
        yield theirs, ours


@pytest.mark.parametrize("seed", [1])
def test_reads_are_kafkas(sides: tuple[Side, Side], seed: int) -> None:
    wrong, asked = [], 0
    for name, source in partitions().items():
        ops = questions(source, random.Random(f"{seed} {name}"))
        sequence = {"name": f"{seed}-{name}", "config": {}, "ops": ops}
        answers = []
        for side in sides:
            # Times of modification count where a time index says nothing.
            shutil.copytree(source, side.home / sequence["name"] / "t-0")
            side.ask(sequence)
        answers = [side.answer() for side in sides]
        if isinstance(answers[0], str):  # Kafka does not load it, or did not survive the reads
            for side in sides:
                side.close()
            continue
        assert isinstance(answers[1], dict), f"{name}: {answers[1]}"
        pairs = zip(answers[0]["results"], answers[1]["results"], ops, strict=True)
        asked += len(ops)
        wrong += [f"{name}: {op}\n   Kafka {theirs}\n   ours  {ours}" for theirs, ours, op in pairs
                  if theirs != ours]
    assert not wrong, f"{len(wrong)} of {asked} differ\n" + "\n".join(wrong[:20])
    assert asked > 1000
