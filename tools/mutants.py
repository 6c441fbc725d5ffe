"""Changes the code in small ways, one at a time, and names the changes that no quick test notices.

    python -m pip install cosmic-ray pytest-cov
    python tools/mutants.py --sample 300 --seed 1                    of all that it knows
    python tools/mutants.py --one-a-line --part 1/2 --most 15        half of all lines, once each
    python tools/mutants.py --only storage/isolation.py,recovery     all of a module and of a room
    python tools/mutants.py --again build/mutants.jsonl              those that survived

cosmic-ray makes the changes; its own runner would run every test for each of them. Here coverage.py
says once which tests run which line (build/mutants/ keeps that for each test file until it or
anything that is not a test changes), and a mutant meets only those, for some seconds: first those
that noticed other mutants of its module, then the module's own, then the quickest of each file.
Where only the code of functions changes, which is nearly always, that happens in a fork of a pytest
that has collected all tests; what changes a module's or class's body is imported again. It works on
a copy of the tree. Tests that need Java or more than some seconds do not count: a hole that only a
real Kafka would show is a hole.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import importlib
import inspect
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import numpy
import pytest
import parso
from cosmic_ray import plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from coverage import CoverageData
from parso.tree import NodeOrLeaf

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/seglog"
ROOMS = "log,recovery,manager,storage"
TESTS = ["log", "recovery", "manager", "unit", "property", "fragments", "golden", "cleaner",
         "objects", "absurd", "hostile/test_skipping.py", "sequences/test_recorded_sequences.py",
         "differential/test_recorded_loads.py"]
QUICK = "not kafka and not spark and not slow and not judge"
IMPORTED = (hypothesis, numpy, pytest)  # by every test file; a fork has it already
FIRST = 12  # tests that a mutant meets at once: most end there, and few files are imported
# A mutant that never ends dies of the alarm of a test, see `Alarm`.
NEVER_ENDED = -signal.SIGALRM
# The result until the mutant is imported again.
IMPORT = "import"

# One step to the neighbour of each comparison; all pairs would be ten times the mutants.
OPERATORS = [
    "ReplaceComparisonOperator_Lt_LtE", "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Gt_GtE", "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Eq_NotEq", "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot", "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceBinaryOperator_Add_Sub", "ReplaceBinaryOperator_Sub_Add", "NumberReplacer", "AddNot",
    "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ZeroIterationForLoop",
    "RemoveCall", "SwapMinMax"]


class Own(Operator):
    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class RemoveCall(Own):
    """A call whose result nobody takes becomes `pass`."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[tuple[int, int], ...]]:
        if node.type == "simple_stmt" and node.children[0].type == "atom_expr" \
                and node.children[0].children[-1].type == "trailer":
            yield node.children[0].start_pos, node.children[0].end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        node.children[0] = parso.parse(node.children[0].get_first_leaf().prefix + "pass")
        return node


