"""Plots and tabulates start-up time over the number of segments.

    python -m bench.scaling [--sizes 1000,10000] [--json FILE] [--svg FILE] [--show JSON]

Each size is a data directory of four partitions on an in-memory file system (root on Linux). Every
segment has two indexes and a producer snapshot, as after a clean shutdown. Kafka's LogManager runs
with the sizes that its descriptors allow. `--show` draws an earlier run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.conftest import cpu_name
from bench.data import tmpfs, write_segments
from bench.peers import kafka
from bench.startup import segments_of, start
from tests.kafka.harness import KAFKA_VERSION, KafkaUnavailable

HERE = Path(__file__).resolve().parent
SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
PARTITIONS = 4
OURS, CLOSING = "seglog, start-up", "seglog, shutdown"
KAFKAS = f"Kafka {KAFKA_VERSION}, start-up in a warm JVM"
#: Of the lines in the plot; a shutdown takes what a partition takes, however many segments it has.
COLOURS = {OURS: "#1f6feb", KAFKAS: "#bc4c00"}

Points = dict[int, float]  # seconds by number of segments


def measure(sizes: Sequence[int], with_kafka: bool = True) -> dict[str, Points]:
    """The seconds of the fastest of several rounds, by line and by number of segments."""
    lines: dict[str, Points] = {OURS: {}, CLOSING: {}}
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    for size in sizes:
        with tmpfs(inodes=8 * size + 10_000) as scratch:
            root = write_segments(scratch / "data", size // PARTITIONS, partitions=PARTITIONS,
                                  indexed=False, snapshots=True)
            rounds = [_round(root, size) for _ in range(max(5, min(30, 500_000 // size)))]
            lines[OURS][size], lines[CLOSING][size] = map(min, zip(*rounds, strict=True))
            if with_kafka and size < descriptors * 3 // 4:
                try:
                    found = kafka.loader("manager")(root)
                except KafkaUnavailable as error:
                    print(f"no real Kafka: {error}", file=sys.stderr)
                    with_kafka = False
                    continue
                assert found.result == size
                lines.setdefault(KAFKAS, {})[size] = found.seconds
        print(f"{size:,} segments: " + ", ".join(
            f"{name} {points[size] / size * 1e6:.2f} us each" for name, points in lines.items()
            if size in points), file=sys.stderr)
    return lines


def _round(root: Path, size: int) -> tuple[float, float]:
    """The seconds of a start-up and of the shutdown."""
    started, manager = start(root)
    assert segments_of(manager, root, PARTITIONS) == size // PARTITIONS * PARTITIONS
    before = time.perf_counter()
    manager.shutdown()
    return started, time.perf_counter() - before


def machine() -> str:
    """The machine and versions that the results depend on."""
    return (f"{cpu_name()}, {os.cpu_count()} CPUs, {platform.system()} {platform.release()}, "
            f"Python {platform.python_version()}, load average {os.getloadavg()[0]:.1f}")


# ---- the plot ------------------------------------------------------------------------------------

WIDTH, HEIGHT = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 80, 200, 50, 90


def svg(lines: dict[str, Points], line: str) -> str:
    """A plot of microseconds a segment over segments, with logarithmic axes."""
    each = {name: {size: seconds / size * 1e6 for size, seconds in points.items()}
            for name, points in lines.items() if name in COLOURS}
    sizes = sorted({size for points in each.values() for size in points})
    values = [value for points in each.values() for value in points.values()]
    across = _Axis(math.log10(sizes[0]), math.log10(sizes[-1]), LEFT, WIDTH - RIGHT)
    up = _Axis(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))),
               HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 28, "Start-up after a clean shutdown, warm cache, one thread", size=15),
        *_grid(across, up, sizes),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 48, "segments, in four partitions",
              anchor="middle"),
        f'<g transform="translate(22 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)">'
        + _text(0, 0, "microseconds a segment", anchor="middle") + "</g>",
        _text(LEFT, HEIGHT - 16, line, size=10, colour="#57606a")]
    for name, points in each.items():
        parts += _line(name, points, across, up)
    return "\n".join([*parts, "</svg>", ""])


class _Axis:
    """An axis with powers of ten from `low` to `high` on pixels from `start` to `end`."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, max(high, low + 1), start, end

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12,
          colour: str = "#1f2328") -> str:
    safe = text.replace("&", "&amp;").replace("<", "&lt;")
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
            f'fill="{colour}">{safe}</text>')


def _grid(across: _Axis, up: _Axis, sizes: Sequence[int]) -> list[str]:
    made = []
    for power in range(round(up.low), round(up.high)):
        for step in (1, 2, 5, 10) if power == round(up.high) - 1 else (1, 2, 5):
            value = step * 10.0 ** power
            y = up.at(value)
            made += [f'<path d="M{across.start} {y:.1f}H{across.end}" stroke="#d0d7de"/>',
                     _text(across.start - 8, y + 4, f"{value:g}", anchor="end")]
    for size in sizes:
        x = across.at(size)
        made += [f'<path d="M{x:.1f} {up.start}V{up.end}" stroke="#d0d7de"/>',
                 _text(x, up.start + 18, f"{size:,}", anchor="middle")]
    return made


def _line(name: str, points: Points, across: _Axis, up: _Axis) -> list[str]:
    """One line with dots, their values, and its name at the end."""
    colour, places = COLOURS[name], sorted(points.items())
    path = " L".join(f"{across.at(size):.1f} {up.at(value):.1f}" for size, value in places)
    made = [f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>']
    for size, value in places:
        x, y = across.at(size), up.at(value)
        made += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>',
                 _text(x, y - 8, f"{value:.3g}", anchor="middle", size=10, colour=colour)]
    last, value = places[-1]
    return [*made, _text(across.at(last) + 12, up.at(value) + 4, name, colour=colour)]


def table(lines: dict[str, Points]) -> str:
    """A Markdown table of microseconds a segment."""
    sizes = sorted({size for points in lines.values() for size in points})
    rows = [["segments", *(f"{name}, us each" for name in lines)], ["---"] * (len(lines) + 1)]
    rows += [[f"{size:,}", *(f"{points[size] / size * 1e6:.3g}" if size in points else "-"
                             for points in lines.values())] for size in sizes]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=lambda text: [int(one) for one in text.split(",")],
                        default=list(SIZES), help="segments, multiples of 4")
    parser.add_argument("--no-kafka", action="store_true", help="leave Kafka out")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "scaling.json")
    parser.add_argument("--svg", type=Path, default=HERE.parent / "docs" / "scaling.svg")
    parser.add_argument("--show", type=Path, metavar="JSON", help="draw an earlier run again")
    options = parser.parse_args(arguments)
    if options.show:
        run: dict[str, Any] = json.loads(options.show.read_text())
    else:
        line = machine()
        run = {"machine": line, "seconds": measure(options.sizes, not options.no_kafka)}
        options.json.parent.mkdir(exist_ok=True)
        options.json.write_text(json.dumps(run, indent=1))
    lines = {name: {int(size): seconds for size, seconds in points.items()}
            for name, points in run["seconds"].items()}
    options.svg.write_text(svg(lines, run["machine"]))
    print(f"{run['machine']}\n\n{table(lines)}\n\n{options.svg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
