"""What an error says of the program that holds a lock."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.storage import lock_holder
from seglog.storage.lock_holder import LockHolder, ask_holder, command_of, find_holder


@pytest.mark.parametrize(("words", "expected"), [
    (["/usr/bin/java", "-Xmx1G", "-cp", "a.jar:b.jar", "kafka.Kafka", "server.properties"],
     "java kafka.Kafka"),
    (["java", "-classpath", "a.jar", "kafka.Kafka"], "java kafka.Kafka"),
    (["java", "--class-path", "a.jar", "kafka.Kafka"], "java kafka.Kafka"),
    (["java", "-jar", "/opt/app.jar", "more"], "java app.jar"),
    (["/usr/bin/python3", "-W", "ignore", "-X", "dev", "/opt/tool.py", "x"], "python3 tool.py"),
    (["python3", "-m", "seglog.cli", "ls"], "python3 seglog.cli"),
    (["python3", "-c", "import seglog"], "python3"), (["python3"], "python3"),
    (["/usr/bin/rsync", "-a", "/data"], "rsync"), ([""], None)])
def test_a_command_is_the_program_and_what_it_runs(
        monkeypatch: pytest.MonkeyPatch, words: list[str], expected: str | None) -> None:
    content = "".join(word + "\0" for word in words).encode()
    monkeypatch.setattr(lock_holder, "open", lambda path, mode: io.BytesIO(content), raising=False)
    assert command_of(1) == expected


_HELD = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, getattr(fcntl, sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(("kind", "size", "start"), [
    ("LOCK_EX", 0, 0), ("LOCK_SH", 0, 0), ("LOCK_EX", 1, 0), ("LOCK_EX", 10, 1 << 40),
    ("LOCK_SH", 1, 5)])
def test_any_lock_on_any_part_of_the_file_has_a_holder(
        tmp_path: Path, kind: str, size: int, start: int) -> None:
    """Java locks the whole of it."""
    path = tmp_path / ".lock"
    assert find_holder(str(tmp_path)) is None
    path.touch()
    assert find_holder(str(tmp_path)) is None
    with subprocess.Popen([sys.executable, "-S", "-c", _HELD, path, kind, str(size), str(start)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        found = find_holder(str(tmp_path))
        process.communicate()
    assert found is not None and found.pid == process.pid
    if sys.platform == "linux":
        assert found.command == os.path.basename(sys.executable)
    assert find_holder(str(tmp_path)) is None


@pytest.mark.parametrize(("platform", "layout", "question", "number"), [
    ("linux", "hhqqi0q", (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0), 4),
    ("darwin", "qqihh", (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET), 2)])
@pytest.mark.parametrize(("pid", "expected"), [(-1, 0), (0, 0), (1, 1), (77, 77)])
def test_a_holder_without_a_pid_here_is_of_another_container(
        monkeypatch: pytest.MonkeyPatch, platform: str, layout: str, question: tuple[int, ...],
        number: int, pid: int, expected: int) -> None:
    """Each system's struct flock asks for the whole file."""
    def answer(descriptor: int, command: int, asked: bytes) -> bytes:
        fields = list(struct.unpack(layout, asked))
        assert (command, *fields) == (fcntl.F_GETLK, *question)
        fields[number] = pid
        return struct.pack(layout, *fields)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", platform)
        patch.setattr(lock_holder, "_FLOCK", struct.Struct(layout))
        patch.setattr(fcntl, "fcntl", answer)
        assert ask_holder(0) == expected


@pytest.mark.parametrize(("holder", "words"), [
    (LockHolder(None, None), "a process of another container"),
    (LockHolder(1, None), "process 1"), (LockHolder(1, "java kafka.Kafka"),
                                         "process 1 (java kafka.Kafka)")])
def test_what_is_said_of_a_holder(holder: LockHolder, words: str) -> None:
    assert str(holder) == words
    assert str(LockHolder(os.getpid(), "python3")) == f"this process ({os.getpid()})"


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_command_of_a_process() -> None:
    assert (command_of(os.getpid()) or "").startswith("py")
    assert command_of(0) is None
