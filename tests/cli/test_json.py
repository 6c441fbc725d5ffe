"""The JSON of every verb against docs/json.md, on sound, killed and damaged directories."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog.cli.main import main
from seglog.recovery import rows

ROOT = Path(__file__).parents[2]
TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list,
    "object": dict, "null": type(None)}
Schema = dict[str, list[str]]
Capture = pytest.CaptureFixture[str]


def schemas() -> dict[str, Schema]:
    """Fields and types of each table of the page, by its heading."""
    found: dict[str, Schema] = {}
    for section in (ROOT / "docs" / "json.md").read_text().split("\n## ")[1:]:
        table = re.findall(r"^\| `(\w+)` \| ([a-z ]+) \|", section, re.MULTILINE)
        if table:
            found[section.partition("\n")[0]] = {
                name: kind.split(" or ") for name, kind in table}
    return found


SCHEMAS = schemas()


def violations(row: Any, heading: str) -> list[str]:
    schema = SCHEMAS[heading]
    if not isinstance(row, dict):
        return [f"{heading}: {row!r} is no object"]
    wrong = [f"{heading}: fields {sorted(set(row) ^ set(schema))}"] if set(row) != set(schema) \
        else []
    for name, kinds in schema.items():
        value = row.get(name)
        if kinds != ["any"] and not any(
                isinstance(value, TYPES[kind]) and not (isinstance(value, bool) and
                                                        kind in ("integer", "number"))
                for kind in kinds):
            wrong.append(f"{heading}: {name} is {value!r}, not {' or '.join(kinds)}")
    return wrong


def check(document: dict[str, Any]) -> None:
    wrong = violations(document, "The document")
    for name in ("directories", "partitions", "findings"):
        for row in document[name]:
            wrong += violations(row, name.capitalize())
    totals = document["totals"]
    wrong += violations(totals, "Totals")
    for name in ("lost", "damaged"):
        wrong += violations(totals[name], "Lost and damaged")
    assert not wrong, "\n".join(wrong[:20])
    assert document["seglog"] == seglog.__version__
    assert document["ok"] == (document["exit_code"] == 0)
    assert totals["partitions"] == len(document["partitions"])
    assert sum(totals["findings"].values()) == len(document["findings"])
    assert set(totals["findings"]) == {"info", "warning", "error", "fatal"}
    known = {(row["path"], row["directory"]) for row in document["partitions"]}
    for row in document["findings"]:
        if row["directory"] is not None and row["topic"] is not None and "gone" not in row["code"]:
            assert (row["path"], row["directory"]) in known, row
    for row in document["partitions"]:
        if row["kind"] == "live":
            assert row["directory"] == f"{row['topic']}-{row['partition']}"


def run(capsys: Capture, *args: str | Path) -> tuple[int, dict[str, Any]]:
    code = main([str(arg) for arg in args])
    out = capsys.readouterr()
    assert out.err == ""
    document: dict[str, Any] = json.loads(out.out)  # one document, and nothing else
    assert out.out.isascii() and document["exit_code"] == code
    check(document)
    return code, document


def test_the_page_lists_the_fields_that_rows_have() -> None:
    assert list(SCHEMAS["Directories"]) == list(rows.DIRECTORY_FIELDS)
    assert list(SCHEMAS["Partitions"]) == list(rows.PARTITION_FIELDS)
    assert list(SCHEMAS["Findings"]) == list(rows.FINDING_FIELDS)
    assert list(SCHEMAS["Lost and damaged"]) == list(rows.LOSS_FIELDS)
    with pytest.raises(TypeError, match="sizes"):
        rows.partition_row("/data", "t-0", sizes=1)


@pytest.fixture(scope="module")
def damaged(golden: Path) -> list[Path]:
    return sorted(path for path in (golden / "damaged").iterdir() if path.is_dir())


@pytest.mark.parametrize("level", ["kafka", "full", "verify"])
def test_loads(golden: Path, damaged: list[Path], capsys: Capture, level: str) -> None:
    for which in ("clean", "unclean"):
        code, one = run(capsys, "load", "--json", "--level", level, golden / "real" / which)
        assert code == 0 and one["verb"] == "load" and one["directories"][0]["level"] == level
        assert (one["totals"]["batches"] is None) == (level != "verify")
        assert one["totals"]["lost"]["records"] == one["totals"]["damaged"]["records"] == 0
    some = damaged[::2]
    _, many = run(capsys, "load", "--json", "--level", level, *some)
    assert [row["path"] for row in many["directories"]] == [str(path) for path in some]


def test_verify(golden: Path, damaged: list[Path], capsys: Capture) -> None:
    _, told = run(capsys, "verify", "--json", *damaged)
    assert told["verb"] == "verify" and told["totals"]["lost"]["records"] > 100
    code, one = run(capsys, "verify", "--json", golden / "real" / "clean" / "txn-0")
    assert code == 0 and [row["directory"] for row in one["partitions"]] == ["txn-0"]
    assert one["partitions"][0]["path"] == str(golden / "real" / "clean")


@pytest.mark.parametrize("level", ["kafka", "verify"])
def test_recoveries(golden: Path, damaged: list[Path], tmp_path: Path, capsys: Capture,
                    level: str) -> None:
    """The same rows from a dry run and a recovery, and in them the states of Kafka's loader."""
    copies = [Path(shutil.copytree(path, tmp_path / path.name, symlinks=True))
              for path in [*damaged[level == "verify"::3], golden / "real" / "unclean"]]
    before, predicted = run(capsys, "load", "--dry-run", "--json", "--level", level, *copies)
    main(["load", "--dry-run", "--states", "--level", level, *map(str, copies)])
    states = json.loads(capsys.readouterr().out)
    code, recovered = run(capsys, "load", "--recover", "--json", "--level", level, *copies)
    assert (predicted["verb"], recovered["verb"]) == ("dry-run", "recover") and before == code == 1
    for name in ("partitions", "findings", "totals"):
        assert recovered[name] == predicted[name]
    for row in recovered["partitions"]:
        state = states[Path(row["path"]).name][row["directory"]]
        assert state.items() >= {key: row[key] for key in state if key != "findings"}.items()


def test_a_load_in_python_has_the_same_names(golden: Path) -> None:
    with seglog.open_data_dir(golden / "real" / "unclean") as data:
        told = json.loads(data.report.to_json())
    assert set(told) == {*rows.DIRECTORY_FIELDS, "partitions", "findings", "totals"}
    check({"seglog": seglog.__version__, "verb": "load", "exit_code": 0, "ok": True,
           "directories": [{name: told[name] for name in rows.DIRECTORY_FIELDS}],
           **{name: told[name] for name in ("partitions", "findings", "totals")}})
