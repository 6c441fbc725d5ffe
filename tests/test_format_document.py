"""docs/format.md against csrc/include/seglog/format.h, and its examples against golden files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = (ROOT / "docs" / "format.md").read_text()
HEADER = (ROOT / "csrc" / "include" / "seglog" / "format.h").read_text()

ROWS = re.findall(r"^\| (\d\w*) \|.*\| `(SLG_\w+)` \|$", DOCUMENT, re.MULTILINE)
EXAMPLES = re.findall(r"^```\n(\S+) at (\d+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
FIELD_BYTES = {"i8": 1, "i16": 2, "i32": 4, "u32": 4, "i64": 8}


def constants() -> dict[str, int]:
    """The enumerators of format.h, each the sum that stands beside it."""
    values: dict[str, int] = {}
    for body in re.findall(r"enum \{(.*?)\};", HEADER, re.DOTALL):
        for entry in re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL).split(","):
            name, _, expression = entry.partition("=")
            values[name.strip()] = sum(
                -number if sign == "-" else number for sign, number in (
                    (sign, values[term] if term in values else int(term, 0))
                    for sign, term in re.findall(r"([+-]?)\s*(\w+)", expression)))
    return values


def test_every_field_is_where_the_header_has_it() -> None:
    values = constants()
    assert len(ROWS) > 60
    assert [(name, int(at, 0)) for at, name in ROWS] == [(name, values[name]) for _, name in ROWS]


def test_every_position_of_the_header_is_documented() -> None:
    positions = {name for name in constants() if name.endswith("_AT")}
    assert positions <= {name for _, name in ROWS}


def test_fields_of_one_table_are_chained() -> None:
    """Each field begins where the one before it ends, but for the two forms of the old messages."""
    chained = 0
    for table in re.split(r"\n\n", DOCUMENT):
        fields = re.findall(r"^\| (\d+) \| (\w*) \| (.*?) \|", table, re.MULTILINE)
        if not fields or "magic 0: key" in table or "of the prefix" in table:
            continue
        for (at, kind, _), (following, _, _) in zip(fields, fields[1:], strict=False):
            assert int(at) + FIELD_BYTES[kind] == int(following), (table, at)
            chained += 1
    assert chained == 29


@pytest.mark.parametrize(("name", "position", "text"), EXAMPLES,
                         ids=[name.rsplit("/", 1)[-1] for name, _, _ in EXAMPLES])
def test_examples_are_in_the_golden_files(golden: Path, name: str, position: str,
                                          text: str) -> None:
    wanted = bytes.fromhex("".join(line.split("   ")[0] for line in text.splitlines()))
    data = (golden / name).read_bytes()[int(position):]
    assert data[:len(wanted)].hex(" ") == wanted.hex(" ")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 7
