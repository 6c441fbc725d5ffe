"""The examples of README.md run on the golden data and print what stands there."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from seglog.cli.main import main

README = (Path(__file__).resolve().parent.parent / "README.md").read_text()
DIRECTORY = "/var/lib/kafka/data"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\$ (seglog .*)\n((?:(?!\$ |```).*\n)*)", README, re.MULTILINE)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
    assert len(COMMANDS) >= 2


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(n) for n in range(len(EXAMPLES))])
def test_example_prints_what_it_says(example: str, golden: Path) -> None:
    for module in re.findall(r"^import (\w+)$", example, re.MULTILINE):
        pytest.importorskip(module)
    if "pyspark" in example:
        pytest.skip("shown here, run by tests/spark")
    expected = re.findall(r"^\s*print\(.*\)\s+# (.*)$", example, re.MULTILINE)
    assert len(expected) == len(re.findall(r"^\s*print\(", example, re.MULTILINE))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example.replace(DIRECTORY, str(golden / "real" / "clean")), {})
    assert printed.getvalue().splitlines() == expected


@pytest.mark.parametrize(("command", "expected"), COMMANDS, ids=[name for name, _ in COMMANDS])
def test_command_prints_what_it_says(command: str, expected: str, golden: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    """Line by line; `...` ends a line that goes on, or stands for all further lines."""
    directory = str(golden / "real" / "clean")
    main(shlex.split(command.replace(DIRECTORY, directory))[1:])
    printed = capsys.readouterr().out.replace(directory, DIRECTORY).splitlines()
    wanted = expected.splitlines()
    if wanted[-1] == "...":
        wanted.pop()
        assert len(printed) > len(wanted)
        printed = printed[:len(wanted)]
    assert len(printed) == len(wanted)
    for line, pattern in zip(printed, wanted, strict=True):
        assert line == pattern or (
            pattern.endswith(" ...") and line.startswith(pattern.removesuffix("...")))
