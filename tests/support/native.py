"""Builds csrc and single C programs with sanitizers, for the tests that run C alone."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.golden import cache_dir
from tests.support.locks import locked

ROOT = Path(__file__).parents[2]
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all",
            "-fno-omit-frame-pointer", "-ftrivial-auto-var-init=pattern")
NO_SANITIZER = "no compiler has the sanitizers' run time: install gcc and libasan, or clang"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion",
            "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wcast-qual", "-Wundef", "-Wvla")

# A leak is a failure too. Allocations past the limit return NULL instead of ending the program,
# as malloc does, so that hostile sizes reach the SLG_NO_MEMORY paths.
RUN_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1:abort_on_error=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}


def _run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False)


@cache
def can_link(compiler: str, *flags: str) -> bool:
    """Whether `compiler` is there and builds a program with `flags`: it has their run time."""
    if shutil.which(compiler) is None:
        return False
    program = "int main(void){return 0;}"
    if any("fuzzer" in flag for flag in flags):
        program = ("#include <stddef.h>\n#include <stdint.h>\n"
                   "int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)"
                   "{(void)d; (void)n; return 0;}")
    done = subprocess.run([compiler, "-x", "c", "-", "-o", os.devnull, *flags], input=program,
                          capture_output=True, text=True, check=False)
    return done.returncode == 0


def sanitizing_compilers() -> list[str]:
    """Those of gcc and clang that have AddressSanitizer and UndefinedBehaviorSanitizer."""
    return [compiler for compiler in ("gcc", "clang") if can_link(compiler, *SANITIZE)]


def compile_program(compiler: str, sources: Sequence[Path], program: Path, *flags: str) -> Path:
    """Compiles and links; a diagnostic of the compiler is part of the error."""
    werror = ("-Werror",) if os.environ.get("SEGLOG_WERROR", "0") not in ("", "0") else ()
    done = _run([compiler, "-std=c11", "-g", "-O1", *WARNINGS, *werror, *flags,
                 f"-I{ROOT / 'csrc/include'}", f"-I{ROOT / 'csrc/src'}", *sources, "-o", program])
    assert done.returncode == 0, f"{compiler} failed:\n{done.stderr}"
    return program


def compile_core(compiler: str, *flags: str) -> Path:
    """All of csrc as one relocatable file, so that each program only links it.

    The cache of the tests keeps it until a source, the compiler or a flag changes, for all test
    processes and all runs.
    """
    how = "\n".join([compiler, *flags, *WARNINGS, os.environ.get("SEGLOG_WERROR", "")])
    digest = hashlib.sha256(_run([compiler, "--version"]).stdout.encode())
    for path in sorted((ROOT / "csrc").rglob("*.[ch]")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    cache = cache_dir() / "core"
    kind = hashlib.sha256(how.encode()).hexdigest()[:16]
    whole = cache / f"{kind}-{digest.hexdigest()[:16]}.o"
    with locked(cache):
        if not whole.exists():
            for old in cache.glob(f"{kind}-*.o"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=cache) as fresh:
                os.rename(_compiled_core(compiler, Path(fresh), *flags), whole)
    return whole


def compile_against(core: Path, compiler: str, source: Path, program: Path, *flags: str) -> Path:
    """A program of tests/c and the core of `compile_core`; kept as the core is, until one of them
    changes."""
    digest = hashlib.sha256(core.name.encode())
    for path in [source, *sorted(source.parent.glob("*.h"))]:
        digest.update(path.read_bytes())
    kept = core.with_name(f"{source.stem}-{compiler}-{digest.hexdigest()[:16]}")
    with locked(core.parent):
        if not kept.exists():
            for old in core.parent.glob(f"{source.stem}-{compiler}-*"):
                old.unlink()
            with tempfile.TemporaryDirectory(dir=core.parent) as fresh:
                os.rename(compile_program(compiler, [source, core], Path(fresh, "program"),
                                          *flags), kept)
    return Path(shutil.copy(kept, program))


def _compiled_core(compiler: str, target: Path, *flags: str) -> Path:
    objects = []
    for source in sorted((ROOT / "csrc/src").glob("*.c")):
        objects.append(target / f"{source.stem}.o")
        compile_program(compiler, [source], objects[-1], "-c", *flags)
    whole = target / "core.o"
    done = _run([compiler, "-r", "-nostdlib", *objects, "-o", whole])
    assert done.returncode == 0, f"{compiler} -r failed:\n{done.stderr}"
    return whole


def run_program(program: Path, *arguments: str | Path, timeout: float = 1800,
                emulator: str | None = None) -> str:
    """Runs to the end, beside its file, and returns what it printed; a report of a sanitizer fails
    the test.

    `emulator` runs the program where it was compiled for another processor.
    """
    command = [emulator] if emulator is not None else []
    done = subprocess.run([*command, str(program), *map(str, arguments)], capture_output=True,
                          text=True, check=False, timeout=timeout, cwd=program.parent,
                          env={**os.environ, **RUN_ENVIRONMENT})
    assert done.returncode == 0, (
        f"{program.name} ended with {done.returncode}\n{done.stdout[-2000:]}\n"
        f"{done.stderr[-8000:]}")
    return done.stdout
