"""A round in several threads leaves, counts and raises what it does in one."""

from __future__ import annotations

import random
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seglog._native.clean_keys import BatchKeys
from seglog.cleaner import Cleaner, LogToClean, OffsetMap
from seglog.cleaner import cleaner as cleaner_module
from seglog.cleaner.ahead import in_order
from seglog.errors import IllegalArgumentError, LogCleaningAbortedError
from seglog.storage import codecs
from tests.cleaner.support import (
    NOW, SLOT, append, end_transaction, leftovers, opened, records, roll,
)
from tests.cleaner.test_fast_path import files, fill, rounds
from tests.oracle.cleaning import last_values

THREADS = [2, 3, 8]


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of the offset map is two chunks of 4 KiB."""
    monkeypatch.setattr(cleaner_module, "_BYTES_OF_THREAD", 8192)


@pytest.mark.parametrize("slots", [5000, 30], ids=["all keys", "a small map"])
@pytest.mark.parametrize("codec", codecs.CODEC_NAMES)
def test_the_number_of_threads_changes_nothing(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str, slots: int) -> None:
    source = random.Random(f"threads {codec} {slots}")
    path = tmp_path / "1" / "t-0"
    log = opened(path, internal_segment_bytes=30_000)
    fill(log, source, codec)
    log.close()
    for count in THREADS:
        shutil.copytree(path, tmp_path / str(count) / "t-0")
    seen: list[object] = []
    real = cleaner_module._Ahead.clean

    def clean(self: Any, group: Any) -> Any:
        seen.append(group)
        return real(self, group)

    monkeypatch.setattr(cleaner_module._Ahead, "clean", clean)
    wanted = rounds(path, slots, internal_segment_bytes=30_000)
    assert not seen
    for count in THREADS:
        assert rounds(tmp_path / str(count) / "t-0", slots, count,
                      internal_segment_bytes=30_000) == wanted, count
    assert seen or slots < 100, "groups were cleaned ahead"


def test_a_transaction_over_many_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those in it are cleaned in their turn, those after it again by all threads."""
    log = opened(tmp_path / "t-0", internal_segment_bytes=500)
    for number in range(30):
        if number == 1:
            append(log, [(b"in it", b"")], producer=11, sequence=0, transactional=True)
        if number == 12:
            end_transaction(log, 11, commit=True)
        append(log, [(b"%d" % number, bytes(300))])
    roll(log)
    ahead: list[int] = []
    real = cleaner_module._Ahead.clean

    def clean(self: Any, group: Any) -> Any:
        ahead.append(group[0])
        return real(self, group)

    monkeypatch.setattr(cleaner_module._Ahead, "clean", clean)
    Cleaner(offset_map=OffsetMap(1 << 16), threads=2).clean(LogToClean.of(log))
    assert len(log.segments) > 20 and max(ahead) == log.segments.base_offsets[-2]


