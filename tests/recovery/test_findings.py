"""Codes are stable and documented."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seglog._native.status import Status
from seglog.recovery.findings import FINDINGS, Finding, finding, status_code

PAGE = Path(__file__).parents[2] / "docs/findings.md"


def test_the_page_lists_every_code_as_it_is() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| (.*?) \| (.*?) \|$", PAGE.read_text(),
                      re.MULTILINE)
    listed = {row[0]: row[1:] for row in rows if row[0] not in ("kafka", "full", "verify")}
    assert listed == {kind.code: (kind.severity.name.lower(), kind.meaning, kind.action)
                      for kind in FINDINGS.values()}


@pytest.mark.parametrize("status", [
    status for status in Status
    if 1 < status < 16 and status not in (Status.FULL, Status.MORE, Status.CODEC)
    or 16 <= status < 48 or 112 <= status < 160])
def test_every_status_a_load_can_meet_has_a_code(status: Status) -> None:
    assert status_code(status) in FINDINGS


def test_a_finding_tells_all_its_fields() -> None:
    found = finding("log-truncated", directory="t-0", bytes=0, records=None)
    told = found.to_dict()
    assert set(told) == set(Finding.__slots__)
    assert {name: value for name, value in told.items() if value is not None} == {
        "code": "log-truncated", "severity": "error", "message": found.message,
        "action": found.action, "directory": "t-0", "bytes": 0}
    with pytest.raises(KeyError):
        finding("no-such-code")
