"""A second process that reads the directories of a world while its threads change them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Self

import seglog
from seglog._native.columns import RecordColumns
from seglog.errors import (
    CorruptDataError, InconsistentTopicIdError, KafkaStorageError, OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from seglog.model import MAX_TIMESTAMP
from seglog.storage.isolation import ISOLATIONS
from seglog.storage.partition_log import PartitionLog
from tests.stress.operations import Subject
from tests.stress.truth import ABORTED, Value

__all__ = ["ReadingProcess"]

_COLUMNS = ["offset", "value"]
_ANSWER_SECONDS = 60.0
_ROOT = Path(__file__).parents[2]


class ReadingProcess:
    """The process, from the side of the worlds: it reads for each from `begin` to `end`. It ends
    with `close`, and with this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=_ROOT, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._subjects: dict[str, Subject] = {}
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._complaint = ""
        self._threads = [threading.Thread(target=one, daemon=True)
                         for one in (self._take_lines, self._take_complaint)]
        for thread in self._threads:
            thread.start()
        self._expect("ready")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        for thread in self._threads:
            thread.join(_ANSWER_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _take_lines(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            topic, *rest = line.split()
            if rest:
                self._subjects[topic].truth.saw(int(rest[0]), Value.decode(rest[1].encode()))
            else:
                self._answers.put(topic)
        self._answers.put("ended")

    def _take_complaint(self) -> None:
        assert self._process.stderr is not None
        self._complaint = self._process.stderr.read()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and says why
            print(line, file=self._process.stdin, flush=True)

    def _expect(self, answer: str) -> None:
        try:
            found = self._answers.get(timeout=_ANSWER_SECONDS)
        except Empty:
            found = "nothing"
        if found != answer:
            self._answers.put("ended")  # for whoever asks again
            self._process.kill()
            self._threads[1].join(_ANSWER_SECONDS)
            raise AssertionError(f"the reading process said {found} for {answer}:\n"
                                 f"{self._complaint}")

    def begin(self, seed: str, roots: Iterable[Path], subjects: Mapping[str, Subject]) -> None:
        """Reads the directories of these subjects, by topic."""
        self._subjects = dict(subjects)
        self._say(json.dumps({"seed": seed, "roots": list(map(str, roots)), "topics": {
            topic: {"comes_again": it.comes_again, "loses": it.loses}
            for topic, it in subjects.items()}}))

    def end(self) -> None:
        """Returns when it reads no more. AssertionError for what it found wrong."""
        self._say("end")
        self._expect("done")


class _Reader:
    """What the process does."""

    def __init__(self, task: dict[str, Any], ended: threading.Event) -> None:
        self.random, self.ended = random.Random(task["seed"]), ended
        self._roots, self._topics = list(map(Path, task["roots"])), task["topics"]

    def run(self) -> None:
        """Draws what to read until it is told to end."""
        while not self.ended.is_set():
            topic = self.random.choice(list(self._topics))
            path = self.random.choice(self._roots) / f"{topic}-0"
            if not path.exists() and self.random.random() < .9:
                continue
            job = self.random.choice([self._read, self._look, self._follow, self._load])
            try:
                with self._documented(topic):
                    job(topic, path)
            except BaseException as error:
                error.add_note(f"{job.__name__} of {path}")
                raise

    @contextmanager
    def _documented(self, topic: str) -> Iterator[None]:
        """What a reader may meet: files that went while they were looked at, and in a log that
        loses records other ones in their place."""
        facts = self._topics[topic]
        try:
            yield
        except (KafkaStorageError, OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            pass
        except CorruptDataError:
            if not facts["loses"]:
                raise
        except InconsistentTopicIdError:
            if not facts["comes_again"]:
                raise

    def _read(self, topic: str, path: Path) -> None:
        isolation = self.random.choice(ISOLATIONS)
        with PartitionLog.open(path, max_open_segments=self.random.choice([None, 1])) as log:
            start = self.random.choice([None, max(log.log_end_offset - 100, log.log_start_offset)])
            self._check(topic, isolation, log.to_arrow(
                start, columns=_COLUMNS, isolation=isolation,
                threads=self.random.choice([0, 2])))

    def _look(self, topic: str, path: Path) -> None:
        with PartitionLog.open(path) as log:
            for _ in range(3):
                at = last = log.log_start_offset
                for header in log.batches():
                    assert header.base_offset >= last or header.last_offset >= at, header
                    last = header.last_offset + 1
                while at < log.log_end_offset:
                    found = log.fetch(at, 3000, self.random.choice(ISOLATIONS))
                    if found.next_offset == at:
                        break
                    at = found.next_offset
                for wanted in (MAX_TIMESTAMP, 0):
                    log.offset_for_timestamp(wanted)
                assert log.last_stable_offset <= log.log_end_offset
                repr((log.segments.size, log.open_transactions, log.leader_epochs, log.topic_id))
                log.refresh()

    def _follow(self, topic: str, path: Path) -> None:
        isolation = self.random.choice(ISOLATIONS)
        with PartitionLog.open(path) as log:
            start = self.random.choice([None, log.log_start_offset])
            with log.follow(start, columns=_COLUMNS, isolation=isolation, timeout=.1) as follower:
                self._check(topic, isolation, islice(follower, 50))

    def _load(self, topic: str, path: Path) -> None:
        isolation = self.random.choice(ISOLATIONS)
        with seglog.open_data_dir(
                path.parent, level=self.random.choice(["kafka", "full", "verify"]),
                num_segment_loading_threads=self.random.choice([1, 2])) as data:
            repr((data.report.counts, data.topics))
            self._check(topic, isolation, data.log(topic, 0).to_arrow(
                columns=_COLUMNS, isolation=isolation))
            self._check(topic, isolation, data.to_arrow([topic], _COLUMNS, isolation=isolation))

    def _check(self, topic: str, isolation: str, batches: Iterable[RecordColumns]) -> None:
        """Offsets ascend, and no value is an aborted one. Prints some for the world to judge."""
        last, is_told = -1, self.random.random() < .3
        for batch in batches:
            lists = batch.to_pylists()
            for offset, data in zip(lists["offset"], lists["value"], strict=True):
                value = Value.decode(data)
                assert offset > last, f"{offset} after {last}"
                assert isolation != "read_committed" or value.kind != ABORTED, (offset, value)
                last = offset
                if is_told:
                    print(topic, offset, value.encode().decode())
            if self.ended.is_set():
                break


def _main() -> None:
    tasks: SimpleQueue[str] = SimpleQueue()
    ended = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            if line == "end\n":
                ended.set()
            else:
                ended.clear()
                tasks.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    try:
        print("ready", flush=True)
        while True:
            _Reader(json.loads(tasks.get()), ended).run()
            print("done", flush=True)
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)  # the other thread holds the standard input


if __name__ == "__main__":
    _main()
