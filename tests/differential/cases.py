"""Cases: what number N of seed S is, and making it. Nothing here depends on the clock."""

from __future__ import annotations

import functools
import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.differential import registry
from tests.differential.sources import Source, Sources

# How often other log configurations are used, and which.
OTHER_CONFIGS: tuple[dict[str, str], ...] = (
    {"index.interval.bytes": "0"}, {"index.interval.bytes": "1"},
    {"index.interval.bytes": "4096"}, {"index.interval.bytes": "100000"},
    {"segment.index.bytes": "64"}, {"segment.index.bytes": "24"}, {"segment.index.bytes": "12"},
    {"segment.index.bytes": "1001"}, {"segment.index.bytes": "262144"},
    {"preallocate": "true"}, {"preallocate": "true", "internal.segment.bytes": "65536"},
    {"segment.index.bytes": "200", "index.interval.bytes": "0"},
)
#: Kinds that say little on their own, or cover much: more of them than of the others.
_WEIGHTS = {"crash_in_compaction": 4, "crash_in_split": 4, "crash_in_split_of_overflow": 3,
            "suffixes_left": 4, "recovery_point_moved_near": 3, "start_offset_moved_near": 2,
            "offsets_moved": 3, "offsets_overflow_often": 3, "offset_backwards": 2,
            "marker_gone": 2, "log_byte_flipped": 2, "producers_of_batches": 2,
            "checkpoint_damaged": .3, "odd_directory_names": .5, "untouched": .5,
            "sealed_payload_flipped": .3, "sealed_payload_cut": .3, "sealed_payload_longer": .3,
            "sealed_hostile_record": .5, "decompressed_size_lies": .3}


@dataclass(frozen=True)
class Case:
    """What is damaged, how, and under which configuration both load it."""

    seed: int
    number: int
    source: Source
    damages: tuple[tuple[str, str], ...]  # kind and seed
    config: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return f"case-{self.seed}-{self.number:06d}"

    def build(self, sources: Sources, root: Path, only: set[int] | None = None) -> list[str]:
        """Makes the data directory; what was done. `only` picks damages, for minimising."""
        sources.copy(self.source, root)
        return self.damage(root, only)

    def damage(self, root: Path, only: set[int] | None = None) -> list[str]:
        """Damages a directory of this source; what was done."""
        partition = _partition(self.source)
        done = []
        for number, (kind, seed) in enumerate(self.damages):
            if only is None or number in only:
                did = registry.apply(kind, root, partition, seed)
                if did is not None:
                    done.append(f"{kind}: {did}")
        remove_unspeakable(root)
        return done


def remove_unspeakable(root: Path) -> None:
    """Names that are not UTF-8: the JVM lists them as others, which it then does not find."""
    for folder, folders, names in os.walk(root, topdown=False):
        for name in (*names, *folders):
            try:
                name.encode()
            except UnicodeEncodeError:
                path = os.path.join(folder, name)
                shutil.rmtree(path) if name in folders else os.unlink(path)


def _partition(source: Source) -> str:
    return f"{source.partition}-0" if source.home == "built" else source.partition


@functools.cache
def _weighted() -> tuple[list[str], list[float]]:
    names = sorted(registry.kinds())
    return names, [_WEIGHTS.get(name, 1) for name in names]


def plan(sources: Sources, seed: int, number: int) -> Case:
    """Case `number` of `seed`."""
    rng = random.Random(f"{seed}/{number}")
    source = sources.choose(rng, seed)
    names, weights = _weighted()
    count = rng.choices((1, 2, 3), (50, 38, 12))[0]
    damages = tuple((kind, f"{seed}-{number}-{at}")
                    for at, kind in enumerate(rng.choices(names, weights, k=count)))
    config = sources.config(source)
    if rng.random() < .25:
        config.update(rng.choice(OTHER_CONFIGS))
    return Case(seed, number, source, damages, tuple(sorted(config.items())))
