"""Directories that seglog writes for `seglog demo` if there is no archive of real ones."""

from __future__ import annotations

import shutil
import uuid
from contextlib import ExitStack
from pathlib import Path

import seglog
from seglog.storage.meta import format_uuid

__all__ = ["DAMAGED", "make_directories"]

#: The directory under `home` that is damaged, and the damage.
DAMAGED = "damaged"
_SETTINGS = {"internal.segment.bytes": 64 * 1024, "index.interval.bytes": 1024}
_TOPICS = {"orders": ("zstd", 3), "clicks": ("lz4", 2), "payments": ("uncompressed", 1)}
_RECORDS = 1500


def make_directories(home: Path) -> str:
    """Creates `clean`, `unclean` (the same data after a crash) and `damaged` under `home`.

    Returns a description of the damage.
    """
    clean = home / "clean"
    clean.mkdir(parents=True)
    (clean / "meta.properties").write_text(
        "version=1\ncluster.id=seglog-demo\nnode.id=1\n"
        f"directory.id={format_uuid(uuid.uuid4())}\n")
    with ExitStack() as stack:
        for topic, (codec, partitions) in _TOPICS.items():
            for number in range(partitions):
                log = stack.enter_context(seglog.open(
                    clean / f"{topic}-{number}", config={**_SETTINGS, "compression.type": codec},
                    topic_id=uuid.uuid5(uuid.NAMESPACE_DNS, topic)))
                _fill(log, topic, transactional=topic == "payments")
        shutil.copytree(clean, home / "unclean")  # not closed yet, as after a crash
    shutil.copytree(clean, home / DAMAGED)
    path = max((home / DAMAGED / "clicks-1").glob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    position = len(content) // 2
    content[position] ^= 0xFF
    path.write_bytes(content)
    return f"byte {position} of clicks-1/{path.name} inverted"


def _fill(log: seglog.EmbeddedLog, topic: str, *, transactional: bool) -> None:
    for first in range(0, _RECORDS, 100):
        records = [(b"key-%d" % (number % 37), f'{{"{topic}": {number}, "text": "{"x" * 40}"}}'
                    .encode()) for number in range(first, first + 100)]
        if not transactional:
            log.append_many(records)
            continue
        try:
            with log.transaction() as transaction:
                transaction.append_many(records)
                if first % 500 == 0:
                    raise _Abort
        except _Abort:
            pass


class _Abort(Exception):
    """Aborts a transaction of the demo."""
