"""A real S3 server for tests and benches: versitygw over a directory, on the loopback.

The binary is SEGLOG_VERSITYGW, or `versitygw` on the PATH, or built once with Go in
~/.cache/seglog-s3. If none of these works, ServerMissing gives the reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.locks import locked
from tests.support.ports import free_ports

__all__ = ["ACCESS_KEY", "CACHE", "SECRET_KEY", "ServerMissing", "go_binary", "options_of", "serve",
           "started"]

_MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
CACHE = Path.home() / ".cache" / "seglog-s3"
_BUILD_SECONDS, _START_SECONDS = 900, 120
ACCESS_KEY, SECRET_KEY = "seglog-test-key", "a-secret-of-the-tests"


class ServerMissing(Exception):
    """The reason why a server is not available."""


def go_binary(name: str, module: str) -> str:
    """The program of a Go module: from the environment, from the PATH, or built once. Raises
    ServerMissing."""
    named = os.environ.get(f"SEGLOG_{name.upper().replace('-', '_')}") or shutil.which(name)
    if named:
        return named
    built = CACHE / name
    if built.exists():
        return str(built)
    go = shutil.which("go")
    if go is None:
        raise ServerMissing(f"{name} is missing, and so is Go, which builds it")
    install([go, "install", module], built, GOBIN=str(CACHE))
    return str(built)


def install(command: list[str], program: Path, **environment: str) -> None:
    """Runs a command that installs `program` into the cache, unless another process did. Raises
    ServerMissing."""
    with locked(CACHE):
        if not program.exists():
            _install(command, environment)


def _install(command: list[str], environment: dict[str, str]) -> None:
    shown = " ".join(map(str, [os.path.basename(command[0]), *command[1:]]))
    try:
        subprocess.run(command, env={**os.environ, **environment}, check=True,
                       capture_output=True, text=True, timeout=_BUILD_SECONDS)
    except subprocess.CalledProcessError as error:
        raise ServerMissing(f"{shown}: {error.stderr.strip()[-300:]}") from None
    except subprocess.TimeoutExpired:
        raise ServerMissing(f"{shown} took too long") from None


def options_of(port: int) -> dict[str, str]:
    """Storage options for a server on a port of the loopback."""
    return {"aws_endpoint": f"http://127.0.0.1:{port}", "aws_region": "us-east-1",
            "aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}


@contextmanager
def serve(root: Path) -> Iterator[int]:
    """Serves the directories below `root` as buckets; yields the port. Raises ServerMissing."""
    port, = free_ports(1)
    command = [go_binary("versitygw", _MODULE), "--port", f"127.0.0.1:{port}", "--keep-alive",
               "--quiet", "posix", "--default-etag", "placed", str(root)]
    with started(command, port, ROOT_ACCESS_KEY=ACCESS_KEY, ROOT_SECRET_KEY=SECRET_KEY):
        yield port


@contextmanager
def started(command: list[str], port: int, **environment: str) -> Iterator[None]:
    """A server that listens on `port` until the block ends. Raises ServerMissing."""
    server = subprocess.Popen(command, env={**os.environ, **environment},
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        _await(server, port)
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:  # it waits for a connected client
            server.kill()
            server.wait(120)
        assert server.stderr is not None
        server.stderr.close()


def _await(server: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > deadline:
                assert server.stderr is not None
                said = server.stderr.read()[-300:] if server.poll() is not None else "silence"
                raise ServerMissing(f"{server.args!r} does not start: {said}") from None
            time.sleep(0.05)
