"""Fuzzes the C core under the sanitizers: a few seconds per target, longer when asked.

    SEGLOG_FUZZ_SECONDS=600 pytest tests/fuzz -k batch

clang's libFuzzer guides the search by coverage; without it driver.c mutates the seeds blindly. An
input that breaks a target is left in the test's directory, and its name is in the failure.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fuzz import seeds
from tests.support import native
from tests.support.effort import how_many, quick_each, quick_first

HERE = Path(__file__).parent
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in HERE.glob("fuzz_*.c"))
SECONDS = how_many("SEGLOG_FUZZ_SECONDS", 3, 1)
RANDOM_SEED = 20260101
INPUT_SIZE_MAX = 65536

LIBFUZZER = ("-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all")
NO_LIBFUZZER = "clang or its libFuzzer is missing (Debian: apt install clang libclang-rt-dev)"
HAS_LIBFUZZER = native.can_link("clang", *LIBFUZZER)
COMPILERS = native.sanitizing_compilers()

pytestmark = pytest.mark.skipif(
    not COMPILERS, reason=native.NO_SANITIZER)


@pytest.fixture(scope="session")
def guided_core() -> Path:
    return native.compile_core("clang", "-fsanitize=fuzzer-no-link,address,undefined",
                               *LIBFUZZER[1:])


@pytest.fixture(scope="session")
def blind_core() -> Path:
    return native.compile_core(COMPILERS[0], *native.SANITIZE)


def _run(command: list[str | Path], crash: Path) -> str:
    environment = {**os.environ, **native.RUN_ENVIRONMENT}
    environment["ASAN_OPTIONS"] += ":handle_abort=1"
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False, timeout=SECONDS + 1800, env=environment, errors="replace")
    output = done.stdout + done.stderr
    if done.returncode != 0:
        found = [path for path in crash.parent.iterdir() if path.name.startswith(crash.name)]
        pytest.fail(f"ended with {done.returncode}, input in {found}\n{output[-8000:]}")
    return output


@pytest.mark.skipif(not HAS_LIBFUZZER, reason=NO_LIBFUZZER)
@pytest.mark.parametrize("target", TARGETS)
def test_guided(target: str, golden: Path, guided_core: Path, tmp_path: Path) -> None:
    binary = native.compile_program("clang", [HERE / f"fuzz_{target}.c", guided_core],
                                    tmp_path / target, *LIBFUZZER)
    corpus = tmp_path / "corpus"
    assert seeds.write_corpus(target, golden, corpus) > 0
    output = _run([binary, f"-max_total_time={SECONDS}", f"-seed={RANDOM_SEED}", "-timeout=120",
                   f"-max_len={INPUT_SIZE_MAX}", "-rss_limit_mb=2048", "-print_final_stats=1",
                   f"-artifact_prefix={tmp_path / 'crash-'}", corpus], tmp_path / "crash-")
    assert "stat::number_of_executed_units" in output


@pytest.mark.parametrize("target", quick_first(TARGETS, 1) if HAS_LIBFUZZER
                         else quick_each(TARGETS, 3))
def test_blind(target: str, golden: Path, blind_core: Path, tmp_path: Path) -> None:
    if HAS_LIBFUZZER and SECONDS <= 3:
        seconds = 1  # the guided run is the better use of the time
    else:
        seconds = SECONDS
    binary = native.compile_program(
        COMPILERS[0], [HERE / f"fuzz_{target}.c", HERE / "driver.c", blind_core],
        tmp_path / target, *native.SANITIZE)
    corpus = tmp_path / "corpus"
    assert seeds.write_corpus(target, golden, corpus) > 0
    output = _run([binary, str(seconds), str(RANDOM_SEED), tmp_path / "crash", corpus],
                  tmp_path / "crash")
    assert "runs from" in output


@pytest.mark.parametrize("guided", [True, False], ids=["guided", "blind"])
def test_a_planted_fault_is_found(guided: bool, tmp_path: Path) -> None:
    """A fuzzer that cannot fail proves nothing."""
    if guided and not HAS_LIBFUZZER:
        pytest.skip(NO_LIBFUZZER)
    source = tmp_path / "fault.c"
    source.write_text('#include "fuzz.h"\n'
                      "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {\n"
                      "    volatile uint8_t byte = size > 2 && data[1] == 7 ? data[size] : 0;\n"
                      "    (void)byte;\n    return 0;\n}\n")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "seed").write_bytes(b"\0\0\0\0")
    binary, crash = tmp_path / "fault", tmp_path / "crash"
    if guided:
        native.compile_program("clang", [source], binary, f"-I{HERE}", *LIBFUZZER)
        command = [binary, "-max_total_time=300", f"-artifact_prefix={crash}", corpus]
    else:
        native.compile_program(COMPILERS[0], [source, HERE / "driver.c"], binary, f"-I{HERE}",
                               *native.SANITIZE)
        command = [binary, "300", str(RANDOM_SEED), crash, corpus]
    with pytest.raises(pytest.fail.Exception, match="heap-buffer-overflow"):
        _run(command, crash)
    assert [path for path in tmp_path.iterdir() if path.name.startswith("crash")]
