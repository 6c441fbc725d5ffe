"""The JSON rows of `tier` and `export` against docs/json.md, on a sound tier and a damaged one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.main import main
from tests.cli.test_json import violations
from tests.tiered.conftest import Tiered

Capture = pytest.CaptureFixture[str]


def rows(capsys: Capture, *args: object) -> list[dict[str, Any]]:
    """The rows that a verb prints, which are JSON lines and nothing else."""
    main([str(one) for one in args])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def check(found: list[dict[str, Any]], heading: str, *lists: str) -> int:
    """Compares rows with the page. Returns how many findings they have."""
    assert found
    findings = [one for row in found for name in lists for one in row[name]]
    wrong = [text for row in found for text in violations(row, heading)]
    wrong += [text for one in findings for text in violations(
        {name: value for name, value in one.items() if name != "partition"}, "Tier findings")]
    assert not wrong, "\n".join(wrong)
    return len(findings)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_rows(tiered_copy: Tiered, tmp_path: Path, capsys: Capture, is_damaged: bool) -> None:
    remote, metadata = tiered_copy.remote, ("--metadata", tiered_copy.data, "--json")
    if is_damaged:
        tiered_copy.objects("t-gzip-0")[1].unlink()
    count = check(rows(capsys, "tier", "ls", remote, *metadata), "Tier ls", "findings")
    assert bool(count) == is_damaged
    for verb in (("tier", "verify", remote, *metadata),
                 ("verify", tiered_copy.data, "--remote", remote, "--json")):
        found = rows(capsys, *verb)
        assert bool(check(found, "Tier verify", "findings")) == is_damaged
        assert all(row["ok"] for row in found) != is_damaged
    assert check(rows(capsys, "tier", "orphans", remote, *metadata), "Tier orphans", "orphans")
    check(rows(capsys, "tier", "restore", remote, "t-txn-0", tmp_path / "t-txn-0", "--json"),
          "Tier restore")
    found = rows(capsys, "tier", "export", remote, "-t", "t-gzip,t-none", "-o",
                 tmp_path / "o.jsonl", "--binary", "base64", "--skip-damaged", "--json")
    assert bool(check(found, "Export", "gaps")) == is_damaged
    assert {one["partition"] for one in found[0]["partitions"]} == {"t-gzip-0", "t-none-0"}
