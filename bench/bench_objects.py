"""Log reads from an S3 server on the loopback, next to obstore's ranged reads of the same bytes.

Both request ranges of the same size with the same concurrency. They share the machine with the
server, so on two cores decoding competes with the client and the server.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.data import START_MS, Log, write_log
from bench.harness import Against, Compare, equals, pick

obstore = pytest.importorskip("obstore",
                              reason="obstore is not installed: pip install 'seglog[s3]'")

from obstore.store import S3Store  # noqa: E402

from seglog import PartitionLog  # noqa: E402
from seglog.storage.blocks import BLOCK_BYTES  # noqa: E402
from seglog.storage.producer_state import encode_snapshot  # noqa: E402
from seglog.tiered import (  # noqa: E402
    LayoutStorageManager, LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteTree,
    TopicIdPartition, open_bucket,
)
from seglog.tiered.remote_records import id_text  # noqa: E402
from tests.objects.server import (  # noqa: E402
    ACCESS_KEY, SECRET_KEY, ServerMissing, options_of, serve,
)

RECORDS = pick(20_000, 5_000_000, 8_000_000)
REQUESTS = 8
PARTITION = TopicIdPartition(bytes(range(16)), "orders", 0)
GOAL = 0.8


@pytest.fixture(scope="module")
def server(scratch: Path) -> Iterator[tuple[int, Log]]:
    """A bucket with one log of 100 B records, in the page cache of its server."""
    log = write_log(scratch / "s3" / "data" / "orders-0", RECORDS)
    try:
        with serve(scratch / "s3") as port:
            yield port, log
    except ServerMissing as missing:
        pytest.skip(str(missing))


def read_ranges(port: int, log: Log, key: str = "") -> int:
    """The bytes of all ranges, in order, with REQUESTS in flight."""
    store = S3Store("data", endpoint=f"http://127.0.0.1:{port}", region="us-east-1",
                    access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY,
                    client_options={"allow_http": True})
    key = key or f"orders-0/{log.path.name}"
    starts = deque(range(0, log.size, BLOCK_BYTES))
    asked: deque[Future[Any]] = deque()
    total = 0
    with ThreadPoolExecutor(REQUESTS) as pool:
        while starts or asked:
            while starts and len(asked) < REQUESTS:
                start = starts.popleft()
                asked.append(pool.submit(obstore.get_range, store, key, start=start,
                                         end=min(log.size, start + BLOCK_BYTES)))
            total += len(asked.popleft().result())
    return total


def read_log(port: int, threads: int, **options: str) -> int:
    """The number of records of the log, read with all default columns."""
    storage = {**options_of(port), "max_requests": str(REQUESTS), **options}
    with PartitionLog.open("s3://data/orders-0", storage_options=storage) as log:
        return sum(columns.num_rows for columns in log.to_arrow(threads=threads))


@pytest.mark.parametrize("threads", [0, 2])
def test_read(compare: Compare, server: tuple[int, Log], threads: int) -> None:
    """Compares reading all Arrow columns with only fetching the ranges."""
    port, log = server

    compare(f"S3 on loopback, {log.size / 1e6:.0f} MB of records of 100 B, threads={threads}",
            lambda: read_log(port, threads),
            [Against("obstore's ranges alone", lambda: read_ranges(port, log), goal=GOAL,
                     check=equals(log.size))],
            work=log.size / 1e6, unit="MB", check=equals(log.records))


def test_tier(compare: Compare, server: tuple[int, Log]) -> None:
    """The same log as a remote segment: all Arrow columns, from the bucket alone."""
    port, log = server
    options = {**options_of(port), "max_requests": str(REQUESTS)}
    for suffix in (".timeindex", ".snapshot"):
        log.path.with_suffix(suffix).write_bytes(encode_snapshot(()) if "snap" in suffix else b"")
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(PARTITION, bytes(16)), 0, log.last_offset, START_MS, 1, START_MS,
        log.size, {0: 0})
    LayoutStorageManager(RemoteTree("s3://data/tier", options)).copy_log_segment_data(
        metadata, LogSegmentData(
            str(log.path), str(log.path.with_suffix(".index")),
            str(log.path.with_suffix(".timeindex")), None, str(log.path.with_suffix(".snapshot")),
            b"0\n1\n0 0\n"))
    key = f"tier/orders-0-{id_text(PARTITION.topic_id)}/{log.path.stem}-{id_text(bytes(16))}.log"

    def read() -> int:
        with open_bucket("s3://data/tier", storage_options=options).log("orders", 0) as opened:
            return sum(columns.num_rows for columns in opened.to_arrow())

    compare(f"tier in S3 on loopback, {log.size / 1e6:.0f} MB of records of 100 B", read,
            [Against("obstore's ranges alone", lambda: read_ranges(port, log, key), goal=GOAL,
                     check=equals(log.size))],
            work=log.size / 1e6, unit="MB", check=equals(log.records))
