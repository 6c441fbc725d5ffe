"""Rounds of cleaning against a dict: the last committed value of each key is always there, and
nothing that was not written."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from seglog.cleaner import Cleaner, LogToClean, OffsetMap
from seglog.log.unified_log import UnifiedLog
from tests.cleaner.support import NOW, SLOT, append, batches, end_transaction, opened, roll
from tests.oracle.cleaning import last_values
from tests.support.effort import examples

KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"\0\0\0\0", b"\0\0\0\1"])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(min_size=1, max_size=4)), min_size=1,
                max_size=5)
CODECS = st.sampled_from([0, 0, 1, 2, 3, 4])
STEPS = st.one_of(
    st.tuples(st.just("append"), ROWS, CODECS, st.sampled_from([-1, 1, 2, 11, 12])),
    st.tuples(st.just("end"), st.sampled_from([11, 12]), st.booleans()),
    st.tuples(st.just("clean"), st.sampled_from([2, 4, 100]), st.sampled_from([0, 50_000])),
    st.tuples(st.just("reopen"), st.booleans()))


class Model:
    """A log, and what was written to it: the rows by their offsets, and which were aborted."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.clean_end = path, NOW, 0
        self.log: UnifiedLog = opened(path, internal_segment_bytes=700)
        self.rows: dict[int, tuple[bytes, bytes | None]] = {}
        self.aborted: set[int] = set()
        self.open: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}

    def append(self, rows: list[tuple[bytes, bytes | None]], codec: int, producer: int) -> None:
        base, sequence = self.log.log_end_offset, self.sequences.get(producer, 0)
        append(self.log, rows, codec=codec, producer=producer, transactional=producer > 10,
               sequence=sequence if producer >= 0 else -1)
        self.sequences[producer] = sequence + len(rows)
        offsets = range(base, base + len(rows))
        self.rows |= dict(zip(offsets, rows, strict=True))
        if producer > 10:
            self.open.setdefault(producer, []).extend(offsets)

    def end(self, producer: int, commit: bool) -> None:
        if producer in self.open:
            end_transaction(self.log, producer, commit=commit)
            offsets = self.open.pop(producer)
            self.aborted |= set() if commit else set(offsets)

    def clean(self, slots: int, later_ms: int) -> None:
        roll(self.log)
        self.now += later_ms
        what = LogToClean.of(self.log, self.clean_end)
        if what.cleanable_bytes:
            cleaner = Cleaner(offset_map=OffsetMap(slots * SLOT), io_buffer_size=100)
            self.clean_end = max(self.clean_end, cleaner.do_clean(what, self.now)[0])
        self.check()

    def reopen(self, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        if clean:
            self.log.close()
        else:
            self.log.close_handlers()
        self.log = opened(self.path, clean=clean, recovery_point=recovery_point,
                          internal_segment_bytes=700)
        self.check()

    def check(self) -> None:
        found = {one.offset: (one.key or b"", one.value) for batch in batches(self.log)
                 if not batch.is_control for one in batch.records}
        assert list(found) == sorted(found) and found.items() <= self.rows.items()
        unsure = self.aborted | {one for offsets in self.open.values() for one in offsets}
        committed = {offset: row for offset, row in self.rows.items() if offset not in unsure}
        kept = {offset: row for offset, row in found.items() if offset not in unsure}
        assert last_values(kept.values()) == last_values(committed.values())
        below = [row[0] for offset, row in kept.items() if offset < self.clean_end]
        assert len(below) == len(set(below))  # each key once
        for offsets in self.open.values():
            assert set(offsets) <= set(found)  # what may yet be committed


@settings(max_examples=examples(150))
@given(st.lists(STEPS, max_size=25))
def test_the_last_value_of_each_key(steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory(prefix="seglog-clean-") as home:
        model = Model(Path(home) / "t-0")
        for name, *args in steps:
            getattr(model, str(name))(*args)
        for producer in list(model.open):
            model.end(producer, True)
        for _ in range(3):
            model.clean(100, 50_001)
        model.reopen(True)
        model.log.close()
