"""`python -m tests.differential --seed N [--cases N]`: any cases, and each difference in full."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path

from tests.differential import recorder
from tests.differential.cases import plan
from tests.differential.judge import Judge, Loader
from tests.differential.managers import ManagerJudge
from tests.differential.ours import load_aloud
from tests.differential.predict import predict
from tests.support import golden, recorded

LOADERS: dict[str, tuple[Loader, bool]] = {"load": (load_aloud, False), "predict": (predict, True)}


def replay(path: Path) -> int:
    """Prints each recorded case that our side answers in another way."""
    with recorder.Recorder(golden.unpack()) as ours:
        return recorded.told(ours.replayed(recorded.read(path)[1]))


def retell(path: Path) -> int:
    """Records again what only we have, and nothing of what Kafka answered."""
    with recorder.Recorder(golden.unpack()) as ours:
        recorded.write(path, list(ours.retold(recorded.read(path)[1])))
    return 0


def judge_of(name: str) -> Judge | ManagerJudge:
    """The judge of a loader."""
    if name == "manager":
        return ManagerJudge(golden.unpack())
    loader, partial = LOADERS[name]
    return Judge(golden.unpack(), loader, partial=partial)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--loader", choices=[*sorted(LOADERS), "manager"],
                        default=sorted(LOADERS)[0],
                        help="manager: whole data directories, by LogManager")
    parser.add_argument("--most", type=int, default=20, help="differences to print (default 20)")
    parser.add_argument("--make", type=Path, metavar="DIR",
                        help="only make the first case in DIR, and print what was done")
    parser.add_argument("--show", action="store_true", help="print both answers")
    recorded.add_options(parser)
    args = parser.parse_args()
    if args.replay or args.retell:
        return replay(args.replay) if args.replay else retell(args.retell)
    if args.record:
        count = recorder.write(args.record, args.seed,
                               range(args.first, args.first + args.cases),
                               args.choose or args.cases)
        print(f"{count} cases recorded, {args.record.stat().st_size:,} bytes")
        return 0
    logging.getLogger("seglog").setLevel(logging.CRITICAL)
    started, count, wrong, failed = time.monotonic(), 0, 0, 0
    with judge_of(args.loader) as judge:
        if args.make and isinstance(judge, Judge):
            case = plan(judge.sources, args.seed, args.first)
            print(case, *case.build(judge.sources, args.make), sep="\n")
            return 0
        for verdict in judge.judge(args.seed, range(args.first, args.first + args.cases)):
            count += 1
            failed += "error" in verdict.kafka or any(
                "error" in state for state in verdict.kafka.values())
            if args.show:
                print(json.dumps({"kafka": verdict.kafka, "ours": verdict.ours}, indent=1))
            if verdict.wrong:
                wrong += 1
                if wrong <= args.most:
                    print(judge.minimise(verdict), flush=True)
    seconds = time.monotonic() - started
    print(f"seed {args.seed}, cases {args.first} to {args.first + args.cases - 1}: {count} loaded "
          f"by both in {seconds:.1f} s, {failed} of them refused by Kafka, {wrong} differ")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
