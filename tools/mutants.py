"""Changes the code in small ways, one at a time, and names the changes that no quick test notices.

    python -m pip install cosmic-ray pytest-cov
    python tools/mutants.py --seed 1 --cases 200             log, recovery, manager and storage
    python tools/mutants.py --seed 1 --rooms cleaner         one room

cosmic-ray makes the changes; its own runner would run every test for each of them. Here coverage.py
says once which tests run which line, and a mutant meets only those, the quickest first. It works on
a copy of the tree. Tests that need Java or more than some seconds do not count: a hole that only a
real Kafka would show is a hole.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ["log", "recovery", "manager", "storage"]
TESTS = ["log", "recovery", "manager", "unit", "property", "fragments"]
QUICK = "not kafka and not spark and not slow"

# One step to the neighbour of each comparison; all pairs would be ten times the mutants.
OPERATORS = ["core/" + name for name in (
    "ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add", "NumberReplacer", "AddNot",
    "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop")]


@dataclass
class Mutant:
    module: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str = ""
    tests: int = 0
    result: str = ""


def mutants_of(path: Path) -> Iterator[Mutant]:
    tree = get_ast(path.read_text())
    lines = path.read_text().splitlines()
    for name in OPERATORS:
        operator = plugins.get_operator(name)()
        occurrence = 0
        for node in ast_nodes(tree):
            for (line, _), _ in operator.mutation_positions(node):
                yield Mutant(str(path.relative_to(ROOT)), line, name.removeprefix("core/"),
                             occurrence, lines[line - 1].strip())
                occurrence += 1


def environment(tree: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(tree / "src"), "SEGLOG_INSTALLED": "",
                         "PYTHONDONTWRITEBYTECODE": "1"}


def pytest(tree: Path, *arguments: str, timeout: float | None = None) -> int:
    """The exit code of pytest, or -1 where the mutant never ends."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    with (tree / "pytest.out").open("wb") as out:
        process = subprocess.Popen(command, cwd=tree, env=environment(tree), stdout=out, stderr=out,
                                   start_new_session=True)
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return -1


def lines_of_tests(tree: Path, folders: list[str]) -> tuple[dict[str, dict[int, list[str]]],
                                                            dict[str, float]]:
    """module -> line -> the tests that run it; and the seconds of each test."""
    (tree / "seconds.py").write_text(
        "import json\nSECONDS = {}\nFAILED = []\n\n\ndef pytest_runtest_logreport(report):\n"
        "    SECONDS[report.nodeid] = SECONDS.get(report.nodeid, 0) + report.duration\n"
        "    if report.failed:\n        FAILED.append(report.nodeid)\n\n\n"
        "def pytest_sessionfinish():\n"
        "    with open('seconds.json', 'w') as out:\n"
        "        json.dump([SECONDS, FAILED], out)\n")
    pytest(tree, "-p", "seconds", "--cov=seglog", "--cov-context=test", "--cov-report=",
           "-m", QUICK, *(f"tests/{folder}" for folder in folders))
    seconds, failed = json.loads((tree / "seconds.json").read_text())
    if failed:
        print("left out, they fail without any change:", *failed, flush=True)
    data = CoverageData(str(tree / ".coverage"))
    data.read()
    found = {}
    for file in data.measured_files():
        contexts = data.contexts_by_lineno(file)
        found[str(Path(file).relative_to(tree))] = {
            line: sorted({name.partition("|")[0] for name in names if name} - set(failed))
            for line, names in contexts.items()}
    return found, seconds


def judge(mutant: Mutant, tree: Path, covering: list[str], seconds: dict[str, float]) -> None:
    path = tree / mutant.module
    before = path.read_text()
    after = mutate_code(before, plugins.get_operator("core/" + mutant.operator)(),
                        mutant.occurrence)
    if after is None:
        mutant.result = "no change"
        return
    changed = [new for old, new in zip(before.splitlines(), after.splitlines(), strict=False)
               if old != new]
    mutant.after = changed[0].strip() if changed else ""
    mutant.tests = len(covering)
    if not covering:
        mutant.result = "not covered"
        return
    covering = sorted(covering, key=lambda test: seconds.get(test, 0))
    limit = 60 + 5 * sum(seconds.get(test, 0) for test in covering)
    path.write_text(after)
    try:
        # The quickest ones find most of them.
        for part in (covering[:40], covering[40:]):
            code = pytest(tree, "-x", *part, timeout=limit) if part else 0
            if code:
                mutant.result = "never ended" if code == -1 else "killed"
                return
        mutant.result = "survived"
    finally:
        path.write_text(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders of tests/")
    parser.add_argument("--out", type=Path, default=Path("build/mutants.jsonl"))
    options = parser.parse_args()
    drawn = [mutant for room in options.rooms
             for path in sorted((ROOT / "src/seglog" / room).rglob("*.py"))
             for mutant in mutants_of(path)]
    random.Random(options.seed).shuffle(drawn)
    print(f"{len(drawn):,} mutants of {', '.join(options.rooms)}; {options.cases} of them")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, options.out.open("w") as out:
        tree = Path(place) / "seglog"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(
            ".git", ".venv*", "build", "dist"))
        runs, seconds = lines_of_tests(tree, options.tests)
        counts: dict[str, int] = {}
        for mutant in drawn[:options.cases]:
            judge(mutant, tree, runs.get(mutant.module, {}).get(mutant.line, []), seconds)
            counts[mutant.result] = counts.get(mutant.result, 0) + 1
            out.write(json.dumps(asdict(mutant)) + "\n")
            out.flush()
            if mutant.result in ("survived", "not covered"):
                print(f"{mutant.module}:{mutant.line}: {mutant.result} {mutant.operator}\n"
                      f"    {mutant.before}\n    {mutant.after}", flush=True)
    print(", ".join(f"{number} {result}" for result, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
