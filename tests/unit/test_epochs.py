"""Leader epochs against Kafka's results and a slow model (tests/kafka asks Kafka itself)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglog.errors import MalformedCheckpointError
from seglog.model import EpochEntry
from seglog.storage import paths
from seglog.storage.epochs import LeaderEpochs, read_leader_epochs, write_leader_epochs


def made(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(EpochEntry(*entry) for entry in entries)


def pairs(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in epochs]


def test_epochs_are_equal_if_their_entries_are() -> None:
    assert made((2, 6), (3, 8)) == made((2, 6), (3, 8))
    for other in (made((2, 6)), made((2, 6), (3, 9)), [EpochEntry(2, 6), EpochEntry(3, 8)], None):
        assert made((2, 6), (3, 8)) != other


def test_assign() -> None:
    epochs = made((2, 6), (3, 8), (5, 20))
    assert not epochs.assign(5, 30)  # a later start of the latest epoch changes nothing
    assert epochs.assign(5, 19) and pairs(epochs) == [(2, 6), (3, 8), (5, 19)]
    assert epochs.assign(7, 8) and pairs(epochs) == [(2, 6), (7, 8)]
    assert epochs.assign(1, 100) and pairs(epochs) == [(1, 100)]
    for bad in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="Received invalid partition leader epoch entry"):
            epochs.assign(*bad)


def test_truncation() -> None:
    start = ((2, 6), (3, 8), (4, 11))
    for end, left in ((-1, start), (12, start), (11, start[:2]), (9, start[:2]), (8, start[:1]),
                      (0, ())):
        epochs = made(*start)
        assert epochs.truncate_from_end(end) == (len(left) < 3)
        assert pairs(epochs) == list(left)
    for begin, expected, changed in ((-1, list(start), False), (5, list(start), False),
                                     (6, list(start), True), (7, [(2, 7), (3, 8), (4, 11)], True),
                                     (8, [(3, 8), (4, 11)], True), (99, [(4, 99)], True)):
        epochs = made(*start)
        assert epochs.truncate_from_start(begin) == changed
        assert pairs(epochs) == expected
    assert made((2, 0)).truncate_from_start(0)
    assert not made().truncate_from_start(5) and not made().truncate_from_end(5)
    epochs = made(*start)
    epochs.clear()
    assert epochs == made() and epochs.latest is None and epochs.earliest is None


def test_lookups() -> None:
    epochs = made((2, 6), (3, 8), (5, 20))
    ends = {-1: (-1, -1), 0: (0, 6), 2: (2, 8), 3: (3, 20), 4: (3, 20), 5: (5, 33), 6: (-1, -1)}
    assert {epoch: epochs.end_offset_for(epoch, 33) for epoch in ends} == ends
    assert made().end_offset_for(0, 33) == (-1, -1)
    assert [epochs.epoch_for_offset(offset) for offset in (5, 6, 7, 8, 19, 20, 99)] == [
        None, 2, 2, 3, 3, 5, 5]
    assert epochs.entry(3) == EpochEntry(3, 8)
    assert [epochs.entry(epoch) for epoch in (1, 4, 6)] == [None] * 3
    assert [epochs.next_epoch(epoch) for epoch in (0, 2, 4, 5)] == [2, 3, 5, None]
    assert epochs.entries_in_range(7, 20) == [EpochEntry(2, 7), EpochEntry(3, 8)]
    assert epochs.earliest == EpochEntry(2, 6) and epochs.latest == EpochEntry(5, 20)
    assert len(epochs) == 3


@given(st.lists(st.tuples(st.sampled_from(["assign", "end", "start"]), st.integers(0, 9),
                          st.integers(-1, 12)), max_size=25))
def test_against_a_slow_model(steps: list[tuple[str, int, int]]) -> None:
    epochs, model = made(), dict[int, int]()
    for step, epoch, offset in steps:
        if step == "assign" and offset >= 0:
            latest = max(model, default=None)
            if latest is None or epoch != latest or offset < model[latest]:
                model = {e: o for e, o in model.items() if e < epoch and o < offset}
                model[epoch] = offset
            epochs.assign(epoch, offset)
        elif step == "end":
            left = {e: o for e, o in model.items() if offset < 0 or o < offset}
            assert epochs.truncate_from_end(offset) == (left != model)
            model = left
        elif step == "start":
            below = [e for e, o in model.items() if o <= offset]
            if below and offset >= 0:
                model = {e: o for e, o in model.items() if e >= max(below)}
                model[max(below)] = offset
            assert epochs.truncate_from_start(offset) == (bool(below) and offset >= 0)
        assert pairs(epochs) == sorted(model.items())
        for probe in range(-1, 13):
            at = [e for e, o in model.items() if o <= probe]
            assert epochs.epoch_for_offset(probe) == max(at, default=None)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / paths.LEADER_EPOCH_CHECKPOINT
    assert read_leader_epochs(path) == made()
    write_leader_epochs(path, made((0, 0), (4, 120)))
    assert path.read_bytes() == b"0\n2\n0 0\n4 120\n"
    assert read_leader_epochs(path) == made((0, 0), (4, 120))
    path.write_bytes(b"0\n3\n4 120\n0 0\n2 5\n")  # disorder is resolved by assigning in turn
    assert pairs(read_leader_epochs(path)) == [(0, 0), (2, 5)]
    for content, code in ((b"0\n1\n-1 0\n", "epoch_negative"), (b"0\n1\n0 -1\n", "epoch_negative"),
                          (b"0\n1\n0\n", "checkpoint_line"), (b"0\n1\nx 0\n", "checkpoint_number")):
        path.write_bytes(content)
        with pytest.raises(MalformedCheckpointError) as caught:
            read_leader_epochs(path)
        assert caught.value.code == code and caught.value.file == str(path)


def test_a_file_that_says_so_already_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / paths.LEADER_EPOCH_CHECKPOINT
    write_leader_epochs(path, made((0, 0)))
    before = path.stat().st_ino
    write_leader_epochs(path, made((0, 0)))
    assert path.stat().st_ino == before
    interrupted = tmp_path / (path.name + ".tmp")
    interrupted.write_text("0\n")
    write_leader_epochs(path, made((0, 0)))
    assert path.stat().st_ino != before and not interrupted.exists()
    path.write_bytes(b"0\n1\n0  0\n")
    write_leader_epochs(path, made((0, 0)))
    assert path.read_bytes() == b"0\n1\n0 0\n", "in Kafka's spelling"


def test_golden(golden: Path) -> None:
    loaded = json.loads((golden / "real/loaded.json").read_text())
    seen = 0
    for name, state in loaded["clean"].items():
        found = read_leader_epochs(golden / "real/clean" / name / paths.LEADER_EPOCH_CHECKPOINT)
        found.truncate_from_end(state["log_end_offset"])  # as a load does
        found.truncate_from_start(state["log_start_offset"])
        assert [list(pair) for pair in pairs(found)] == state["leader_epochs"], name
        seen += len(found)
    assert seen > 20
