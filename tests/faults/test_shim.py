"""The layer of faults itself: no call of the interpreter or of the C core passes beside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import seglog
from tests.faults.box import CHANGES, DENIED, IO, QUESTIONS, Box, read_trace
from tests.faults.directories import Damaged

# What a symbol would be called that opens, reads, writes, renames, ... by name or descriptor.
FILES = re.compile(r"(f?open|creat|read|write|sync|trunc|alloc|rename|link|unlink|remove|stat"
                   r"|access|utim|sendfile|copy_file|splice|mknod|mkstemp)")
# Those that only look so, or reach a file through one that is known: fopen's are of the C library's
# own calls, which nothing here uses.
HARMLESS = re.compile(r"(^|_)(m|c|re)alloc|^Py|^_Py|pthread|^dlopen|readlink|statvfs|posix_memalign"
                      r"|sysmalloc|aligned_alloc|mallopt|readdir|opendir|^sem_|unw")


def test_every_file_call_of_the_core_is_known() -> None:
    """What the extensions import of libc, and the shim does not define, are no file calls."""
    if shutil.which("nm") is None:
        pytest.skip("nm is missing: install binutils")
    defined = set(re.findall(r"^EXPORT .*?\**(\w+)\(", (Path(__file__).parent / "shim.c")
                             .read_text(), re.MULTILINE))
    defined |= set(re.findall(r"^ASK\((\w+)", (Path(__file__).parent / "shim.c").read_text(),
                              re.MULTILINE))
    native = Path(seglog.__file__).parent / "_native"
    needed: set[str] = set()
    for library in native.glob("*.so"):
        out = subprocess.run(["nm", "-D", "--undefined-only", str(library)], capture_output=True,
                             text=True, check=True).stdout
        needed |= {line.split()[-1].split("@")[0] for line in out.splitlines()}
    calls = {name for name in needed if FILES.search(name) and not HARMLESS.search(name)}
    assert {"pread64", "fsync", "openat64"} <= calls, "the C core was looked at"
    assert calls <= defined, f"add to shim.c: {calls - defined}"


def test_what_a_load_does_is_traced(box: Box, damaged: dict[str, Damaged], tmp_path: Path) -> None:
    """Played again on a copy, the trace of a load makes the directory that the load left."""
    root, again = tmp_path / "data", tmp_path / "again"
    case = damaged["048"]
    case.make(root)
    shutil.copytree(root, again)
    box.run("load", under=root, faults={"trace": str(tmp_path / "trace")}, root=str(root),
            config=case.config)
    calls = read_trace(tmp_path / "trace")
    assert {"create", "write", "sync", "truncate", "rename", "unlink"} >= {c.kind for c in calls}

    def moved(path: str) -> Path:
        return again / os.path.relpath(path, root)

    for call in calls:
        if call.kind == "create":
            mode = "wb" if call.other else "ab"
            moved(call.path).open(mode).close()
        elif call.kind == "write":
            with moved(call.path).open("r+b") as file:
                file.seek(call.offset)
                file.write(call.data)
        elif call.kind == "truncate":
            os.truncate(moved(call.path), call.length)
        elif call.kind == "rename":
            moved(call.path).rename(moved(call.other))
        elif call.kind == "unlink":
            moved(call.path).unlink()
    left = {str(path.relative_to(root)): path.read_bytes() for path in root.glob("**/*")
            if path.is_file()}
    assert left == {str(path.relative_to(again)): path.read_bytes()
                    for path in again.glob("**/*") if path.is_file()}


@pytest.mark.parametrize("calls", [*CHANGES.split(","), *QUESTIONS.split(",")])
def test_every_class_of_calls_is_met_and_fails(box: Box, damaged: dict[str, Damaged],
                                               tmp_path: Path, calls: str) -> None:
    case, root = damaged["5-offsets_overflow_often"], tmp_path / "data"
    case.make(root)
    counted = box.run("load", under=root, faults={"calls": calls}, root=str(root),
                      config=case.config)
    assert counted["calls"] > 0
    shutil.rmtree(root)
    case.make(root)
    for number in (IO, DENIED):
        answer = box.run("load", under=root / "built-1-0", root=str(root), config=case.config,
                         faults={"calls": calls, "at": 1, "action": number, "sticky": 1})
        assert (answer["error"], answer["errno"]) == ("KafkaStorageError", number)