def test_keys_are_hashed_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as there is room for; the rest, and unusual batches, are read in their turn."""
    calls: list[int] = []

    path = tmp_path / "1" / "t-0"
    log = opened(path)
    for number in range(30):
        rows = [(b"%d" % (at * 7919 % 50_000), b"") for at in range(number * 2000,
                                                                    number * 2000 + 2000)]
        append(log, rows, codec=number % 5)
    roll(log)
    log.close()
    shutil.copytree(path, tmp_path / "2" / "t-0")
    real = cleaner_module.in_order

    def counted(items: Any, threads: int, count: int, prepare: Any, alone: Any, *stop: Any) -> Any:
        for item, result in real(items, threads, count, prepare, alone, *stop):
            calls.append(isinstance(result, BatchKeys))
            yield item, result

    monkeypatch.setattr(cleaner_module, "in_order", counted)
    wanted = rounds(path, 60_000)
    assert not any(calls)
    assert rounds(tmp_path / "2" / "t-0", 60_000, 2) == wanted
    assert any(calls)


@pytest.mark.parametrize("name", ["compacted-0", "compacted-txn-0"])
def test_golden_topics(golden: Path, tmp_path: Path, name: str) -> None:
    """What a broker wrote, all of it dirty."""
    found = []
    for count in (1, *THREADS):
        path = tmp_path / str(count) / "t-0"
        shutil.copytree(golden / "real" / "clean" / name, path)
        (path / "partition.metadata").unlink(missing_ok=True)
        found.append(rounds(path, 5000, count, internal_segment_bytes=20_000))
    assert found[0][1][0][5] > 0
    assert all(one == found[0] for one in found)


# ---- drawn logs ---------------------------------------------------------------------------------

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"key" * 15])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=60)), min_size=1, max_size=12)
STEPS = st.one_of(
    st.tuples(st.just("append"), ROWS, st.sampled_from([0, 0, 1, 2, 3, 4]),
              st.sampled_from([-1, 1, 11, 12])),
    st.tuples(st.just("end"), st.sampled_from([11, 12]), st.booleans()))


def write(path: Path, steps: list[tuple[Any, ...]]) -> None:
    log = opened(path, internal_segment_bytes=1200)
    sequences: dict[int, int] = {}
    busy: set[int] = set()
    for step in steps:
        if step[0] == "append":
            _, rows, codec, producer = step
            sequence = sequences.get(producer, 0)
            append(log, rows, codec=codec, producer=producer, transactional=producer > 10,
                   sequence=sequence if producer >= 0 else -1)
            sequences[producer] = sequence + len(rows)
            busy |= {producer} if producer > 10 else set()
        elif step[1] in busy:
            end_transaction(log, step[1], commit=step[2])
            busy.discard(step[1])
    for producer in sorted(busy):
        end_transaction(log, producer, commit=True)
    roll(log)
    log.close()


def outcome(path: Path, slots: int, threads: int) -> object:
    """What two rounds did, and what they left."""
    log = opened(path, internal_segment_bytes=1200)
    log.update_high_watermark(log.log_end_offset)
    found: list[object] = []
    end = 0
    try:
        for now in (NOW, NOW + 60_000):
            cleaner = Cleaner(offset_map=OffsetMap(slots * SLOT), io_buffer_size=200,
                              max_io_buffer_size=4096, threads=threads)
            end, stats = cleaner.do_clean(LogToClean.of(log, end), now)
            found += [end, stats.map_messages_read, stats.messages_read, stats.messages_written,
                      stats.bytes_read, stats.bytes_written]
    except Exception as error:
        place = getattr(error, "batch_at", None)
        text = re.sub(r"lastModifiedTime=\d+", "", str(error).replace(str(path), ""))
        found += [type(error), text,
                  place and (Path(place[0]).name, place[1])]
    assert not leftovers(log)
    log.close_handlers()
    return found, files(path)


@settings(max_examples=40)
@given(st.lists(STEPS, min_size=1, max_size=18), st.sampled_from([2, 4, 100]),
       st.none() | st.tuples(st.floats(0, .999), st.integers(1, 255)))
def test_drawn_logs(steps: list[tuple[Any, ...]], slots: int,
                    damage: tuple[float, int] | None) -> None:
    """Also with a byte that is wrong somewhere: the same error names the same batch."""
    cleaner_module._BYTES_OF_THREAD = 400
    with tempfile.TemporaryDirectory(prefix="seglog-threads-") as home:
        path = Path(home) / "1" / "t-0"
        write(path, steps)
        logs = sorted(one for one in path.glob("*.log") if one.stat().st_size)
        if damage is not None and logs:
            chosen = logs[int(damage[0] * len(logs))]
            data = bytearray(chosen.read_bytes())
            at = int(damage[0] * 7919) % len(data)
            data[at] ^= damage[1]
            chosen.write_bytes(data)
        for count in (2, 3):
            shutil.copytree(path, Path(home) / str(count) / "t-0")
        wanted = outcome(path, slots, 1)
        for count in (2, 3):
            assert outcome(Path(home) / str(count) / "t-0", slots, count) == wanted


# ---- its end ------------------------------------------------------------------------------------

def many_groups(path: Path) -> Any:
    log = opened(path, internal_segment_bytes=700)
    for number in range(24):
        append(log, [(b"%d" % (number % 5), bytes(90)), (b"own %d" % number, bytes(90))],
               codec=number % 3)
    roll(log)
    return log


@pytest.mark.parametrize("kind", [LogCleaningAbortedError, KeyboardInterrupt])
def test_an_end_at_any_read(tmp_path: Path, kind: type[BaseException]) -> None:
    """Groups that were swapped in stay, nothing else is left, and no thread."""
    step, ended = 0, 0
    while True:
        log = many_groups(tmp_path / str(step) / "t-0")
        wanted = last_values([(one.key or b"", one.value) for one in records(log)])
        left, lock = step, threading.Lock()

        def check(_: object) -> None:
            nonlocal left
            with lock:
                left -= 1
                if left < 0:
                    raise kind

        cleaner = Cleaner(offset_map=OffsetMap(1 << 16), io_buffer_size=400, threads=3,
                          check_done=check)
        try:
            cleaner.clean(LogToClean.of(log))
            is_done = True
        except kind:
            is_done, ended = False, ended + 1
        assert not leftovers(log)
        assert not [one for one in threading.enumerate() if one.name.startswith("seglog-cleaner")]
        assert last_values([(one.key or b"", one.value) for one in records(log)]) == wanted
        log.close()
        shutil.rmtree(tmp_path / str(step))
        if is_done:
            break
        step += 3
    assert ended > 5


def test_reads_are_reported_one_at_a_time(tmp_path: Path) -> None:
    log = many_groups(tmp_path / "t-0")
    busy, sizes = threading.Lock(), []

    def read(size: int) -> None:
        assert busy.acquire(blocking=False)
        sizes.append(size)
        busy.release()

    cleaner = Cleaner(offset_map=OffsetMap(1 << 16), threads=4, on_read=read)
    _, stats = cleaner.clean(LogToClean.of(log))
    assert sum(sizes) == stats.map_bytes_read + stats.bytes_read
    with pytest.raises(IllegalArgumentError, match="0 threads: expected at least 1"):
        Cleaner(offset_map=OffsetMap(SLOT), threads=0)


# ---- in order -----------------------------------------------------------------------------------

def results(count: int, threads: int, fails: set[int] = frozenset(),  # type: ignore[assignment]
            alone: set[int] = frozenset(), breaks: int = 99  # type: ignore[assignment]
            ) -> Iterator[tuple[int, object]]:
    def items() -> Iterator[int]:
        for number in range(count):
            if number == breaks:
                raise OSError(number)
            yield number

    def work(number: int) -> int:
        if number in fails:
            raise ValueError(number)
        return number * number

    return in_order(items(), threads, 2,
                    lambda number: None if number in alone else lambda: work(number), work)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_order(threads: int) -> None:
    wanted = [(number, number * number) for number in range(23)]
    assert list(results(23, threads)) == wanted
    assert list(results(23, threads, alone={0, 1, 7, 22})) == wanted
    assert list(results(0, threads)) == []
    for fails, breaks, error, count in (({9, 4}, 99, ValueError, 4), ({9}, 7, OSError, 7),
                                        ({3}, 4, ValueError, 3), (set(), 0, OSError, 0)):
        seen = []
        with pytest.raises(error):
            for one in results(23, threads, fails, {11}, breaks):
                seen.append(one)
        assert seen == wanted[:count]


def test_the_caller_works_while_it_waits() -> None:
    """The first task waits for the second one, which only the caller can run."""
    second = threading.Event()

    def prepare(number: int) -> Callable[[], bool]:
        return lambda: second.wait(60) if number == 0 else bool(second.set() or True)

    assert all(done for _, done in in_order(range(6), 2, 1, prepare, lambda number: False))


def test_an_early_end_awaits_the_threads() -> None:
    stopped, ended = threading.Event(), []

    def work() -> None:
        stopped.wait(60)
        ended.append(stopped.is_set())

    started = in_order(range(9), 3, 1, lambda number: (lambda: None) if number < 1 else work,
                       lambda number: None, stopped.set)
    stopped.set()
    assert next(started) == (0, None)
    started.close()
    assert all(ended)
    assert not [one for one in threading.enumerate() if one.name.startswith("seglog-cleaner")]


def test_buffers_of_one_byte_do_not_make_millions_of_tables(monkeypatch: pytest.MonkeyPatch
                                                            ) -> None:
    """The smallest `log.cleaner.io.buffer.size`: each chunk of a task has its own hashed keys."""
    monkeypatch.undo()
    made = []
    monkeypatch.setattr(cleaner_module, "BatchKeys", made.append)
    for size in (1, 100, 1 << 10):
        made.clear()
        Cleaner(offset_map=OffsetMap(1 << 16), io_buffer_size=size, threads=3)
        assert 5 <= len(made) <= 5 * 64
