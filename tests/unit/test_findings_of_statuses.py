"""Every status that C may give for a file of a data directory is a finding that is documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seglog._native.status import Status, status_error
from seglog.recovery.findings import FINDINGS, finding, status_code

ROOT = Path(__file__).resolve().parents[2]
#: What checks files and headers for a load and for `verify`.
CHECKS = ("batch", "batch_find", "scan", "scan_check", "index", "index_file", "file", "window")
#: Never a finding: memory that is missing is a MemoryError.
NO_FINDING = {Status.NO_MEMORY}
OUTCOMES = {Status.OK, Status.END, Status.FULL, Status.MORE, Status.CODEC}


def given_by_checks() -> set[Status]:
    """The codes that the sources name."""
    names: set[str] = set()
    for stem in CHECKS:
        text = (ROOT / "csrc" / "src" / f"{stem}.c").read_text()
        names |= set(re.findall(r"\bSLG_([A-Z_]+)\b", text))
    return {status for status in Status if status.name in names} - OUTCOMES - NO_FINDING


def test_the_sources_name_what_is_checked() -> None:
    assert {Status.BATCH_CRC, Status.LEGACY_CODEC, Status.TXN_OFFSET, Status.FILE_SHRANK,
            Status.INDEX_PADDED, Status.TORN_TAIL, Status.IO} <= given_by_checks()


@pytest.mark.parametrize("status", sorted(given_by_checks()), ids=lambda status: status.code)
def test_a_status_of_a_check_is_a_documented_finding(status: Status) -> None:
    made = finding(status_code(status), file="x")
    assert made.code in FINDINGS and made.message and made.action
    assert f"`{made.code}`" in (ROOT / "docs" / "findings.md").read_text()


@pytest.mark.parametrize("status", [s for s in Status if s.is_error], ids=lambda s: s.code)
def test_a_status_is_an_error_with_a_sentence(status: Status) -> None:
    error = status_error(status, file="x", position=1, expected=2, found=3)
    assert isinstance(error, Exception) and "{" not in str(error) and str(error)
