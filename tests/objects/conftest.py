"""Object servers, and the golden data in a bucket."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.objects.faulty import Faulty, serve_faulty
from tests.objects.hdfs import serve_hdfs
from tests.objects.server import ServerMissing, options_of, serve


@pytest.fixture(scope="session")
def bucket(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The golden data in a directory that a server serves as a bucket."""
    root = tmp_path_factory.mktemp("s3")
    shutil.copytree(golden, root / "golden")
    yield root


@pytest.fixture(scope="session")
def s3(bucket: Path) -> Iterator[dict[str, str]]:
    """Storage options for `s3://golden/...` on a real server."""
    pytest.importorskip("obstore", reason="obstore is not installed (pip install 'seglog[s3]')")
    try:
        with serve(bucket) as port:
            yield options_of(port)
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session", params=[
    "in process", pytest.param("versitygw", marks=pytest.mark.judge)])
def any_s3(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Storage options for `s3://golden/...`: on the server of the faults without any, which has
    nothing to build, and on the real one."""
    if request.param == "versitygw":
        yield request.getfixturevalue("s3")
        return
    pytest.importorskip("obstore", reason="obstore is not installed (pip install 'seglog[s3]')")
    with serve_faulty(request.getfixturevalue("bucket")) as server:
        server.is_noting = False
        yield options_of(server.port)


@pytest.fixture(scope="session")
def hdfs(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real HDFS with some logs below /data."""
    pytest.importorskip("hdfs_native",
                        reason="hdfs-native is not installed (pip install 'seglog[hdfs]')")
    try:
        with serve_hdfs(tmp_path_factory.mktemp("hdfs"), golden / "real" / "clean") as url:
            yield url
    except ServerMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[Faulty]:
    """A server with faults chosen by the test; buckets are directories below `faulty.root`."""
    pytest.importorskip("obstore", reason="obstore is not installed (pip install 'seglog[s3]')")
    (tmp_path / "s3" / "data").mkdir(parents=True)
    with serve_faulty(tmp_path / "s3") as server:
        yield server


@pytest.fixture
def hasty(faulty: Faulty) -> dict[str, str]:
    """Storage options for the faulty server, whose stalls are longer than its timeout."""
    faulty.stall_seconds = 4.0
    return {**options_of(faulty.port), "max_retries": "10", "retry_timeout_seconds": "300",
            "request_timeout_seconds": "3"}
