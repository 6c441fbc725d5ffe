"""`python -m tests.sequences --seed N [--cases N]`: any sequences, each difference in full."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.sequences import recorder
from tests.sequences.generator import Sequence, generate
from tests.sequences.judge import Judge, remember
from tests.sequences.settings import (
    CLEANED_THEMES, CRASHED_THEMES, REMOTE_THEMES, SPOILED_THEMES, THEMES, TIERED_THEMES, Theme,
)
from tests.support import recorded


def record(args: argparse.Namespace) -> int:
    """Writes a recording of cases that Kafka answers the same."""
    numbers = range(args.first, args.first + args.cases)
    kept = recorder.choose(args.seed, numbers, args.clean, args.choose or args.cases)
    with Judge() as judge:
        lines = list(recorder.record(judge, args.seed, kept, args.clean))
    lines = recorded.steady("tests.sequences", lines, args.record)
    recorded.write(args.record, lines)
    print(f"{len(lines)} sequences recorded, {args.record.stat().st_size:,} bytes")
    return 0


def replay(path: Path) -> int:
    """Prints each recorded sequence that our side answers in another way."""
    return recorded.told(recorder.replayed(recorded.read(path)[1]))


def retell(path: Path) -> int:
    """Records again what only we say, and nothing of what Kafka answered."""
    recorded.write(path, list(recorder.retold(recorded.read(path)[1])))
    return 0


def themes_of(args: argparse.Namespace) -> tuple[Theme, ...]:
    """The themes that the options name."""
    return (CLEANED_THEMES if args.clean else TIERED_THEMES if args.tiered
            else REMOTE_THEMES if args.remote else SPOILED_THEMES if args.spoiled
            else CRASHED_THEMES if args.crashed else THEMES)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sequences", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=500, help="how many (default 500)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--file", type=Path, help="sequences to run instead, a line each")
    parser.add_argument("--print", action="store_true", help="only print the sequences")
    parser.add_argument("--whole", action="store_true", help="do not minimise what differs")
    parser.add_argument("--most", type=int, default=20, help="differences to print (default 20)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write each difference there")
    parser.add_argument("--clean", action="store_true", help="sequences for the log cleaner")
    parser.add_argument("--tiered", action="store_true", help="sequences of tiered logs")
    parser.add_argument("--remote", action="store_true",
                        help="sequences of a RemoteLogManager's tasks and reads")
    parser.add_argument("--crashed", action="store_true", help="any of these, with crashes")
    parser.add_argument("--spoiled", action="store_true",
                        help="rounds with any buffers, and over damaged logs")
    recorded.add_options(parser)
    args = parser.parse_args()
    if args.record or args.replay:
        return record(args) if args.record else replay(args.replay)
    if args.retell:
        return retell(args.retell)
    sequences: Iterable[Sequence] = generate(
        args.seed, range(args.first, args.first + args.cases), themes_of(args))
    if args.file:
        sequences = map(json.loads, args.file.read_text().splitlines())
    if args.print:
        for sequence in sequences:
            print(json.dumps(sequence))
        return 0
    started, count, wrong, without, kinds = time.monotonic(), 0, 0, 0, set()
    with Judge() as judge:
        for verdict in judge.judge(sequences):
            count += 1
            without += not verdict.counts
            if not verdict.wrong:
                continue
            wrong += 1
            if verdict.signature not in kinds and len(kinds) < args.most:
                kinds.add(verdict.signature)
                shown = verdict if args.whole else judge.minimise(verdict)
                print(shown, flush=True)
                if args.keep:
                    remember(shown, args.keep)
    print(f"{count} sequences in {time.monotonic() - started:.1f} s: {without} that Kafka's side "
          f"did not survive, {wrong} differ in {len(kinds)} ways")
    return 1 if wrong or count == without else 0


if __name__ == "__main__":
    sys.exit(main())
