"""The project's own sources and pages, read once, for the tests that hold them to rules."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = SRC / "seglog"
CORE = ROOT / "csrc"
SOURCE_SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h"}


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in _sources(folder)]
    assert found, f"no sources under {folders}"
    return found


@functools.cache
def _sources(folder: str) -> list[Path]:
    return [path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SOURCE_SUFFIXES]


@functools.cache
def text_of(path: Path) -> str:
    """A file's text, which many rules read."""
    return path.read_text()


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, at any depth, without the expressions in them, which are most of a tree."""
    waiting: list[ast.AST] = [tree]
    for node in waiting:
        for field in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(node, field, ())
            waiting += inner if isinstance(inner, list) else ()  # an expression has no list
    return iter(waiting)


def lines_with(pattern: re.Pattern[str], path: Path) -> Iterator[tuple[int, str]]:
    """The number of each line that matches, and the match. A pattern matches within one line."""
    text = text_of(path)
    if pattern.search(text):
        for number, line in enumerate(text.splitlines(), 1):
            if found := pattern.search(line):
                yield number, found[0]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def pages() -> list[Path]:
    """The Markdown pages of the project, except the change list."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
            ROOT / "csrc/README.md", ROOT / "bench/README.md"]
