"""The JSON document of `ls`, `load`, `verify`, `load --recover` and `--dry-run` (docs/json.md)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import seglog
from seglog.cli import render
from seglog.recovery.rows import directory_row, partition_row, totals_of

__all__ = ["directory_row", "document", "partition_row", "print_document"]

Row = dict[str, Any]


def document(verb: str, exit_code: int, directories: Sequence[Row], partitions: Sequence[Row],
             findings: Sequence[Row] = ()) -> Row:
    """The document of one run: `verb` is ls, load, verify, recover or dry-run."""
    return {
        "seglog": seglog.__version__, "verb": verb, "exit_code": exit_code, "ok": exit_code == 0,
        "directories": list(directories), "partitions": list(partitions),
        "findings": list(findings), "totals": totals_of(partitions, findings),
    }


def print_document(content: Row | Iterable[Row]) -> None:
    """Writes the document to stdout, in ASCII because file names need not be valid UTF-8."""
    out = render.stdout()
    out.write(json.dumps(content, indent=2, default=str).encode("ascii") + b"\n")
    out.flush()
