"""One damaged directory, what must come of it, and what seglog made of it."""

from __future__ import annotations

import pickle
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.probe import Outcome
from tests.oracle import batch as v2
from tests.oracle import log as oracle
from tests.oracle.batch import Row
from tests.oracle.log import Entry
from tests.oracle.wire import OracleError, crc32c
from tests.support.damage import damage, whole_entries

ROOT = Path(__file__).resolve().parents[2]
SECONDS_PER_BATCH = 1800.0
READS = ("read_uncommitted 0", "read_uncommitted 2", "read_committed 0", "read_committed 2")
#: Where seglog refuses what Kafka's reader, which trusts header fields, reads on.
STRICTER = {"batch_magic", "batch_offset_order", "batch_offset_range", "batch_last_offset",
            "batch_attributes", "batch_record_count", "batch_codec",
            "codec_too_large"}


@dataclass
class Case:
    """A damaged copy of a partition in a data directory of its own."""

    root: Path
    partition: str
    kind: str
    note: str
    #: rows of the entries before the first changed byte
    before: list[Row]
    #: whether a `.log` file of the partition was touched
    log_changed: bool

    @property
    def path(self) -> Path:
        return self.root / self.partition

    def __str__(self) -> str:
        return f"{self.root.name} ({self.note})"


def make(source: Path, partition: str, target: Path, kind: str, seed: int) -> Case | None:
    """Copies a data directory and damages one partition; None when that kind finds nothing."""
    target.mkdir()
    shutil.copytree(source / partition, target / partition)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, target)
    note = damage(target, partition, kind, seed)
    if note is None:
        shutil.rmtree(target)
        return None
    before, changed = _rows_before(source / partition, target / partition)
    return Case(target, partition, kind, note, before, changed)


def _content(path: Path) -> bytes | None:
    """The bytes of a regular file, without the zeros of a sparse tail; None when it is none."""
    if path.is_symlink() or not path.is_file():
        return None
    with open(path, "rb") as file:
        return file.read(1 << 24)


def _rows_before(original: Path, damaged: Path) -> tuple[list[Row], bool]:
    rows: list[Row] = []
    bases = oracle.base_offsets(original)
    names = sorted(path.name for path in damaged.glob("*.log"))
    for number, base in enumerate(bases):
        name = f"{base:020d}.log"
        good, now = _content(original / name), _content(damaged / name)
        assert good is not None
        if number >= len(names) or names[number] != name or now is None:
            return rows, True
        if good == now:
            rows += [row for entry in whole_entries(original / name) for row in entry.rows()]
            continue
        same = next((at for at, (one, two) in enumerate(zip(good, now, strict=False))
                     if one != two), min(len(good), len(now)))
        rows += [row for entry in whole_entries(original / name)
                 if entry.position + entry.size <= same for row in entry.rows()]
        return rows, True
    return rows, len(names) != len(bases)


def run(cases: list[Case], out: Path) -> dict[str, dict[str, Outcome]]:
    """Probes all cases in one process; its death fails the test with the case that it died of."""
    out.mkdir()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.hostile.probe", str(out),
         *(str(case.path) for case in cases)], cwd=ROOT, timeout=SECONDS_PER_BATCH, check=False,
        capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, f"the probe ended with {done.returncode}:\n{done.stderr[-6000:]}"
    return {case.root.name: pickle.loads((out / f"{case.root.name}.pickle").read_bytes())
            for case in cases}


def problems(case: Case, outcomes: dict[str, Outcome]) -> list[str]:
    """Everything that is wrong with what seglog made of a case; nothing when all is well."""
    found = []
    for name, outcome in outcomes.items():
        if outcome.untyped:
            found.append(f"{name}: untyped {outcome.untyped}")
        elif outcome.error and outcome.facts["is_corrupt"]:
            found += [f"{name}: {text}" for text in _bad_facts(case, outcome)]
    # Offsets that contradict each other can hide rows outside the log's own range, as in Kafka.
    # Then the check of the directory must report the file.
    if not any(str(one["file"]).endswith(".log") for one in outcomes["verify"].value or []):
        found += _bad_rows(case, outcomes)
    found += _threads_differ(outcomes)
    return [f"{case}: {text}" for text in found]


