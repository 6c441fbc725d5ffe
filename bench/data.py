"""Seeded data: logs of equal batches, and partitions of many small segments."""

from __future__ import annotations

import hashlib
import json
import os
import random
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bench.harness import pick
from seglog.log.batch_builder import RecordBatchBuilder
from tests.oracle import batch as v2
from tests.oracle.batch import Batch, Record

START_MS = 1_700_000_000_000
VALUE_BYTES = 100
NUMBER_DIGITS = 20
#: Distinct batches of a log; the repeats differ only in base offset, which no CRC covers.
TEMPLATES = 32
INDEX_INTERVAL_BYTES = 4096
_RECORD_BYTES = VALUE_BYTES + 12  # in the file: lengths, deltas, no key, no headers


@dataclass(frozen=True)
class Log:
    """A log file and its contents; `values_sha256` is of all values, concatenated."""

    path: Path
    records: int
    batches: int
    size: int
    value_bytes: int
    values_sha256: str

    @property
    def last_offset(self) -> int:
        return self.records - 1


def random_value(rng: random.Random, number: int) -> bytes:
    """100 bytes that no codec compresses below six bits each."""
    return bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=VALUE_BYTES))


def json_value(rng: random.Random, number: int) -> bytes:
    """100 bytes of JSON, as compressible as typical events."""
    event = {"id": number, "user": f"u{rng.randrange(10_000):05d}", "city": rng.choice(
        ["Berlin", "Lisbon", "Osaka", "Quito"]), "kind": rng.choice(["view", "click", "buy"]),
        "amount": rng.randrange(10_000) / 100}
    return json.dumps(event).encode().ljust(VALUE_BYTES)[:VALUE_BYTES]


@lru_cache(maxsize=16)
def _templates(codec: int, plain_bytes: int, seed: int) -> tuple[tuple[bytes, bytes], ...]:
    """(batch, its values) of each template."""
    rng, count = random.Random(seed), plain_bytes // _RECORD_BYTES
    value = json_value if codec else random_value
    made = []
    for _ in range(TEMPLATES):
        records = [Record(offset=n, timestamp=START_MS + n, value=value(rng, n))
                   for n in range(count)]
        encoded = v2.encode(Batch(
            base_offset=0, last_offset_delta=count - 1, records=records, codec=codec,
            base_timestamp=START_MS, max_timestamp=START_MS + count - 1))
        made.append((encoded, b"".join(record.value or b"" for record in records)))
    return tuple(made)


def write_log(folder: Path, records: int, *, codec: int = 0, plain_bytes: int = 16384,
              seed: int = 1) -> Log:
    """Writes a partition directory's first log of at least `records` records, in whole batches.

    Also writes its offset index, with an entry every 4,096 bytes as from a broker. `plain_bytes` is
    the size of a batch before compression. Values are random letters, or JSON if compressed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, each = folder / f"{0:0{NUMBER_DIGITS}d}.log", plain_bytes // _RECORD_BYTES
    templates, batches = _templates(codec, plain_bytes, seed), -(-records // each)
    values, position, indexed = hashlib.sha256(), 0, 0
    with open(path, "wb") as out, open(path.with_suffix(".index"), "wb") as index:
        for number in range(batches):
            encoded, held = templates[number % TEMPLATES]
            out.write(struct.pack(">q", number * each) + encoded[8:])
            values.update(held)
            if position - indexed > INDEX_INTERVAL_BYTES:
                index.write(struct.pack(">ii", (number + 1) * each - 1, position))
                indexed = position
            position += len(encoded)
    return Log(path, batches * each, batches, path.stat().st_size, batches * each * VALUE_BYTES,
               values.hexdigest())


SEGMENT_OFFSETS = 1000


@lru_cache(maxsize=1)
def _index_contents() -> tuple[bytes, bytes]:
    """Six entries of an offset index, four of a time index."""
    return (b"".join(struct.pack(">ii", n * 10 + 9, n * 500 + 100) for n in range(6)),
            b"".join(struct.pack(">qi", START_MS + n, n * 10 + 9) for n in range(4)))


def write_segments(root: Path, segments: int, *, indexed: bool = True, partitions: int = 1,
                   snapshots: bool = False) -> Path:
    """Writes a data directory after a clean shutdown, with `segments` small segments in each of
    `partitions` partitions load-0, load-1 and so on.

    Each segment has a sparse log of 4 KiB, six index entries and four time index entries, all
    valid. The last segment is empty, like the active segment of a log that has just rolled. Without
    `indexed` the indexes are empty: a million segments then take inodes, but no blocks. With
    `snapshots` each segment has an empty producer snapshot.
    """
    root.mkdir(parents=True)
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
    (root / "meta.properties").write_text(
        "version=1\ncluster.id=kAAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n"
        "directory.id=Sl08ZXU2QW6uF5hIoSzc8w\n")
    last = last_base_offset(segments)
    ends = "".join(f"load {number} {last}\n" for number in range(partitions))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n{partitions}\n{ends}")
    (root / "log-start-offset-checkpoint").write_text("0\n0\n")
    for number in range(partitions):
        _write_partition(root / f"load-{number}", segments, indexed, snapshots)
    return root


def last_base_offset(segments: int) -> int:
    """The active segment's base offset, and the end of a log of `write_segments`."""
    return (segments - 1) * SEGMENT_OFFSETS


