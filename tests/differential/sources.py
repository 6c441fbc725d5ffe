"""The directories that cases damage: written by real brokers, or by the tests' own encoder."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import LogConfig, write_data_dir

ROOT_FILES = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
              "replication-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown")
#: Under which the golden directories were written (tests/golden/README.md).
GOLDEN_CONFIG = {"internal.segment.bytes": "16384", "index.interval.bytes": "512",
                 "segment.index.bytes": "16384"}
#: Named like another golden set, and of many megabytes because nothing of it was trimmed.
_TOO_LARGE = {("unclean", "__cluster_metadata-0")}

SMALL = LogConfig(2048, 200, 4096)
TINY = LogConfig(700, 100, 1024)
SHAPES: tuple[Shape, ...] = (
    Shape(40, config=SMALL),
    Shape(40, config=SMALL, clean=False),
    Shape(60, config=TINY, most_records=4, most_bytes=60),
    Shape(60, config=TINY, most_records=4, most_bytes=60, clean=False),
    Shape(90, config=SMALL, codecs=(0,), most_records=5, most_bytes=40, compacted=False),
    Shape(40, config=SMALL, magics=(0, 1, 2), clean=False),
    Shape(40, config=SMALL, magics=(1, 2)),
    Shape(30, config=SMALL, magics=(0,), clean=False),
    Shape(40, config=SMALL, base_offset=2**40, clean=False),
    Shape(30, config=SMALL, base_offset=2**62, clean=True),
    Shape(40, config=SMALL, preallocated=True, clean=False),
    Shape(50, config=LogConfig(16384, 512, 16384), transactions=True, clean=False),
    Shape(50, config=LogConfig(1 << 20, 0, 16384), most_records=3, clean=False),
    Shape(3, config=SMALL, clean=False),
    Shape(0, config=SMALL),
    Shape(120, config=LogConfig(300, 50, 512), most_records=2, most_bytes=20, clean=False),
)


@dataclass(frozen=True)
class Source:
    """A partition to copy: `golden` ones by set and directory, built ones by shape and seed."""

    home: str
    partition: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.home}/{self.partition}" + (f"#{self.seed}" if self.home == "built" else "")


class Sources:
    """All sources; `work` caches the built ones, which are created on request."""

    def __init__(self, golden: Path, work: Path) -> None:
        self.golden, self.work = golden, work
        self.names = {home: sorted(path.name for path in folder.iterdir() if path.is_dir()
                                   and (home, path.name) not in _TOO_LARGE)
                      for home, folder in (("clean", golden / "real/clean"),
                                           ("unclean", golden / "real/unclean"))}
        self.names["old"] = sorted(path.name for path in (golden / "old").iterdir()
                                   if path.name.startswith("old-"))

    def choose(self, rng: random.Random, seed: int) -> Source:
        """One source; a third of them are built, from a seed of their own."""
        home = rng.choices(("clean", "unclean", "old", "built"), (20, 38, 8, 34))[0]
        if home == "built":
            shape = rng.randrange(len(SHAPES))
            return Source(home, f"built-{shape}", seed * 8 + rng.randrange(8))
        names = self.names[home]
        weights = [1 if name.startswith(("__", "big", "empty", "dots")) else
                   6 if name.startswith(("txn", "compacted")) else 3 for name in names]
        return Source(home, rng.choices(names, weights)[0])

    def config(self, source: Source) -> dict[str, str]:
        """The log configuration that fits the source."""
        if source.home != "built":
            return dict(GOLDEN_CONFIG)
        return SHAPES[int(source.partition[6:])].config.as_kafka()

    def copy(self, source: Source, root: Path) -> None:
        """A data directory at `root` with the partition and what belongs to it."""
        if source.home == "built":
            _copy_files(self._built(source), root, None)
            return
        home = self.golden / ("old" if source.home == "old" else f"real/{source.home}")
        _copy_files(home, root, source.partition)

    def _built(self, source: Source) -> Path:
        home = self.work / f"{source.partition}-{source.seed}"
        if not home.exists():
            shape = SHAPES[int(source.partition[6:])]
            fresh = home.with_name(home.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            log = build_log(fresh / f"{source.partition}-0", source.seed, shape)
            write_data_dir(fresh, [log], clean=shape.clean)
            fresh.rename(home)
        return home


def _copy_files(home: Path, root: Path, partition: str | None) -> None:
    root.mkdir(parents=True)
    for name in ROOT_FILES:
        if (home / name).exists():
            shutil.copyfile(home / name, root / name)
    folders: Iterable[Path] = [home / partition] if partition else (
        path for path in home.iterdir() if path.is_dir())
    for folder in folders:
        (root / folder.name).mkdir()
        for path in folder.iterdir():
            shutil.copyfile(path, root / folder.name / path.name)
