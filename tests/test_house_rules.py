"""The rules of the house: layers, sizes, stems, documentation, and a C that knows no Python.

The directions are those of docs/architecture.md. What is read is the source tree beside the tests,
whatever is installed.
"""

from __future__ import annotations

import ast
import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from tests.support.source_files import (
    CORE, PACKAGE, ROOT, SOURCE_SUFFIXES, SRC, lines_with, name_of, pages, sources, statements,
    text_of,
)

LINES_MAX = 500
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 80  # the aim is 70; a table or a signature may run over it a little

# What each room of the package may import of the others. "" is the front door itself, by which
# only the command line and Spark may come in: for the rest it would be a circle.
VALUES = {"arguments", "closed_by_with", "errors", "forks", "model", "config", "java"}
LAYERS: dict[str, set[str]] = {
    "errors": set(),
    "arguments": {"errors", "model"},
    "closed_by_with": set(),
    "forks": {"errors"},
    "model": {"errors"},
    "java": {"_native"},  # for the printed text
    "config": {"arguments", "errors", "java"},
    "metrics": {"forks"},
    "_native": {"errors"},
    "objects": {"errors"},
    "storage": {"objects", "_native", *VALUES},
    "arrow": {"storage", "objects", "_native", *VALUES},
    "recovery": {"storage", "_native", *VALUES},
    "log": {"metrics", "recovery", "storage", "_native", *VALUES},
    "encoding": {"log"},
    "fragments": {"log", "storage", "_native", *VALUES},
    "manager": {"cleaner", "fragments", "log", "metrics", "recovery", "storage", "_native",
                *VALUES},
    "cleaner": {"log", "metrics", "recovery", "storage", "_native", *VALUES},
    "embedded": {"cleaner", "log", "manager", "storage", "_native", *VALUES},
    "datadir": {"recovery", "storage", "arrow", "tiered", *VALUES},
    "tiered": {"objects", "storage", "_native", *VALUES},
    "remote_log": {"arrow", "log", "manager", "metrics", "recovery", "storage", "tiered", "_native",
                   *VALUES},
    "dump": {"storage", "tiered", "_native", *VALUES},
    # Executors only read: of the loader they have what `scrub` hands out (docs/architecture.md).
    "scrub": {"recovery", "storage", "_native", *VALUES},
    "spark": {"", "_native", "arrow", "dump", "encoding", "fragments", "objects", "scrub",
              "storage", "tiered", *VALUES},
    "export": {"arrow", "_native", *VALUES},
    "cli": {"", "cleaner", "datadir", "dump", "export", "log", "manager", "metrics", "recovery",
            "remote_log", "arrow", "storage", "tiered", "_native", "spark", *VALUES},
    "__main__": {"seglog_command"},
    "": {"embedded", "log", "manager", "datadir", "recovery", "arrow", "storage", "_native",
         *VALUES},
    "pyspark_seglog": {"spark"},
    "seglog_command": {"cli"},
}
# Packages outside the standard library, and the only rooms that may import them.
OUTSIDERS: dict[str, set[str]] = {
    "numpy": {"_native", "storage", "arrow", "recovery", "log", "cleaner", "fragments", "manager",
              "datadir", "dump", "java", "tiered", "remote_log", "cli", "spark"},
    "cramjam": {"storage"},
    "cryptography": {"tiered"},
    "Crypto": {"tiered"},
    "obstore": {"objects"},
    "fsspec": {"objects"},
    "pyspark": {"spark", "pyspark_seglog"},
    "pyarrow": {"spark", "export"},
    "prometheus_client": {"metrics"},
    "confluent_kafka": {"remote_log"},
}


def room_of(path: Path) -> str:
    """`storage` for storage/codecs.py, `errors` for errors.py, "" for the package's `__init__`."""
    if not path.is_relative_to(PACKAGE):
        return path.relative_to(SRC).parts[0]
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem.replace("__init__", "")


class Facts(NamedTuple):
    """What the rules ask about a Python file, so that each file is parsed once and no tree stays in
    memory."""

    imports: list[tuple[int, str]]
    functions: list[tuple[int, str, int]]  # line, name, length
    undocumented: list[str]
    skips: list[tuple[int, str]]  # line, and what is wrong with it, if anything