class SwapMinMax(Own):
    """`min(` becomes `max(`, and the other way."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[tuple[int, int], ...]]:
        if node.type == "name" and node.value in ("min", "max") \
                and node.get_next_leaf().value == "(" and node.get_previous_leaf().value != ".":
            yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        node.value = "max" if node.value == "min" else "min"
        return node


OWN = {"RemoveCall": RemoveCall, "SwapMinMax": SwapMinMax}


@dataclass
class Mutant:
    module: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str = ""
    covering: int = 0
    run: int = 0
    result: str = ""
    noticed_by: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """Which one it is, as long as the module is the same."""
        return self.module, self.operator, self.occurrence


def operator_of(name: str) -> Operator:
    return OWN[name]() if name in OWN else plugins.get_operator("core/" + name)()


def mutants_of(path: Path) -> Iterator[Mutant]:
    tree = get_ast(path.read_text())
    lines = path.read_text().splitlines()
    for name in OPERATORS:
        operator = operator_of(name)
        occurrence = 0
        for node in ast_nodes(tree):
            for (line, _), _ in operator.mutation_positions(node):
                yield Mutant(str(path.relative_to(ROOT)), line, name, occurrence,
                             lines[line - 1].strip())
                occurrence += 1


def prepare(tree: Path) -> None:
    """Makes a copy of the tree, and this process and its children run that."""
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(
        ".git", ".venv*", "build", "dist", ".cache", "__pycache__"))
    os.environ |= {"PYTHONPATH": str(tree / "src"), "SEGLOG_INSTALLED": "", "SEGLOG_QUICK": "1",
                   "SEGLOG_TEST_CACHE": str(tree / "cache")}
    os.chdir(tree)
    sys.path[:0] = [str(tree / "src"), str(tree)]


def run_forked(run: Callable[[], int]) -> int:
    """The exit code that `run` returns, negative for a signal."""
    child = os.fork()
    if child == 0:
        os.setsid()
        out = os.open("pytest.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 3
        try:
            code = run()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)  # threads of a mutant may never end
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):  # it left no processes
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


@dataclass(eq=False)  # pytest hashes plugins
class Alarm:
    """A plugin: a test that takes far too long ends its process; RUNNING names the last test."""

    RUNNING = Path("running")
    seconds: dict[str, float]

    def pytest_configure(self) -> None:
        signal.alarm(60)  # the imports

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.RUNNING.write_text(nodeid)
        signal.alarm(8 + int(10 * self.seconds.get(nodeid, 0)))


def new_pytest(arguments: list[str], *plugins: object) -> int:
    # Hypothesis is imported before its plugin, which changes nothing but its asserts.
    return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-W",
                            "ignore::pytest.PytestAssertRewriteWarning", *arguments], plugins))


class Collected:
    """A plugin: a pytest that collected all tests, and runs some of them in each fork."""

    def __init__(self, work: Callable[[Collected], None], alarm: Alarm) -> None:
        self.work, self.alarm = work, alarm
        self.live: dict[str, dict[tuple[str, int], list[FunctionType]]] = {}

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.session = session
        self.items = {item.nodeid: item for item in session.items}
        self.default_loop = session.config.pluginmanager.get_plugin("main").pytest_runtestloop
        golden = importlib.import_module("tests.support.golden")
        root = golden.unpack()
        golden.unpack, golden.fingerprint = lambda: root, lambda root: ""  # once, not in each fork
        gc.unfreeze()
        gc.collect()
        source = str(Path.cwd() / "src")
        for one in gc.get_objects():
            if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(source):
                code = one.__code__
                self.live.setdefault(code.co_filename, {}).setdefault(
                    (code.co_qualname, code.co_firstlineno), []).append(one)
        gc.freeze()  # a fork that collects would copy all of that
        self.work(self)
        return True

    def run(self, tests: list[str], path: Path | None = None,
            code: CodeType | None = None) -> int:
        """In a fork: these tests, with the functions of the module as in this code of it."""
        if code is not None:
            # A module that is not imported yet is read from its changed file.
            live = self.live.get(str(path), {})
            for key, new in functions_in(code):
                for function in live.get(key, ()):
                    function.__code__ = new
        session, config = self.session, self.session.config
        config.pluginmanager.register(self.alarm)
        place = Path(tempfile.mkdtemp(prefix="mutant"))
        config._tmp_path_factory._given_basetemp = place / "tests"  # type: ignore[attr-defined]
        session.items[:] = [self.items[test] for test in tests]
        with suppress(session.Failed):  # at the first failure
            self.default_loop(session)
        shutil.rmtree(place, ignore_errors=True)
        return 1 if session.testsfailed else 0


def functions_in(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield (one.co_qualname, one.co_firstlineno), one
            yield from functions_in(one)


def same_body(before: CodeType, after: CodeType) -> bool:
    """Do two codes of a module differ only inside of functions?"""
    if (before.co_code, before.co_names, len(before.co_consts)) \
            != (after.co_code, after.co_names, len(after.co_consts)):
        return False
    for old, new in zip(before.co_consts, after.co_consts, strict=True):
        if not isinstance(old, CodeType) or not isinstance(new, CodeType):
            if (type(old), old) != (type(new), new):
                return False
        elif not old.co_flags & inspect.CO_OPTIMIZED and not same_body(old, new):
            return False  # a class
        elif old.co_freevars != new.co_freevars:
            return False
    return True


def baseline(folders: list[str]) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """module -> line -> the tests that run it; and the seconds of each test. The line 0 has the
    tests that run any line of the module. A test file is measured again when it changes; all are
    when anything else does."""
    files = {path.relative_to(ROOT): path.read_bytes()
             for part in ("src", "tests") for path in sorted((ROOT / part).rglob("*"))
             if path.suffix in (".py", ".pyx", ".so", ".jsonl")}
    wanted = [path for path in files if path.name.startswith("test_")
              and any(path.is_relative_to(f"tests/{folder}") for folder in folders)]
    shared = hashlib.sha256()
    for path, content in files.items():
        if not path.name.startswith("test_"):
            shared.update(path.as_posix().encode() + content)
    kept = ROOT / "build/mutants" / shared.hexdigest()[:16]
    kept.mkdir(parents=True, exist_ok=True)
    place_of = {path: kept / (path.as_posix().replace("/", "-") + "-"
                              + hashlib.sha256(files[path]).hexdigest()[:16] + ".json")
                for path in wanted}
    missing = [path for path in wanted if not place_of[path].exists()]
    if missing:
        print(f"measures the coverage of {len(missing)} test files", flush=True)
        for path, found in measured(missing).items():
            place_of[path].write_text(json.dumps(found))
    seconds: dict[str, float] = {}
    lines: dict[str, dict[int, set[str]]] = {}
    for place in place_of.values():
        found = json.loads(place.read_text())
        names = list(found["seconds"])
        seconds |= found["seconds"]
        for module, numbers in found["known"].items():
            of = lines.setdefault(module, {0: set()})
            for line in numbers:
                of.setdefault(line, set())
        for module, tests_of_lines in found["lines"].items():
            of = lines[module]
            for line, tests in tests_of_lines.items():
                of[int(line)].update(named := [names[test] for test in tests])
                of[0].update(named)
    return {module: {line: sorted(tests, key=lambda test: (seconds[test], test))
                     for line, tests in of.items()} for module, of in lines.items()}, seconds


def measured(files: list[Path]) -> dict[Path, dict[str, Any]]:
    """Runs these test files once. `seconds` of each test; the numbers of the tests of each line;
    the `known` lines, of which those without a test run at the import."""
    Path("seconds.py").write_text(
        "import json\nSECONDS = {}\nFAILED = []\n\n\ndef pytest_runtest_logreport(report):\n"
        "    SECONDS[report.nodeid] = SECONDS.get(report.nodeid, 0) + report.duration\n"
        "    if report.failed:\n        FAILED.append(report.nodeid)\n\n\n"
        "def pytest_sessionfinish():\n"
        "    with open('seconds.json', 'w') as out:\n"
        "        json.dump([SECONDS, FAILED], out)\n")
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "seconds",
         "--cov=seglog", "--cov-context=test", "--cov-report=", "-m", QUICK,
         *map(str, files)], check=False)
    seconds, failed = json.loads(Path("seconds.json").read_text())
    if failed:
        print("left out, they fail without any change:", *failed, flush=True)
    data = CoverageData(".coverage")
    data.read()
    found: dict[str, dict[str, Any]] = {
        str(path): {"seconds": {}, "known": {}, "lines": {}} for path in files}
    numbers: dict[str, int] = {}
    for test, spent in seconds.items():
        own = found[test.partition("::")[0]]["seconds"]
        numbers[test], own[test] = len(own), spent
    for module in data.measured_files():
        name = str(Path(module).relative_to(Path.cwd()))
        known = sorted(data.lines(module) or ())
        for of in found.values():
            of["known"][name] = known
        for line, contexts in data.contexts_by_lineno(module).items():
            for test in ({context.rpartition("|")[0] for context in contexts}
                         & numbers.keys()).difference(failed):
                lines = found[test.partition("::")[0]]["lines"].setdefault(name, {})
                lines.setdefault(line, []).append(numbers[test])
    return {path: found[str(path)] for path in files}


def tests_of(mutant: Mutant, lines: dict[int, list[str]]) -> list[str]:
    """The tests that run the mutant's line, or the statement that it continues."""
    line = mutant.line
    if line not in lines:
        starts = [node.lineno for node in ast.walk(ast.parse(Path(mutant.module).read_text()))
                  if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)]
        line = max(starts, default=line)
    # A line that runs at the import belongs to all tests of the module.
    return lines.get(line, []) or (lines[0] if line in lines else [])


