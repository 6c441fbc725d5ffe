"""What load, verify and recoveries print as text: short, by topic, and a last line in words."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog.cli.main import main
from seglog.cli.summary import Part, print_summary
from seglog.recovery.findings import FINDINGS, LOSS_CODES, Severity, finding
from seglog.recovery.rows import directory_row, finding_row, partition_row

Capture = pytest.CaptureFixture[str]
VERBS = ("load", "verify", "recover", "dry-run")
SCREEN = 45


def random_part(rng: random.Random) -> Part:
    """Any findings in any number, also combinations that no test damages."""
    names = [f"{topic}-{number}" for topic in (f"topic{n}" for n in range(rng.choice((1, 5, 400))))
             for number in range(rng.choice((1, 3)))]
    findings = []
    for code in rng.sample(sorted(FINDINGS), rng.randrange(len(FINDINGS))):
        for _ in range(rng.choice((1, 2, 100))):
            name = rng.choice([None, *names])
            findings.append(finding(
                code, directory=name, file=rng.choice((None, f"{rng.randrange(10**6):020d}.log")),
                position=rng.choice((None, rng.randrange(10**6))), bytes=rng.randrange(10**6),
                records=rng.choice((None, rng.randrange(1000))), batches=rng.randrange(9),
                message=rng.choice((None, f"in {name} byte {rng.randrange(99)}\nis wrong")),
                kafka_error=rng.choice((None, None, "KafkaException"))))
    failed = {one.directory for one in findings if one.code == "log-unloadable"}
    partitions = [partition_row("/data", name, segment_count=1, size=10,
                                **({"error": "KafkaException", "message": "x"}
                                   if name in failed else {})) for name in names]
    return Part(directory_row("/data", clean_shutdown=False, clean_after=not failed,
                              level="kafka", threads=2, seconds=1.0),
                partitions, [finding_row("/data", one) for one in findings])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("verb", VERBS)
def test_a_screenful_whatever_is_wrong(capsys: Capture, seed: int, verb: str) -> None:
    part = random_part(random.Random(seed))
    print_summary(verb, [part], show_all=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= SCREEN
    wrong = any(row["severity"] in ("error", "fatal") for row in part.findings)
    assert lines[-1].startswith("no errors were found") == (not wrong), lines[-1]
    if any(row["code"] in LOSS_CODES for row in part.findings):
        assert "lost" in lines[-1] and "records in" in lines[-1]
    print_summary(verb, [part], show_all=True)
    everything = capsys.readouterr().out
    assert all(everything.count(f" {code}:") == sum(row["code"] == code for row in part.findings)
               for code in {row["code"] for row in part.findings})


def test_equal_findings_are_one(capsys: Capture) -> None:
    """A full disk: one cause in 450 logs."""
    names = [f"orders{number}-0" for number in range(450)]
    findings = [finding_row("/data", finding(
        "file-unreadable", directory=name, kafka_error="KafkaStorageException",
        message=f"No space left on device: /data/{name}/00000000000000000{number:03}.index"))
        for number, name in enumerate(names)]
    part = Part(directory_row("/data", clean_shutdown=False, clean_after=False, level="kafka",
                              threads=2, seconds=.1),
                [partition_row("/data", name, error="KafkaStorageException", message="x")
                 for name in names], findings)
    print_summary("recover", [part], show_all=False)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 10
    assert any("file-unreadable: 450 times in 450 partitions" in line for line in lines)
    assert lines[-1].startswith("not recovered: 450 logs") and "0 of 450 partitions" in lines[-1]


@pytest.mark.parametrize(("code", "facts", "before", "after"), [
    ("checkpoint-malformed", {}, "seglog load --recover replaces a malformed checkpoint",
     "the malformed checkpoint was replaced"),
    ("commit-unfinished", {}, "seglog load --recover finishes the interrupted commit", ""),
    ("directory-name", {}, "move away what is no partition directory", ""),
    ("meta-properties-malformed", {}, "put the directory's own meta.properties back", ""),
    ("directory-unreadable", {"message": "a system call failed: Permission denied: '/data/t-0'"},
     "run it again as the broker's user or as root", ""),
    ("file-unreadable", {"found": "Permission denied"},
     "run it again as the broker's user or as root", "")])
def test_the_last_line_names_the_next_step(capsys: Capture, code: str, facts: dict[str, str],
                                           before: str, after: str) -> None:
    """It said that each finding tells what Kafka does, which is not what to do."""
    for verb in VERBS:
        part = Part(directory_row("/data", clean_shutdown=False, clean_after=True, level="kafka",
                                  threads=2, seconds=.1),
                    [], [finding_row("/data", finding(code, **facts))])  # type: ignore[arg-type]
        print_summary(verb, [part], show_all=False)
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith("errors were found: 1 finding above")
        assert (after if verb == "recover" and after else before) in last


def test_the_same_words_in_every_verb(golden: Path, tmp_path: Path, capsys: Capture) -> None:
    root = tmp_path / "data"
    shutil.copytree(golden / "real" / "unclean", root)
    log = max((root / "txn-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[300] ^= 1
    log.write_bytes(data)

    def run(*args: str) -> list[str]:
        assert main([*args, str(root)]) == 1
        return capsys.readouterr().out.splitlines()

    told: dict[str, Any] = {"verify": run("verify"), "dry-run": run("load", "--dry-run"),
                            "recover": run("load", "--recover")}
    [lost] = {line for line in told["dry-run"] if line.startswith("    txn: up to ")}
    for lines in told.values():
        assert lost in lines  # the same records, batches and bytes
        assert sum("log-truncated" in line for line in lines) >= 1
        assert len(lines) < SCREEN
    what = lost.partition("up to ")[2].partition(";")[0]
    assert told["recover"][-1].startswith(f"data was lost: up to {what}")
    for verb in ("verify", "dry-run"):
        assert told[verb][-1].startswith(f"data would be lost: a start cuts up to {what}")


def test_a_severity_has_its_place() -> None:
    assert {one.name.lower() for one in Severity} == {"info", "warning", "error", "fatal"}
    assert {FINDINGS[code].severity for code in LOSS_CODES} == {Severity.ERROR}