@functools.cache
def facts_of(path: Path) -> Facts:
    """Parses a Python file."""
    text = text_of(path)
    tree = ast.parse(text)
    facts = Facts([], [], list(undocumented(path, tree)), [])
    for node in ast.walk(tree) if ".skip" in text else statements(tree):
        if isinstance(node, ast.Import):
            facts.imports.extend((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            facts.imports.extend((node.lineno, name) for name in imported_from(path, node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            facts.functions.append((node.lineno, node.name, length))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("skip", "skipif"):
                facts.skips.extend((node.lineno, wrong) for wrong in trouble_of_a_skip(node))
        elif isinstance(node, ast.Attribute) and node.attr == "skip":
            if ast.unparse(node) == "pytest.mark.skip":
                facts.skips.append((node.lineno, "a skip without a condition"))
    return facts


def imported_from(path: Path, node: ast.ImportFrom) -> Iterator[str]:
    """The absolute names of the modules that one `from` statement imports."""
    package = path.relative_to(SRC).parts[:-1] if path.is_relative_to(SRC) else ()
    base = package[:len(package) - node.level + 1] if node.level else ()
    module = ".".join([*base, *([node.module] if node.module else [])])
    if module == "seglog":  # `from seglog import errors` names a room, not the front door
        for alias in node.names:
            inner = PACKAGE / alias.name
            is_room = inner.is_dir() or inner.with_suffix(".py").exists()
            yield f"seglog.{alias.name}" if is_room else "seglog"
    else:
        yield module


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Every absolute module name that a Python or Cython file imports, with its line."""
    if path.suffix not in {".pyx", ".pxd"}:
        yield from facts_of(path).imports
        return
    pattern = re.compile(r"^\s*(?:from\s+([.\w]+)\s+c?import|c?import\s+([.\w]+))")
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if match := pattern.match(line):
            yield number, match[1] or match[2]


def package_sources() -> list[Path]:
    return [path for path in sources("src") if path.suffix != ".pyi"]


def test_imports_follow_the_arrows() -> None:
    wrong = []
    for path in package_sources():
        room = room_of(path)
        assert room in LAYERS, f"{name_of(path)}: a room that docs/architecture.md does not have"
        for line, module in imports_of(path):
            parts = module.split(".")
            if parts[0] != "seglog":
                continue
            target = parts[1] if len(parts) > 1 else ""
            if target != room and target not in LAYERS[room]:
                wrong.append(f"{name_of(path)}:{line}: {room or 'seglog'} imports {module}")
    assert not wrong, "\n".join(wrong)


# What of the loader only reads, the dry run included.
READS = {"callbacks", "findings", "load_report", "loader", "partition", "partition_plan", "rows",
         "scans", "segment_verification"}


def test_executors_get_what_reads() -> None:
    """`scrub` is all that Spark has of recovery: nothing in it opens a file for writing."""
    wrong = [f"{name_of(path)}:{line}: imports {module}"
             for path in (PACKAGE / "scrub").glob("*.py") for line, module in imports_of(path)
             if module.startswith("seglog.recovery") and module.split(".")[2:] not in (
                 [name] for name in READS)]
    assert not wrong, "\n".join(wrong)


def test_packages_from_outside_are_imported_only_where_they_belong() -> None:
    wrong = []
    ours = {"seglog", "pyspark_seglog", "seglog_command", "libc", "cpython", "cython", "posix"}
    for path in package_sources():
        for line, module in imports_of(path):
            top = module.split(".")[0]
            known = top in sys.stdlib_module_names or top in ours
            if not known and room_of(path) not in OUTSIDERS.get(top, set()):
                wrong.append(f"{name_of(path)}:{line}: imports {module}")
    assert not wrong, "\n".join(wrong)


def test_only_the_native_layer_reaches_c() -> None:
    foreign = re.compile(r"^\s*(import|from)\s+(ctypes|cffi)\b", re.MULTILINE)
    wrong = [name_of(path) for path in package_sources() if foreign.search(text_of(path))]
    wrong += [name_of(path) for path in package_sources()
              if path.suffix in {".pyx", ".pxd"} and path.parent.name != "_native"]
    assert not wrong


def test_the_front_door_imports_nothing_optional() -> None:
    """`import seglog` in a fresh process brings in neither Spark nor an Arrow library."""
    code = ("import sys, seglog; "
            "print(*sorted({m.split('.')[0] for m in sys.modules} "
            "& {'pyspark', 'pyarrow', 'pandas', 'polars', 'duckdb', 'prometheus_client',"
            "'obstore', 'fsspec', 'confluent_kafka'}))")
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            check=True)
    assert result.stdout.strip() == ""


def test_csrc_knows_no_python() -> None:
    python = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"](Python|numpy|structmember|pymem)'
                        r"|\bPy(Object|GILState|_BEGIN|Mem|Err|Bytes)\w*", re.MULTILINE)
    wrong = [f"{name_of(path)}:{number}" for path in sources("csrc")
             for number, _ in lines_with(python, path)]
    assert not wrong


@pytest.mark.judge
@pytest.mark.skipif(not sys.platform.startswith("linux") or not shutil.which("size"),
                    reason="needs Linux and binutils' size, which lists ELF sections")
def test_csrc_has_no_mutable_globals(tmp_path: Path) -> None:
    """Without -fPIC a constant table needs no relocation, so what .data holds is mutable."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("a C compiler is missing: install gcc or clang")
    wrong = []
    for path in sorted((CORE / "src").glob("*.c")):
        target = tmp_path / f"{path.stem}.o"
        subprocess.run([compiler, "-std=c11", "-O0", "-fno-pic", "-fno-common", "-c", str(path),
                        "-I", str(CORE / "include"), "-o", str(target)], check=True)
        listing = subprocess.run(["size", "-A", str(target)], capture_output=True, text=True,
                                 check=True).stdout
        for section, size in re.findall(r"^(\.\S+)\s+(\d+)", listing, re.MULTILINE):
            if section.startswith((".data", ".bss", ".tdata", ".tbss")) and int(size):
                wrong.append(f"{name_of(path)}: {size} bytes in {section}")
    assert not wrong, "\n".join(wrong)


# What a clone holds at its top.
TOP = {".ci", ".clang-format", ".clang-tidy", ".gitignore", "CHANGES.md", "CONTRIBUTING.md",
       "LICENSE", "MANIFEST.in", "Makefile", "README.md", "bench", "csrc", "docs", "examples",
       "pyproject.toml", "setup.py", "src", "tests", "tools"}


def test_nothing_strange_lies_at_the_top() -> None:
    """A file that a test or a hand left behind is not committed."""
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("no clone, or no git: what is committed cannot be listed")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout
    assert {line.split("/")[0] for line in listed.splitlines()} == TOP


def test_files_and_lines_are_short() -> None:
    wrong = []
    for path in [*sources("src", "csrc", "tests", "bench"), ROOT / "setup.py"]:
        lines = text_of(path).splitlines()
        if len(lines) > LINES_MAX:
            wrong.append(f"{name_of(path)}: {len(lines)} lines")
        wrong += [f"{name_of(path)}:{number}: {len(line)} columns"
                  for number, line in enumerate(lines, 1) if len(line) > COLUMNS_MAX]
    assert not wrong, "\n".join(wrong)


def test_functions_are_short() -> None:
    wrong = []
    for path in sources("src", "tests", "bench"):
        if path.suffix != ".py":
            continue
        wrong += [f"{name_of(path)}:{line}: {name} has {length} lines"
                  for line, name, length in facts_of(path).functions
                  if length > FUNCTION_LINES_MAX]
    assert not wrong, "\n".join(wrong)


def test_nothing_is_left_for_later() -> None:
    promise = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b|pragma: no cover")
    wrong = [f"{name_of(path)}:{number}" for path in sources("src", "csrc", "tests", "bench")
             if path != Path(__file__).resolve() for number, _ in lines_with(promise, path)]
    assert not wrong


def setup_lists() -> tuple[set[str], set[str]]:
    """The STEMS and C_SOURCES of setup.py, read without running it."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    found = {target.id: set(ast.literal_eval(node.value)) for node in tree.body
             if isinstance(node, ast.Assign) for target in node.targets
             if isinstance(target, ast.Name) and target.id in {"STEMS", "C_SOURCES"}}
    return found["STEMS"], found["C_SOURCES"]


def test_one_stem_per_concept() -> None:
    """An extension, its stub, header and test have one name, and setup.py builds all of C."""
    stems, c_sources = setup_lists()
    assert stems == {path.stem for path in (PACKAGE / "_native").glob("*.pyx")}
    assert c_sources == {path.stem for path in (CORE / "src").glob("*.c")}
    wanted = [path for stem in sorted(stems) for path in (
        PACKAGE / "_native" / f"{stem}.pyi", CORE / "include" / "seglog" / f"{stem}.h",
        ROOT / "tests" / "native" / f"test_{stem}.py")]
    assert not [name_of(path) for path in wanted if not path.exists()]


def test_cython_states_its_errors_and_uses_no_old_preprocessor() -> None:
    wrong = []
    pixie = re.compile(r"^\s*(DEF|IF|ELIF|ELSE)\b(?!:?\s*$)|^\s*include\s+['\"]|^#\s*cython\s*:")
    # A C function that returns an object passes errors by NULL; every other one has to say.
    function = re.compile(r"^\s*cdef\s+(?!class\b)(?:inline\s+)?"
                          r"(?P<type>[\w.]+[\s*]+(?:const\s+)?)?\w+\(.*\)"
                          r"(?P<tail>[^)]*):\s*(#.*)?$")
    objects = {"object", "bytearray", "bytes", "str", "list", "dict", "tuple", "memoryview", "set"}
    paths = [path for path in sources("src") if path.suffix in {".pyx", ".pxd"}]
    objects |= {name for path in paths
                for name in re.findall(r"^cdef class (\w+)", text_of(path), re.MULTILINE)}
    for path in paths:
        # An argument list over several lines becomes one line.
        text = re.sub(r"\([^()]*\)", lambda match: " ".join(match[0].split()), text_of(path))
        for line in text.splitlines():
            if pixie.search(line):
                wrong.append(f"{name_of(path)}: {line.strip()}")
            match = function.match(line)
            if match and match["type"] and match["type"].strip() not in objects and (
                    not re.search(r"\b(noexcept|except)\b", match["tail"])):
                wrong.append(f"{name_of(path)}: {line.strip()}: neither noexcept nor except")
    assert not wrong, "\n".join(wrong)


def undocumented(path: Path, tree: ast.Module) -> Iterator[str]:
    """The public classes, functions and methods of a module that say nothing about themselves."""
    if not ast.get_docstring(tree):
        yield f"{name_of(path)}: module"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield f"{name_of(path)}:{node.lineno}: {node.name}"
            if isinstance(node, ast.ClassDef):
                yield from (f"{name_of(path)}:{member.lineno}: {node.name}.{member.name}"
                            for member in node.body if isinstance(member, ast.FunctionDef)
                            and not member.name.startswith("_") and not ast.get_docstring(member)
                            and not overrides(node, member))


def overrides(owner: ast.ClassDef, member: ast.FunctionDef) -> bool:
    """Setters, overloads and `@override`s are documented where their name was first said."""
    return any("overload" in ast.unparse(decorator) or "override" in ast.unparse(decorator)
               or ast.unparse(decorator).endswith(".setter") for decorator in member.decorator_list)


def test_public_names_are_documented() -> None:
    wrong = [line for path in sources("src") if path.suffix == ".py"
             for line in facts_of(path).undocumented]
    assert not wrong, "\n".join(wrong)


def test_the_front_door_documents_what_it_exports() -> None:
    import seglog

    assert "__version__" in seglog.__all__
    assert len(seglog.__all__) <= 40
    wrong = [name for name in seglog.__all__ if name != "__version__"
             and not (getattr(seglog, name).__doc__ or "").strip()]
    assert not wrong


def test_the_architecture_page_is_short_and_true() -> None:
    """It has every room of the package, and every module that it names exists."""
    page = (ROOT / "docs/architecture.md").read_text()
    assert len(page.splitlines()) <= 150
    rooms = {room for room in LAYERS if room not in {"", "__main__", "pyspark_seglog"}}
    assert not [room for room in rooms if not re.search(rf"\b{room}\b", page)]
    named = set(re.findall(rf"`((?:{'|'.join(sorted(rooms))})\.[a-z_]+)`", page))
    assert len(named) > 10
    assert not [name for name in named for room, module in [name.split(".")]
                if not list((PACKAGE / room).glob(f"{module}.py*"))]


def test_what_is_generated_from_the_headers_is_fresh() -> None:
    """capi*.pxd declares the headers of today, and status.pyi has the table's members."""
    command = [sys.executable, ROOT / "tools/make_capi.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"python tools/make_capi.py\n{done.stdout}{done.stderr}"


def trouble_of_a_skip(call: ast.Call) -> Iterator[str]:
    """What is wrong with a call of pytest.skip or pytest.mark.skipif, "" if nothing is; nothing for
    any other call."""
    called = ast.unparse(call.func)
    reasons = [one.value for one in call.keywords if one.arg in ("reason", "msg")]
    if called == "pytest.skip":
        reasons += call.args[:1]
    elif called != "pytest.mark.skipif":
        return
    is_silent = not reasons or (isinstance(reasons[0], ast.Constant)
                                and not str(reasons[0].value).strip())
    yield "a skip without a reason" if is_silent else ""


def test_every_skip_has_a_condition_and_a_reason() -> None:
    """`.ci/run` prints the reasons (-rs), so none is silent where everything is installed."""
    wrong, found = [], 0
    for path in sources("tests"):
        if path.suffix == ".py":
            found += len(facts_of(path).skips)
            wrong += [f"{name_of(path)}:{line}: {trouble}"
                      for line, trouble in facts_of(path).skips if trouble]
    assert found > 30
    assert not wrong, "\n".join(wrong)
    run = (ROOT / ".ci/run").read_text()
    tests = [line for line in run.splitlines() if re.search(r'make test|pytest"? -q', line)]
    assert len(tests) >= 3
    assert not [line for line in tests if "-rs" not in line]


def test_no_given_test_depends_on_the_speed_of_the_machine_or_on_chance() -> None:
    """tests/conftest.py says it for all; a list of a test's own replaces the list there."""
    assert settings.default is not None and settings.default.deadline is None
    assert {HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example,
            HealthCheck.filter_too_much} <= set(settings.default.suppress_health_check)
    own = re.compile(r"suppress_health_check=(\[[^\]]*\]|list\(HealthCheck\))")
    lists = [(path, found) for path in sources("tests") for found in own.findall(text_of(path))]
    assert len(lists) > 5 and not [name_of(path) for path, found in lists
                                   if "list(" not in found and path.name != "conftest.py"]


def test_every_header_is_declared_once_and_by_no_hand() -> None:
    """No extension declares C of its own."""
    headers = {path.stem for path in (CORE / "include/seglog").glob("*.h")} - {"statuses"}
    named = re.findall(r'^cdef extern from "seglog/(\w+)\.h"', "".join(
        text_of(path) for path in (PACKAGE / "_native").glob("*.p[yx]*")), re.M)
    assert sorted(named) == sorted(headers)
    assert not [name_of(path) for path in (PACKAGE / "_native").glob("*.p[yx]*")
                if 'from "seglog/' in text_of(path) and not path.name.startswith("capi")]


def test_every_stem_of_c_is_listed() -> None:
    page = (CORE / "README.md").read_text()
    headers = {path.stem for path in (CORE / "include/seglog").glob("*.h")}
    assert not [stem for stem in headers if f"`{stem}`" not in page]


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub forms them."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text_of(page), re.M)}


def test_pages_name_files_and_sections_that_exist() -> None:
    wrong, count = [], 0
    for page in pages():
        text = text_of(page)
        for name in set(re.findall(r"`((?:src|csrc|tests|docs|examples|tools)/[\w/.-]+)`", text)):
            count += 1
            if "NAME" not in name and not (ROOT / name).exists():
                wrong.append(f"{name_of(page)}: {name}")
        for link, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
            if "://" in link:
                continue
            target = page.parent / link if link else page
            if not target.exists() or anchor and anchor not in headings(target):
                wrong.append(f"{name_of(page)}: {link}#{anchor}")
    assert count > 50
    assert not wrong, "\n".join(wrong)


@functools.cache
def source_of(dotted: str) -> tuple[str, list[str]]:
    """The source of the module that begins a name such as seglog.log.unified_log.UnifiedLog (for a
    package, that of all its modules), and the other parts of the name."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        path = SRC.joinpath(*parts[:count])
        found = [*path.parent.glob(f"{path.name}.py*"), *path.glob("*.py*")]
        if found:
            return "".join(text_of(one) for one in found
                           if one.suffix in SOURCE_SUFFIXES), parts[count:]
    return "", parts


def test_pages_name_modules_and_names_that_exist() -> None:
    wrong, count = [], 0
    for page in pages():
        for name in set(re.findall(r"`(seglog(?:\.\w+)+)", text_of(page))):
            count += 1
            source, rest = source_of(name)
            if not source or rest and not re.search(rf"\b{rest[0]}\b", source):
                wrong.append(f"{name_of(page)}: {name}")
    assert count > 20
    assert not wrong, "\n".join(wrong)
