"""Verbs of the command line, run in this process."""

from __future__ import annotations

import pytest

from seglog.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    """The exit code of `seglog` with these arguments, and what it writes to stdout and stderr."""
    code = main([str(arg) for arg in args])
    said = capsys.readouterr()
    return code, said.out, said.err
