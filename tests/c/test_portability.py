"""The C tests on other processors, emulated: aarch64 with its CRC instructions, and s390x, whose
bytes are in the other order. `make portability` installs what they need (Debian, root)."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from tests.support import native

pytestmark = pytest.mark.judge

PROGRAMS = sorted(Path(__file__).parent.glob("test_*.c"))
#: Compiler and emulator of each processor, under Debian's names.
PROCESSORS = {name: (f"{name}-linux-gnu-gcc", f"qemu-{name}-static")
              for name in ("aarch64", "s390x")}
_STATIC = ("-static",)


def _missing(name: str) -> list[str]:
    return [tool for tool in PROCESSORS[name] if shutil.which(tool) is None]


@cache
def core_of(name: str) -> Path:
    """All of csrc as one object, compiled once for each processor."""
    return native.compile_core(PROCESSORS[name][0])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.parametrize("name", PROCESSORS)
def test_program(name: str, program: Path, tmp_path: Path) -> None:
    if missing := _missing(name):
        pytest.skip(f"{' and '.join(missing)} missing: make portability installs them")
    compiler, emulator = PROCESSORS[name]
    binary = native.compile_program(compiler, [program, core_of(name)], tmp_path / program.stem,
                                    *_STATIC)
    native.run_program(binary, tmp_path, emulator=emulator)


@pytest.mark.parametrize("name", PROCESSORS)
def test_harness_reports_faults(name: str, tmp_path: Path) -> None:
    """A harness that cannot fail proves nothing: the order of bytes is the processor's."""
    if missing := _missing(name):
        pytest.skip(f"{' and '.join(missing)} missing: make portability installs them")
    source = tmp_path / "order.c"
    source.write_text("int main(void) { unsigned n = 1; return *(unsigned char *)&n == 1; }\n")
    compiler, emulator = PROCESSORS[name]
    binary = native.compile_program(compiler, [source], tmp_path / "order", *_STATIC)
    if name == "s390x":
        native.run_program(binary, emulator=emulator)
    else:
        with pytest.raises(AssertionError, match="ended with 1"):
            native.run_program(binary, emulator=emulator)
