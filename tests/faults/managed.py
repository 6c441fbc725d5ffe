"""Data directories for a log manager: parts of the golden ones, two that fail apart."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.differential.sources import GOLDEN_CONFIG, ROOT_FILES
from tests.faults.box import CHANGES, Box, snapshot

CLEAN_MARKER = ".kafka_cleanshutdown"
#: Files of a start and a shutdown that are not part of the result.
_IDENTITY = "meta.properties"


def make_directory(golden: Path, root: Path, home: str, *partitions: str) -> Path:
    """Partitions of golden/real/`home` with its checkpoints and marker, and no identity."""
    root.mkdir(parents=True)
    source = golden / "real" / home
    for name in ROOT_FILES:
        if name != _IDENTITY and (source / name).exists():
            shutil.copyfile(source / name, root / name)
    for name in partitions:
        shutil.copytree(source / name, root / name)
    return root


@dataclass
class Pair:
    """Two data directories under one manager: `first` is exposed to faults, `second` is not."""

    box: Box
    golden: Path
    work: Path
    home: str = "unclean"

    @property
    def first(self) -> Path:
        return self.work / "first"

    @property
    def second(self) -> Path:
        return self.work / "second"

    def make(self) -> None:
        """Both anew."""
        shutil.rmtree(self.work, ignore_errors=True)
        make_directory(self.golden, self.first, self.home, "txn-0", "compacted-0")
        make_directory(self.golden, self.second, self.home, "idempotent-0")

    def run(self, **faults: Any) -> dict[str, Any]:
        """Start and shutdown of a manager over both."""
        return self.box.run("manage", under=self.first, faults={"calls": CHANGES, **faults},
                            roots=[str(self.first), str(self.second)], config=GOLDEN_CONFIG)

    def end(self, answer: dict[str, Any]) -> tuple[Any, dict[str, str], dict[str, str]]:
        """The logs' states and all files."""
        assert "result" in answer, answer
        return answer["result"]["states"], snapshot(self.first), snapshot(self.second)

    def is_clean(self, root: Path) -> bool:
        """Whether a shutdown left its marker."""
        return os.path.exists(root / CLEAN_MARKER)
