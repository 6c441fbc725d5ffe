"""Codes are stable and documented."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from seglog._native.scan import PROBLEM_DTYPE, FileClass
from seglog._native.status import Status
from seglog.model import TopicPartition
from seglog.recovery.findings import FINDINGS, Finding, Severity, finding, status_code
from seglog.recovery.load_report import (
    FINDINGS_PER_CODE_MAX, FindingList, LoadReport, PartitionReport,
)
from seglog.recovery.rows import LOSS_FIELDS, exit_code, finding_row, totals_of
from seglog.recovery.steps import stops_at

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


@pytest.mark.parametrize("file", [FileClass.LOG, FileClass.INDEX])
def test_a_log_that_is_too_large_is_opened_by_pass_four(file: FileClass) -> None:
    """FileRecords refuses it."""
    problems = np.zeros(1, PROBLEM_DTYPE)
    problems["status"], problems["file"] = int(Status.FILE_TOO_LARGE), int(file)
    assert stops_at(problems).tolist() == [file is FileClass.LOG]


def test_a_file_that_this_user_may_not_read_may_be_read_by_the_brokers() -> None:
    denied = f"x: {os.strerror(errno.EACCES)}"
    offline = FINDINGS["file-unreadable"].action
    for where in ({"message": denied}, {"found": denied}):
        assert finding("file-unreadable", **where).action == \
            f"{offline} if the broker's user may not read it either"
        assert finding("log-truncated", **where).action == FINDINGS["log-truncated"].action
    assert finding("file-unreadable", message="x: Input/output error").action == offline
    assert finding("file-unreadable", message=denied, action="none").action == "none"


def test_a_finding_tells_all_its_fields() -> None:
    found = finding("log-truncated", directory="t-0", bytes=0, records=None)
    told = found.to_dict()
    assert set(told) == set(Finding.__slots__)
    assert {name: value for name, value in told.items() if value is not None} == {
        "code": "log-truncated", "severity": "error", "message": found.message,
        "action": found.action, "directory": "t-0", "bytes": 0}
    with pytest.raises(KeyError):
        finding("no-such-code")


@pytest.mark.parametrize("count", [1, FINDINGS_PER_CODE_MAX, FINDINGS_PER_CODE_MAX + 2])
def test_a_report_lists_so_many_findings_of_a_code_and_counts_the_rest(count: int) -> None:
    findings, foreign = FindingList(), finding("file-foreign", directory="t-0")
    listed = [findings.add(foreign) for _ in range(count)]
    assert findings.add(finding("log-truncated", directory="t-0"))
    assert listed == [number < FINDINGS_PER_CODE_MAX for number in range(count)]
    assert findings.counts == {"file-foreign": count, "log-truncated": 1}
    omitted = findings.close("t-0")[sum(listed) + 1:]
    assert [(one.code, one.found, one.message) for one in omitted] == (
        [("findings-omitted", count, "2 more findings file-foreign")]
        if count > FINDINGS_PER_CODE_MAX else [])


def test_a_report_is_as_severe_as_its_worst_finding() -> None:
    def partition(*codes: str) -> PartitionReport:
        return PartitionReport("t-0", TopicPartition("t", 0), 0, 0, 0, 0, 0, 0, 0, None, None,
                               tuple(finding(code) for code in codes))

    def severity(*partitions: PartitionReport) -> Severity | None:
        return LoadReport("d", "kafka", True, 1, 0.0, (), (), partitions).severity

    mixed, plain = partition("file-foreign", "log-truncated"), partition("file-foreign")
    assert (partition().severity, plain.severity, mixed.severity) == (
        None, Severity.INFO, Severity.ERROR)
    assert (severity(), severity(plain), severity(plain, mixed), severity(mixed, plain)) == (
        None, Severity.INFO, Severity.ERROR, Severity.ERROR)


def test_totals_count_the_logs_that_do_not_load() -> None:
    sound = PartitionReport("t-0", TopicPartition("t", 0), 2, 30, 0, 5, 0, 1, 10, None, None, ())
    refused = replace(sound, kafka_error="KafkaException", kafka_message="refused")
    rows = [one.to_row("d") for one in (sound, refused, refused)]
    totals = totals_of(rows, [finding_row("d", finding("log-truncated", directory="t-0"))])
    assert (totals["partitions"], totals["errors"]) == (3, 2)
    assert (totals["segments"], totals["size"]) == (6, 90)
    assert totals["findings"] == {"info": 0, "warning": 0, "error": 1, "fatal": 0}
    assert [totals["lost"][name] for name in LOSS_FIELDS] == [1, 1, 0, 0, 0, 0]
    assert (totals["batches"], totals["records"]) == (None, None), "the sound one was not read"
    read = replace(sound, batches=7, records=9).to_row("d")
    totals = totals_of([read, read, rows[1]], [])
    assert (totals["batches"], totals["records"]) == (14, 18)


def test_exit_codes() -> None:
    whole, failed = {"error": None}, {"error": "KafkaException"}
    wrong = {"severity": "error", "message": "a batch is torn", "found": None}
    odd = wrong | {"severity": "warning"}
    assert exit_code([whole], [whole], [odd]) == 0
    assert exit_code([whole], [whole, failed], []) == exit_code([whole], [whole], [wrong]) == 1
    assert exit_code([whole, failed], [whole], []) == 2


@pytest.mark.parametrize(("batches", "unread"), [(None, (2, 30)), (0, (0, 0)), (7, (0, 0))])
def test_a_log_whose_batches_were_counted_was_read(batches: int | None, unread: tuple[int, int]
                                                   ) -> None:
    row = PartitionReport("t-0", TopicPartition("t", 0), 2, 30, 0, 5, 0, 1, 10, None, None, (),
                          batches=batches).to_row("d")
    assert (row["unread_segment_count"], row["unread_size"]) == unread
