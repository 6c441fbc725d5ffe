"""Jobs that write to logs by way of fragments, a job of tests/faults, and what is found of them
after a crash: all records of each job that was published, none or all of the one that was not."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import seglog
from seglog.fragments import StreamBatch, check_target
from seglog.model import TopicPartition
from seglog.storage.paths import UNFINISHED_COMMIT
from tests.crash.promises import Acknowledgements, said_in
from tests.fragments.jobs import Truth, Written, add, contents, left_over, make_rows

PARTITIONS = 2


def rows_of(seed: int, number: int) -> list[Truth]:
    """What the tasks of a job write: a few partitions of old topics and new ones each."""
    source = random.Random(f"fragments {seed} {number}")
    return [{TopicPartition(topic, source.randrange(PARTITIONS)):
             make_rows(source, source.randint(1, 40))
             for topic in source.sample("tuv", source.randint(1, 2))}
            for _ in range(source.randint(1, 3))]


def write_fragments(root: str, seed: int, count: int) -> Callable[[], dict[str, Any]]:
    """Publishes `count` jobs, those again that a crash may have ended."""
    def work() -> dict[str, Any]:
        say = Acknowledgements(Path(root)).say
        for number in range(count):
            written = Written(Path(root) / "data", partitions=PARTITIONS,
                              segment_bytes=[1 << 30, 6000][seed % 2])
            for rows in rows_of(seed, number):
                written.task(rows)
            say("publishing", number=number)
            written.publish(StreamBatch("q", number))
            say("published", number=number)
        return {}
    return work


@dataclass
class FragmentPromises:
    """How many jobs are there, at least and at most."""

    least: int = 0
    most: int = 0

    def hear(self, text: bytes) -> None:
        """See Promises."""
        for said in said_in(text):
            if said["what"] == "publishing":
                self.most = max(self.most, said["number"] + 1)
            else:
                self.least = max(self.least, said["number"] + 1)


def check_fragments(root: Path, seed: int, promises: FragmentPromises, source: random.Random
                    ) -> None:
    """The next one that opens the directory finishes the commit."""
    data_dir = root / "data"
    if not data_dir.is_dir():
        assert not promises.least
        return
    kind = source.randrange(3)
    if kind == 0 and any(data_dir.glob("t-0")):
        with seglog.open(data_dir / "t-0"):
            pass
    elif kind == 1:
        with seglog.LogManager([data_dir]):
            pass
    check_target(str(data_dir))
    assert not (data_dir / UNFINISHED_COMMIT).exists()
    truths: list[Truth] = [{}]
    for number in range(promises.most):
        truth = truths[-1]
        for rows in rows_of(seed, number):
            truth = add(truth, rows, PARTITIONS)
        truths.append(truth)
    assert contents(data_dir) in truths[promises.least:promises.most + 1]
    # One whose contents the cut took is kept for a week: nobody can tell whether its job lives.
    assert [name for name in left_over(data_dir) if not (
        name.startswith(".seglog-job") and not any((data_dir / name).read_bytes()))] == []
