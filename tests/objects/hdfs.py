"""HDFS for tests: a name node and data nodes in one JVM, with some golden logs below /data."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kafka.harness import KafkaUnavailable
from tests.kafka.jars import hadoop_jars
from tests.objects.server import ServerMissing

__all__ = ["LOGS", "put", "serve_hdfs"]

LOGS = ("txn-0", "plain-zstd-0", "appendtime-0")


@contextmanager
def serve_hdfs(root: Path, clean: Path) -> Iterator[str]:
    """Starts a file system below `root` with LOGS of the data directory `clean`; yields its URL.
    Raises ServerMissing."""
    java = shutil.which("java")
    if java is None:
        raise ServerMissing("java is missing, which runs HDFS")
    try:
        jars = os.pathsep.join(map(str, hadoop_jars()))
    except KafkaUnavailable as missing:
        raise ServerMissing(str(missing)) from None
    server = subprocess.Popen(
        [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars,
         str(Path(__file__).with_name("MiniHdfs.java")), str(root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdin is not None and server.stdout is not None
    try:
        url = server.stdout.readline().strip()
        assert url.startswith("hdfs://"), "HDFS did not start"
        for name in LOGS:
            for file in sorted((clean / name).iterdir()):
                put(url, f"/data/{name}/{file.name}", file.read_bytes())
        yield url
    finally:
        server.stdin.close()
        server.wait(300)
        server.stdout.close()


def put(url: str, path: str, data: bytes) -> None:
    """Writes or replaces a file."""
    import fsspec

    host, port = url.removeprefix("hdfs://").split(":")
    # Not in fsspec's cache, which a forked child empties: see seglog.objects.fsspec_store.
    system = fsspec.filesystem("hdfs", host=host, port=int(port), skip_instance_cache=True)
    with system.open(path, "wb") as file:
        file.write(data)
