"""The C core alone, under AddressSanitizer and UndefinedBehaviorSanitizer: one program per stem."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.support import native

PROGRAMS = sorted(Path(__file__).parent.glob("test_*.c"))
COMPILERS = native.sanitizing_compilers()


@cache
def core_of(compiler: str) -> Path:
    """All of csrc as one object, compiled once per compiler."""
    return native.compile_core(compiler, *native.SANITIZE)


@pytest.mark.skipif(not COMPILERS, reason=native.NO_SANITIZER)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("compiler", COMPILERS)
def test_program(compiler: str, program: Path, tmp_path: Path) -> None:
    binary = native.compile_against(core_of(compiler), compiler, program,
                                    tmp_path / program.stem, *native.SANITIZE)
    native.run_program(binary, tmp_path)


@pytest.mark.skipif(not COMPILERS, reason=native.NO_SANITIZER)
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("fault", ["heap", "overflow"])
def test_harness_reports_faults(compiler: str, fault: str, tmp_path: Path) -> None:
    """A harness that cannot fail proves nothing."""
    source = tmp_path / "fault.c"
    source.write_text({
        "heap": "#include <stdlib.h>\nint main(void) { volatile char *p = malloc(4);\n"
                "volatile int at = 4; return p != NULL && p[at] == 1; }\n",
        "overflow": "int main(void) { volatile int n = 0x7fffffff; n = n + 1; return 0; }\n",
    }[fault])
    binary = native.compile_program(compiler, [source], tmp_path / "fault", *native.SANITIZE)
    with pytest.raises(AssertionError, match="Sanitizer|runtime error"):
        native.run_program(binary)
