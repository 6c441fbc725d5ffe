"""The examples of README.md: what they are, and running them on the golden data."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
# The directories that README.md speaks of, and the golden ones that they are.
DIRECTORIES = {"/var/lib/kafka/data": "real/clean", "/backup/kafka": "damaged/000-log_truncated"}
# What an example writes to: a copy of the directory that a killed broker left.
WRITTEN = "/data/broker"
# What an example creates.
CREATED = "/data/app"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^\$ (seglog .*)\n((?:(?!\$ |```).*\n)*)", README, re.MULTILINE)


def localize(text: str, golden: Path) -> str:
    """The text with the golden directories in place of README's."""
    for name, folder in DIRECTORIES.items():
        text = text.replace(name, str(golden / folder))
    return text


def run_example(example: str, golden: Path) -> None:
    """Runs Python and compares what each `print` gave with the comment behind it."""
    expected = re.findall(r"^\s*print\(.*\)\s+# (.*)$", example, re.MULTILINE)
    assert len(expected) == len(re.findall(r"^\s*print\(", example, re.MULTILINE)) > 0
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(localize(example, golden), {})
    assert printed.getvalue().splitlines() == expected


def compare_lines(printed: list[str], wanted: list[str]) -> None:
    """Compares line by line; `...` ends a truncated line, or stands for all further lines."""
    if wanted and wanted[-1] == "...":
        wanted = wanted[:-1]
        assert len(printed) > len(wanted)
        printed = printed[:len(wanted)]
    assert len(printed) == len(wanted)
    for line, pattern in zip(printed, wanted, strict=True):
        assert line == pattern or (
            pattern.endswith(" ...") and line.startswith(pattern.removesuffix("...")))
