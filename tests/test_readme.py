"""README.md says what really happens; what runs Spark is in tests/spark."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from seglog.cli.main import main
from tests.support import readme

EXAMPLES = [example for example in readme.EXAMPLES if "spark" not in example]
PROGRAMS = [path for path in sorted((readme.ROOT / "examples").glob("*.py"))
            if "seglog.spark" not in path.read_text()]


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 2
    assert len(readme.COMMANDS) >= 4


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(n) for n in range(len(EXAMPLES))])
def test_example_prints_what_it_says(example: str, golden: Path, tmp_path: Path) -> None:
    for module in re.findall(r"^import (\w+)$", example, re.MULTILINE):
        pytest.importorskip(module)
    if readme.WRITTEN in example:
        shutil.copytree(golden / "real" / "unclean", tmp_path / "broker")
        example = example.replace(readme.WRITTEN, str(tmp_path / "broker"))
    readme.run_example(example.replace(readme.CREATED, str(tmp_path / "app")), golden)


@pytest.mark.parametrize(("command", "expected"), readme.COMMANDS,
                         ids=[command for command, _ in readme.COMMANDS])
def test_command_prints_what_it_says(command: str, expected: str, golden: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    main(shlex.split(readme.localize(command, golden))[1:])
    readme.compare_lines(capsys.readouterr().out.splitlines(),
                         readme.localize(expected, golden).splitlines())


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_example_program_runs(path: Path, tmp_path: Path) -> None:
    for module in re.findall(r"^(?:from|import) (prometheus_client)", path.read_text(), re.M):
        pytest.importorskip(module)
    for _ in range(2):  # the second time on what the first one left
        done = subprocess.run([sys.executable, path, tmp_path], capture_output=True, text=True,
                              timeout=600, check=True)
        assert done.stdout and not done.stderr


def test_the_pipeline_has_a_broker_without_the_packages_of_the_tests() -> None:
    subprocess.run([sys.executable, "-S", "-c", "import tests.kafka.harness"], cwd=readme.ROOT,
                   timeout=600, check=True)