def chosen_tests(module: str, covering: list[str], noticed: list[str], seconds: dict[str, float],
                 most: float) -> list[str]:
    """Of the `covering` tests, the quickest first, those that a mutant meets in `most` seconds: the
    ones that `noticed` others, those in the module's own file, then each file's for the same time.
    A file's tests are together, so that they share their fixtures."""
    spent: dict[str, float] = {}  # on each file
    turn: dict[str, tuple[bool, float, str]] = {}
    for test in covering:
        file = test.partition("::")[0]
        spent[file] = spent.get(file, 0) + seconds[test]
        turn[test] = f"test_{Path(module).stem}" not in file, spent[file], test
    known = [test for test in dict.fromkeys(noticed) if test in turn]
    met = []
    for test in (*known, *sorted(turn.keys() - set(known), key=turn.__getitem__)):
        if seconds[test] <= most:
            met.append(test)
            most -= seconds[test]
    return sorted(met, key=lambda test: "" if test in known or not turn[test][0] else
                  test.partition("::")[0]) or covering[:1]


def judge(mutant: Mutant, number: int, met: list[str],
          run: Callable[[list[str], Path, CodeType], int], imports: bool) -> None:
    """Fills in the result of the tests that are to be `met`, or IMPORT if that needs `imports`."""
    path = Path(mutant.module)
    before, time_before = path.read_text(), path.stat().st_mtime_ns
    after = mutate_code(before, operator_of(mutant.operator), mutant.occurrence)
    if after is None or after == before:
        mutant.result = "no change"
        return
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    mutant.after = next((new.strip() for old, new in lines if old != new), "")
    if not mutant.covering:
        mutant.result = "not covered"
        return
    try:
        code = compile(after, str(path.absolute()), "exec")
    except SyntaxError:  # `not` before `name := ...`
        mutant.result = "no change"
        return
    if not imports and not same_body(compile(before, str(path.absolute()), "exec"), code):
        mutant.result = IMPORT
        return
    path.write_text(after)
    # Bytecode is good for one time of the file, in seconds.
    os.utime(path, ns=(time_before, time_before + number * 10**9))
    Alarm.RUNNING.write_text(met[0])
    try:
        status = 0
        for part in filter(None, (met[:FIRST], met[FIRST:])):
            status = status or run_forked(partial(run, part, path.absolute(), code))
        # Tests failed, could not be imported, or died.
        mutant.result = ("survived" if not status else "never ended" if status == NEVER_ENDED
                         else "killed" if status < 0 or status in (1, 2) else "trouble")
        mutant.noticed_by = Alarm.RUNNING.read_text() if status else ""
        mutant.run = met.index(mutant.noticed_by) + 1 if status else len(met)
    finally:
        path.write_text(before)
        os.utime(path, ns=(time_before, time_before))


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """The mutants that the command line asks for."""
    if options.again:
        rows = [Mutant(**json.loads(line)) for line in options.again.read_text().splitlines()]
        keys = {row.key for row in rows if row.result in ("survived", "not covered")}
        modules = sorted({ROOT / module for module, _, _ in keys})
        return [one for path in modules for one in mutants_of(path) if one.key in keys]
    paths: list[Path] = []
    for name in options.only.split(","):
        place = PACKAGE / name
        paths += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    drawn = [mutant for path in paths for mutant in mutants_of(path)]
    random.Random(options.seed).shuffle(drawn)
    print(f"{len(drawn):,} mutants of {options.only}")
    if options.one_a_line:
        drawn = list({(one.module, one.line): one for one in drawn}.values())
    part, parts = map(int, options.part.split("/"))
    return drawn[part - 1::parts][:options.sample or None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="draws the sample")
    parser.add_argument("--sample", type=int, default=0, help="how many mutants (all)")
    parser.add_argument("--one-a-line", action="store_true", help="at most one mutant of a line")
    parser.add_argument("--part", default="1/1", help="2/3: the second of three parts (1/1)")
    parser.add_argument("--only", default=ROOMS, help=f"modules or rooms of seglog ({ROOMS})")
    parser.add_argument("--again", type=Path, help="an earlier --out: those that survived")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="folders and files of tests/")
    parser.add_argument("--most", type=float, default=60, help="seconds of tests for a mutant (60)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutants.jsonl")
    options = parser.parse_args()
    drawn = chosen(options)
    options.out = options.out.resolve()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, options.out.open("w") as out:
        prepare(Path(place) / "seglog")
        lines, seconds = baseline(options.tests)
        known = sorted({test for of in lines.values() for test in of[0]})
        control = random.Random(options.seed).sample(known, min(30, len(known)))
        shown = os.fdopen(os.dup(1), "w")  # a fork's standard output is pytest's
        alarm = Alarm(seconds)
        noticed: dict[str, list[str]] = {}  # for each module, the latest first

        def judge_all(of: list[Mutant], collected: Collected | None) -> None:
            def run(tests: list[str], *changed: Any) -> int:
                return collected.run(tests, *changed) if collected else new_pytest(tests, alarm)

            if run_forked(partial(run, control)):
                sys.exit("tests fail unchanged:\n" + Path("pytest.out").read_text()[-3000:])
            for number, mutant in enumerate(of, 1):
                covering = tests_of(mutant, lines.get(mutant.module, {}))
                latest = noticed.setdefault(mutant.module, [])
                met = chosen_tests(mutant.module, covering, latest, seconds, options.most)
                mutant.covering = len(covering)
                judge(mutant, number, met, run, not collected)
                if mutant.noticed_by:
                    latest.insert(0, mutant.noticed_by)
                out.write(json.dumps(asdict(mutant)) + "\n")
                out.flush()
                if mutant.result in ("survived", "not covered"):
                    print(f"{mutant.module}:{mutant.line}: {mutant.result} ({mutant.run} of "
                          f"{mutant.covering} tests)\n    {mutant.before}\n    {mutant.after}",
                          file=shown, flush=True)

        arguments = ["-m", QUICK, *(f"tests/{name}" for name in options.tests)]
        collect = Collected(partial(judge_all, drawn), alarm)
        if run_forked(partial(new_pytest, arguments, collect)):
            sys.exit("the tests could not be run:\n" + Path("pytest.out").read_text()[-3000:])
        rows = [json.loads(line) for line in options.out.read_text().splitlines()]
        judge_all([Mutant(**row | {"result": ""}) for row in rows if row["result"] == IMPORT], None)
        os.chdir(ROOT)
    counts = Counter(json.loads(line)["result"] for line in options.out.read_text().splitlines())
    del counts[IMPORT]
    print(", ".join(f"{number} {result}" for result, number in sorted(counts.items())))


if __name__ == "__main__":
    main()
