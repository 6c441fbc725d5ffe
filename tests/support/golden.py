"""The golden data: unpacked once, shared by every test process, and found again unchanged.

`python -m tests.support.golden` unpacks it and prints the directory.
"""

from __future__ import annotations

import base64
import fcntl
import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tests.support.locks import locked

ARCHIVE = Path(__file__).resolve().parent.parent / "golden" / "golden.tar.xz"
TIERED_ARCHIVE = ARCHIVE.with_name("tiered.tar.xz")

#: How Kafka was configured when it loaded the golden directories (tests/golden/README.md).
LOAD_CONFIG = {
    "internal.segment.bytes": "16384",
    "index.interval.bytes": "512",
    "segment.index.bytes": "16384",
}


def cache_dir() -> Path:
    """Where tests keep what is costly to make: SEGLOG_TEST_CACHE, else tests/.cache."""
    named = os.environ.get("SEGLOG_TEST_CACHE")
    return Path(named) if named else ARCHIVE.parent.parent / ".cache"


def fingerprint(root: Path) -> dict[str, list[int]]:
    """Size and modification time of every file and directory below `root`."""
    found: dict[str, list[int]] = {}
    for folder, _, names in os.walk(root):
        for path in [folder, *(os.path.join(folder, name) for name in names)]:
            status = os.lstat(path)
            size = status.st_size if path != folder else 0
            found[os.path.relpath(path, root)] = [size, status.st_mtime_ns]
    return found


def unpack(cache: Path | None = None, archive_path: Path = ARCHIVE) -> Path:
    """The directory of the unpacked golden data; a changed tree is created again."""
    digest = hashlib.sha256(archive_path.read_bytes()).hexdigest()[:16]
    cache, name = cache or cache_dir(), archive_path.name.partition(".")[0]
    target, manifest = cache / f"{name}-{digest}", cache / f"{name}-{digest}.json"
    with locked(cache):
        if target.is_dir():
            if manifest.is_file() and json.loads(manifest.read_text()) == fingerprint(target):
                _hold(target)
                return target
            _remove_unused(target)
        fresh = Path(tempfile.mkdtemp(prefix="unpacking-", dir=cache))
        try:
            with tarfile.open(archive_path) as archive:
                archive.extractall(fresh / "golden", filter="data")
            (fresh / "manifest").write_text(json.dumps(fingerprint(fresh / "golden")))
            os.replace(fresh / "manifest", manifest)
            os.rename(fresh / "golden", target)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        _hold(target)
    return target


#: The trees that this process uses, each by a descriptor with a shared lock until the process ends.
_held: dict[Path, int] = {}


def _hold(target: Path) -> None:
    """Says to other processes that this one uses a tree."""
    if target not in _held:
        _held[target] = os.open(target, os.O_RDONLY)
    fcntl.flock(_held[target], fcntl.LOCK_SH)


def _remove_unused(target: Path) -> None:
    """Removes a changed tree. RuntimeError if other tests read it: to create it again below them
    would hide from their check that one of them changed it."""
    descriptor = _held.pop(target, -1)
    if descriptor < 0:
        descriptor = os.open(target, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(target)
    except BlockingIOError:
        raise RuntimeError(f"the golden data in {target} were changed, and other tests use them: "
                           "find the test that writes there") from None
    finally:
        os.close(descriptor)


def decode(text: str | None) -> bytes | None:
    """A base64 field of a truth file."""
    return None if text is None else base64.b64decode(text)


#: Truth's names of the timestamp types, and the values of the `timestamp_type` column.
TIMESTAMP_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def read_truth(path: Path, isolation: str = "read_uncommitted") -> list[dict[str, Any]]:
    """What a consumer got, as rows of seglog's default columns (timestamps in ms)."""
    return [dict(row) for is_committed, row in _truth(path)
            if is_committed or isolation != "read_committed"]


@functools.cache
def _truth(path: Path) -> list[tuple[bool, dict[str, Any]]]:
    """Whether a transaction that was not aborted has it, and the row: read once for all tests,
    which ask more than a dozen times."""
    rows = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            rows.append((record.get("committed", True), {
                "offset": record["offset"],
                "timestamp": record["timestamp"],
                "timestamp_type": TIMESTAMP_TYPES[record["timestamp_type"]],
                "key": decode(record["key"]),
                "value": decode(record["value"]),
                "headers": [{"key": key, "value": decode(value)}
                            for key, value in record["headers"]],
            }))
    return rows


@functools.cache
def real_partitions() -> tuple[tuple[str, str], ...]:
    """(set, partition directory) of every real directory with a truth, without unpacking."""
    with tarfile.open(ARCHIVE) as archive:
        names = archive.getnames()
    found = []
    for name in names:
        parts = name.removeprefix("./").split("/")
        if parts[:2] == ["real", "truth"] and parts[-1].endswith(".jsonl"):
            found.append((parts[2], parts[3].removesuffix(".jsonl")))
    return tuple(sorted(found))


if __name__ == "__main__":
    print(unpack())
