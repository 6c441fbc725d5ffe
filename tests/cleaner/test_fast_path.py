"""Native code over whole batches leaves what the reference path leaves, byte for byte."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from seglog._native.clean import BatchCleaner, CleanStep
from seglog._native.validate import frames
from seglog.cleaner import Cleaner, CleanerStats, LogToClean, OffsetMap
from seglog.cleaner import cleaner as cleaner_module
from seglog.cleaner import record_filter
from seglog.cleaner.chunks import Chunk
from seglog.cleaner.transaction_metadata import CleanedTransactionMetadata
from seglog.log.batch_builder import RecordBatchBuilder
from seglog.log.unified_log import UnifiedLog
from seglog.storage import codecs
from tests.cleaner.support import NOW, SLOT, append, end_transaction, opened, roll


class Declines:
    """A fast path that takes no batch."""

    def __init__(self, inner: BatchCleaner) -> None:
        self._inner = inner

    def map(self, data: Any, rows: Any, row: int, start: int, limit: int, keys: Any
            ) -> tuple[CleanStep, int]:
        return (CleanStep.OTHER if row < len(rows) else CleanStep.DONE), row

    def filter(self, rows: Any, row: int) -> int:
        return row

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def fill(log: UnifiedLog, source: random.Random, codec: str) -> None:
    """Batches of all kinds: headers, tombstones, transactions, null keys, long values."""
    sequences = {7: 0, 8: 0}
    for number in range(60):
        kind = source.random()
        rows = [(b"%d" % source.randrange(40) * source.choice([1, 1, 30]),
                 None if source.random() < .1 else source.randbytes(source.randrange(90)))
                for _ in range(source.choice([1, 3, 50, 90]))]
        if kind < .15:
            producer = source.choice([7, 8])
            append(log, rows, producer=producer, sequence=sequences[producer], transactional=True)
            sequences[producer] += len(rows)
            end_transaction(log, producer, commit=source.random() < .5)
            continue
        builder = RecordBatchBuilder(codec=codec)
        for key, value in rows:
            headers = [("trace", source.randbytes(5)), ("none", None)] * (source.random() < .2)
            builder.append(NOW + source.randrange(-50, 50), key, value, headers)
        log.append_as_leader(builder.build(), 0)
        if number % 17 == 0:
            log.roll()
    roll(log)


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.iterdir()
            if one.suffix in (".log", ".index", ".timeindex", ".txnindex")}


def rounds(path: Path, slots: int, threads: int = 1, **config: Any
           ) -> tuple[dict[str, bytes], list[tuple[int, ...]]]:
    """Three rounds, the last when tombstones may go."""
    log, end, found = opened(path, **config), 0, []
    log.update_high_watermark(log.log_end_offset)
    for now in (NOW, NOW + 1, NOW + 60_000):
        cleaner = Cleaner(offset_map=OffsetMap(slots * SLOT), io_buffer_size=4096,
                          threads=threads)
        end, stats = cleaner.do_clean(LogToClean.of(log, end), now)
        found.append((end, *_counts(stats)))
        append(log, [(b"1", b"later")])
        roll(log)
    log.close()
    return files(path), found


def _counts(stats: CleanerStats) -> tuple[int, ...]:
    return (stats.bytes_read, stats.bytes_written, stats.map_bytes_read, stats.map_messages_read,
            stats.messages_read, stats.messages_written, stats.invalid_messages_read)


@pytest.mark.parametrize("slots", [5000, 30], ids=["all keys", "a small map"])
@pytest.mark.parametrize("codec", codecs.CODEC_NAMES)
def test_it_is_the_reference_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str,
                                  slots: int) -> None:
    source = random.Random(f"{codec} {slots}")
    ours, other = tmp_path / "a" / "t-0", tmp_path / "b" / "t-0"
    log = opened(ours, internal_segment_bytes=30_000)
    fill(log, source, codec)
    log.close()
    shutil.copytree(ours, other)
    found = rounds(ours, slots)
    real = record_filter.batch_cleaner
    for module in (record_filter, cleaner_module):
        monkeypatch.setattr(module, "batch_cleaner", lambda *args: Declines(real(*args)))
    assert rounds(other, slots) == found
    assert found[1][0][5] > found[1][0][6], "records went"


def test_the_next_segment_releases_the_buffer_of_the_one_before() -> None:
    builder = RecordBatchBuilder()
    builder.append(NOW, b"key", b"value")
    buffer = bytearray(builder.build())
    cleaning = record_filter.RecordFilter(OffsetMap(SLOT), CleanedTransactionMetadata(),
                                          CleanerStats())
    rules = record_filter.Rules(NOW, 0, True, {}, 1)
    cleaning.begin(rules)
    cleaning.filter(Chunk(memoryview(buffer), frames(buffer).batches, "log", 0), is_mapped=False)
    with pytest.raises(BufferError):
        buffer.clear()
    cleaning.begin(rules)
    buffer.clear()


def test_marks_stop_where_offsets_go_back() -> None:
    offsets = OffsetMap(100 * SLOT)
    offsets.mark(10, 10 + (1 << 40))
    assert offsets.marked == 8 << 20
    offsets.put(b"a", 10)
    offsets.put(b"b", 11)
    offsets.put(b"a", 1 << 41)
    assert offsets.marked
    offsets.put(b"c", 12)
    assert not offsets.marked
    offsets.clear()
    offsets.mark(5, 5)
    assert not offsets.marked
    offsets.put(b"a", 1)
    with pytest.raises(ValueError, match="the map has keys"):
        offsets.mark(0, 9)
