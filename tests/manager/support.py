"""Data directories for tests of the log manager."""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from seglog.errors import KafkaStorageError
from seglog.manager import loading
from seglog.model import TopicPartition
from seglog.log.unified_log import UnifiedLog
from seglog.storage.meta import format_uuid
from tests.oracle.builder import Shape, build_log
from tests.oracle.writer import write_data_dir

META = "#\n#Sat Oct 25 10:00:00 UTC 2025\n{}"


def make_dir(root: Path, names: Iterable[str], *, clean: bool = True, seed: int = 1,
             batches: int = 12) -> Path:
    """A data directory with these partition directories, and an id of its own."""
    root.mkdir(parents=True)
    logs = [build_log(root / name, seed + number, Shape(batches=batches, clean=clean))
            for number, name in enumerate(names)]
    write_data_dir(root, logs, clean=clean)
    write_meta(root, {"version": 1, "cluster.id": "l0CdkZGeTjaX9ux5Y2kFIg", "node.id": 1,
                      "directory.id": format_uuid(uuid.uuid4())})
    return root


def write_meta(root: Path, properties: Mapping[str, object]) -> None:
    """A meta.properties."""
    (root / "meta.properties").write_text(META.format(
        "".join(f"{key}={value}\n" for key, value in properties.items())))


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file below `root`, by relative path, directories with a slash."""
    return {str(path.relative_to(root)) + ("/" if path.is_dir() else ""):
            b"" if path.is_dir() else path.read_bytes() for path in sorted(root.rglob("*"))}


def directories(root: Path) -> list[str]:
    """Names with what is unique in them taken out."""
    return sorted(path.name.split(".")[0] + ("-" + path.name.rsplit("-", 1)[1]
                                             if "." in path.name else "")
                  for path in root.iterdir() if path.is_dir())


def entries(path: Path) -> dict[TopicPartition, int]:
    """An offset checkpoint, read without the code under test."""
    lines = path.read_text().splitlines()
    found = {TopicPartition(topic, int(partition)): int(offset)
             for topic, partition, offset in (line.split() for line in lines[2:])}
    assert lines[0] == "0" and int(lines[1]) == len(found)
    return found


def break_load(patch: pytest.MonkeyPatch, name: str,
               error: Callable[[str], BaseException]) -> None:
    """The load of the partition directory `name` raises."""
    load = loading.load_unified_log

    def broken(path: str, *args: object, **kwargs: object) -> UnifiedLog:
        if Path(path).name == name:
            raise error(path)
        return load(path, *args, **kwargs)  # type: ignore[arg-type]

    patch.setattr(loading, "load_unified_log", broken)


def input_output_error(path: str) -> KafkaStorageError:
    """What a dying disk says."""
    return KafkaStorageError(errno.EIO, "Input/output error", path)


def copy(source: Path, target: Path) -> Path:
    """A copy with times."""
    shutil.copytree(source, target)
    return target
