"""What an error says of the program that holds a lock."""

from __future__ import annotations

import io
import os
import sys

import pytest

from seglog.storage import lock_holder
from seglog.storage.lock_holder import command_of


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


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_command_of_a_process() -> None:
    assert (command_of(os.getpid()) or "").startswith("py")
    assert command_of(0) is None