def _write_partition(partition: Path, segments: int, indexed: bool, snapshots: bool) -> None:
    last = last_base_offset(segments)
    partition.mkdir()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (partition / "partition.metadata").write_text("version: 0\ntopic_id: Sl08ZXU2QW6uF5hIoSzc8w")
    (partition / f"{last:0{NUMBER_DIGITS}d}.snapshot").write_bytes(
        struct.pack(">hIi", 1, 0x48674BC7, 0))
    contents = dict(zip(("index", "timeindex"), _index_contents(), strict=True))
    suffixes = ("log", *contents, *(["snapshot"] if snapshots else []))
    here = os.open(partition, os.O_RDONLY)
    try:
        for base in range(0, last + 1, SEGMENT_OFFSETS):
            for suffix in suffixes:
                fd = os.open(f"{base:0{NUMBER_DIGITS}d}.{suffix}", os.O_CREAT | os.O_WRONLY, 0o644,
                             dir_fd=here)
                if suffix == "log" and base != last:
                    os.truncate(fd, 4096)
                elif suffix in contents and indexed and base != last:
                    os.write(fd, contents[suffix])
                os.close(fd)
    finally:
        os.close(here)


_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def drop_caches() -> bool:
    """Drops every cached page, name and inode of this machine; returns False if not permitted. The
    size `smoke` leaves them, because a test must not slow down all else that the machine does."""
    if not os.access(_DROP_CACHES, os.W_OK):
        return False
    if pick(False, True, True):
        os.sync()
        _DROP_CACHES.write_text("3\n")
    return True


@contextmanager
def tmpfs(inodes: int) -> Iterator[Path]:
    """An in-memory file system for `inodes` files, where a million segments take a minute to write.
    Raises OSError with the reason if it cannot be mounted."""
    path = tempfile.mkdtemp(prefix="seglog-bench-tmpfs-")
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=12g,nr_inodes={inodes}",
                               "seglog-bench", path], capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"no tmpfs: {done.stderr.strip()}")
        try:
            yield Path(path)
        finally:
            subprocess.run(["umount", "-l", path], check=True)
    finally:
        os.rmdir(path)


def producer_batch(records: int, value_bytes: int = VALUE_BYTES) -> bytes:
    """A batch as from a producer."""
    builder, now = RecordBatchBuilder(), time.time_ns() // 1_000_000
    for n in range(records):
        builder.append(now, b"key-%d" % n, b"v" * value_bytes)
    return builder.build()


def write_records(root: Path, topic: str, records: int, partitions: int, *,
                  batch_bytes: int = 16384) -> None:
    """Writes a data directory with the native encoder: random values of 100 B, one a millisecond in
    each partition, in segments of Kafka's default size with their indexes."""
    import numpy as np
    import pyarrow as pa

    import seglog

    chunk = min(1 << 20, records)
    values = pa.Array.from_buffers(pa.binary(), chunk, [
        None, pa.py_buffer(np.arange(chunk + 1, dtype=np.int32) * VALUE_BYTES),
        pa.py_buffer(np.random.default_rng(1).bytes(chunk * VALUE_BYTES))])
    for partition in range(partitions):
        with seglog.open(root / f"{topic}-{partition}", batch_bytes=batch_bytes) as log:
            for first in range(0, records // partitions, chunk):
                rows = min(chunk, records // partitions - first)
                log.append_columns({"value": values.slice(0, rows),
                                    "timestamp": START_MS + np.arange(first, first + rows)})
