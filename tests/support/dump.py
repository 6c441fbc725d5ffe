"""`seglog dump` in this process, as the tests of it want it: exit code and both streams."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import NamedTuple

from seglog.cli.main import main


class Dumped(NamedTuple):
    code: int
    out: bytes
    err: str


def run_seglog(*args: str) -> Dumped:
    """Runs the command line with what follows `seglog`."""
    out, err = io.BytesIO(), io.StringIO()
    text = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(err):
        try:
            code = main(args)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
    return Dumped(code, out.getvalue(), err.getvalue())


def dump(args: Sequence[str]) -> Dumped:
    """`seglog dump` with kafka-dump-log's arguments."""
    return run_seglog("dump", *args)
