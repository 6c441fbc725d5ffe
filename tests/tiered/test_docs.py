"""The examples of docs/tiered.md run as they stand, on a real broker's directories."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tiered.conftest import Tiered

PAGE = Path(__file__).resolve().parents[2] / "docs/tiered.md"


def test_examples_run(tiered: Tiered, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        code = example.replace("/var/lib/kafka/data", str(tiered.data)).replace(
            "/mnt/tier", str(tiered.remote)).replace("/mnt/new", str(tmp_path / "new"))
        exec(compile(code, str(PAGE), "exec"), {})
    out = capsys.readouterr().out
    assert "local ['t-both-0', 't-epochs-0'" in out
    assert "0 240 TimestampOffset" in out
    assert "SCh4E8VdQyakXnuXoblENg 234 ()" in out


def test_every_code_is_described() -> None:
    """A code that the package raises or finds is on the page, and no other."""
    source = PAGE.parents[1] / "src/seglog/tiered"
    text = "".join(path.read_text() for path in source.glob("*.py"))
    described = set(re.findall(r"`(\w+)`", "".join(
        line.split("|")[1] for line in PAGE.read_text().splitlines()
        if line.startswith("| `") and line.count("|") == 3)))
    assert {"remote_gap", "object_missing", "offset_mismatch", "orphan"} <= described
    assert not [code for code in described if f'"{code}"' not in text]
    found = set(re.findall(r'(?:TierFinding\(|_cannot_use\(|"code",)\s*"(\w+)"', text))
    assert {"remote_gap", "offset_mismatch", "orphan"} < found <= described