def _bad_facts(case: Case, outcome: Outcome) -> list[str]:
    """An error about bytes names the file, the position, what was expected and what was found."""
    facts, found = outcome.facts, []
    if not re.fullmatch("[a-z_]+", facts["code"] or "") or facts["code"] == "corrupt":
        found.append(f"{outcome.error} has the code {facts['code']!r}")
    if not facts["file"] or not str(facts["file"]).startswith(str(case.root)):
        found.append(f"{outcome.error} names the file {facts['file']!r}")
    if facts["position"] is None or facts["position"] < 0:
        found.append(f"{outcome.error} {facts['code']} has the position {facts['position']!r}")
    if facts["found"] is None and facts["expected"] is None:
        found.append(f"{outcome.error} {facts['code']} says neither expected nor found")
    return found


def _bad_rows(case: Case, outcomes: dict[str, Outcome]) -> list[str]:
    """Rows before the damage are exactly the oracle's, and nothing is skipped in silence."""
    found = []
    plain, start = outcomes[READS[0]], (outcomes["facts"].value or {}).get("start", 0)
    before = oracle.data(row for row in case.before if row["offset"] >= start)
    if plain.rows[:len(before)] != before:
        found.append(f"{len(plain.rows)} rows do not begin with the {len(before)} before the "
                     f"damage ({plain.error} {plain.facts})")
    committed = iter(plain.rows)
    if not plain.error and not all(row in committed for row in outcomes[READS[2]].rows):
        found.append("read_committed gives rows that read_uncommitted does not")
    if not case.log_changed:
        if plain.error is None and plain.rows != before:
            found.append(f"{len(plain.rows)} rows of a log that was not touched, not "
                         f"{len(before)}")
        return found
    return found + _silent(case, plain, start)


def _threads_differ(outcomes: dict[str, Outcome]) -> list[str]:
    found = []
    for one, two in ((outcomes[READS[0]], outcomes[READS[1]]),
                     (outcomes[READS[2]], outcomes[READS[3]])):
        if one.rows != two.rows or one.error != two.error or \
                one.facts.get("code") != two.facts.get("code"):
            found.append(f"threads=2 gives {len(two.rows)} rows and {two.error} {two.facts}, "
                         f"threads=0 {len(one.rows)} and {one.error} {one.facts}")
    return found


def _silent(case: Case, plain: Outcome, start: int) -> list[str]:
    """What the oracle refuses must be refused; what both read must be the same."""
    try:
        told = read_until_error(case.path)
    except OSError:
        return []
    rows = oracle.data(row for row in told.rows if row["offset"] >= start)
    if told.error and not plain.error:
        return [f"the oracle stops at '{told.error}' after {len(rows)} rows, "
                f"seglog reads {len(plain.rows)} without a word"]
    if plain.error and not told.error and plain.facts.get("code") not in STRICTER:
        return [f"seglog stops with {plain.error} {plain.facts} after {len(plain.rows)} rows, "
                f"the oracle reads {len(rows)}"]
    if "overlap" in plain.value:
        return []  # told, and which of two records of one offset is given is not Kafka's affair
    shared = min(len(rows), len(plain.rows))
    if plain.rows[:shared] != rows[:shared]:
        return ["rows differ from the oracle's"]
    if not plain.error and len(plain.rows) != len(rows):
        return [f"{len(plain.rows)} rows without an error, the oracle reads {len(rows)}"]
    return []


def read_until_error(partition: Path) -> oracle.Read:
    """The oracle's reading of a damaged directory, without what a huge file would cost."""
    found = oracle.Read()
    try:
        for base in oracle.base_offsets(partition):
            data = _content(partition / f"{base:020d}.log")
            if data is None:
                raise OSError(f"{base:020d}.log is no regular file")
            entries: list[Entry] = list(oracle.entries(data, base))
            for entry in entries:
                # A marker is no record: a reader of records need not look into its batch.
                if not (entry.magic >= 2 and entry.size >= 61 and entry.data[22] & v2.CONTROL):
                    found.rows += entry.rows()
                elif crc32c(entry.data[21:]) != int.from_bytes(entry.data[17:21], "big"):
                    raise OracleError("crc of a control batch")
    except OracleError as error:
        found.error = error
    return found
