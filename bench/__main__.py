"""`python -m bench`: runs all benches and prints one table of ratios.

    python -m bench [--size smoke|default|full] [--only NAME ...] [--show JSON]

pytest-benchmark writes its JSON, with the rows of the table, to bench/results. The exit code
depends on correct results, never on speed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import harness

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
# Short measures run first, because the machine gets hot later.
ORDER = ("crc32c", "batch", "index", "records", "encode", "remote_metadata", "append", "read",
         "codecs", "clean", "load", "startup", "small_partitions", "recover", "dump", "spark",
         "objects", "tiered")


def bench_files() -> dict[str, Path]:
    """Every bench file by its name, in the order of the run."""
    found = {path.stem.removeprefix("bench_"): path for path in sorted(HERE.glob("bench_*.py"))}
    return {name: found[name] for name in sorted(found, key=lambda name: (
        ORDER.index(name) if name in ORDER else len(ORDER), name))}


def machine_line(info: dict[str, Any]) -> str:
    """CPU, kernel, Python and versions."""
    packages = ", ".join(f"{name} {version}" for name, version in info["packages"].items())
    return (f"{info['cpu_name']}, {info['cpus']} CPUs, {info['kernel']}, Python {info['python']}, "
            f"seglog {info['version']} (CRC-32C kernel {info['crc32c']}), {packages}; "
            f"size {info['size']}, load average {info['load_average'][0]:.1f}")


def number(value: float) -> str:
    """A number with three digits and a letter for thousands."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def rate(value: float, unit: str) -> str:
    """A rate a second, or a plain number for a unit like `B each`."""
    return f"{number(value)} {unit}" if " " in unit else f"{number(value)} {unit}/s"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """One line of the table."""
    goal = ""
    if row["goal"] is not None:
        goal = f"{'<=' if row['at_most'] else '>='} {row['goal']:g}"
    met = {None: "", True: "yes", False: "NO"}[row["met"]]
    best = "" if row["best"] is None else f"{row['best']:.2f}"
    return (row["measure"], rate(row["ours"], row["unit"]),
            f"{row['other']}: {rate(row['other_rate'], row['unit'])}", f"{row['ratio']:.2f}", best,
            goal, met)


def table(rows: Iterable[dict[str, Any]]) -> str:
    """All rows as an aligned Markdown table."""
    head = ("measure", "ours", "floor or peer", "ratio", "best", "goal", "met?")
    lines = [head, *map(cells, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join("| " + " | ".join(
        cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in lines)


def report(path: Path) -> str:
    """The table of one result file, with its machine and the skipped benches."""
    result = json.loads(path.read_text())
    rows = [row for one in result["benchmarks"] for row in one["extra_info"].get("rows", ())]
    lines = [machine_line(result["machine_info"]["seglog"]), "", table(rows)]
    lines += ["", *(f"left out: {name}: {why}" for name, why in result["skipped"].items())]
    judged = [row["met"] for row in rows if row["met"] is not None]
    return "\n".join([*lines, f"{sum(judged)} of {len(judged)} goals met"])


def run(files: Sequence[Path], target: Path) -> int:
    """Runs bench files in this process; returns pytest's exit code."""
    return int(pytest.main([
        *map(str, files), "-p", "no:cacheprovider", "-q", "-rN", "--benchmark-quiet",
        "--benchmark-disable-gc", "--disable-warnings", "-o", "filterwarnings=default",
        f"--rootdir={HERE.parent}", f"--benchmark-json={target}"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    files = bench_files()
    parser = argparse.ArgumentParser(prog="python -m bench", description="seglog's benchmarks")
    parser.add_argument("--size", choices=harness.SIZES, default=harness.size(),
                        help="how much data (default: %(default)s, or SEGLOG_BENCH_SIZE)")
    parser.add_argument("--only", action="append", choices=list(files), metavar="NAME",
                        help=f"one of {', '.join(files)}; may be repeated")
    parser.add_argument("--show", type=Path, metavar="JSON", help="print an earlier result again")
    options = parser.parse_args(arguments)
    if options.show:
        print(report(options.show))
        return 0
    os.environ["SEGLOG_BENCH_SIZE"] = options.size
    RESULTS.mkdir(exist_ok=True)
    target = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-{options.size}.json"
    code = run([path for name, path in files.items()
                if not options.only or name in options.only], target)
    if target.exists() and target.stat().st_size:
        print(f"\n{report(target)}\n{target}")
    return code


if __name__ == "__main__":
    sys.exit(main())
