"""The conditions for a power cut: everything that a step relies on is durable before that step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.box import Box, Call, read_trace
from tests.faults.directories import Damaged
from tests.faults.managed import CLEAN_MARKER, Pair

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"


@dataclass
class Medium:
    """What of a directory tree would not survive a power cut: files with content, and directories
    with names, that were not synced."""

    contents: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def follow(self, call: Call) -> None:
        """Takes in the next call."""
        folder = os.path.dirname(call.path)
        if call.kind == "write":
            self.contents.add(call.path)
        elif call.kind == "create":
            self.names.add(folder)
            if call.other == "truncated":
                self.contents.add(call.path)
        elif call.kind == "rename":
            self.names |= {folder, os.path.dirname(call.other)}
            self.contents.discard(call.other)
            if call.path in self.contents:
                self.contents.remove(call.path)
                self.contents.add(call.other)
        elif call.kind == "unlink":
            self.contents.discard(call.path)
        elif call.kind == "sync":
            self.contents.discard(call.path)
            self.names.discard(call.path)
        # A change of size is metadata, and its zeros are no content: an index that comes back
        # with the room that it had is one that a crash leaves.


def followed(calls: list[Call]) -> Iterator[tuple[Call, Medium]]:
    """Each call with what was not durable before it."""
    medium = Medium()
    for call in calls:
        yield call, Medium(set(medium.contents), set(medium.names))
        medium.follow(call)


@pytest.fixture(params=["unclean", "clean"])
def calls(request: pytest.FixtureRequest, box: Box, golden: Path, tmp_path: Path) -> list[Call]:
    """Of a start and a shutdown, one log at a time."""
    pair = Pair(box, golden, tmp_path / "dirs", request.param)
    pair.make()
    pair.run(trace=str(tmp_path / "trace"))
    return read_trace(tmp_path / "trace")


def places(calls: list[Call], kind: str, name: str) -> list[int]:
    return [number for number, call in enumerate(calls) if call.kind == kind and name in
            (call.name, os.path.basename(call.other))]


def test_files_before_recovery_points_before_the_marker(calls: list[Call]) -> None:
    [points] = places(calls, "rename", RECOVERY_POINTS)
    begun = places(calls, "create", RECOVERY_POINTS + ".tmp")[-1]
    starts = places(calls, "rename", LOG_START_OFFSETS)[-1]
    marker = places(calls, "create", CLEAN_MARKER)[-1]
    [marked] = places(calls, "sync", CLEAN_MARKER)
    assert starts < begun < points < marker < marked
    root = os.path.dirname(calls[marker].path)
    states = list(followed(calls))
    for number in (points, marker):
        in_logs = {path for path in states[number][1].contents if os.path.dirname(path) != root}
        assert not in_logs, f"durable only after {calls[number]}"
        assert not states[number][1].names - {root}
    # Each checkpoint's name is durable before the next one says more.
    for number in (begun, marker):
        assert root not in states[number][1].names
    # Nothing but the lock is touched behind the marker.
    assert [call.name for call in calls[marked + 1:]] == [".lock"]


def test_the_marker_goes_first(calls: list[Call], request: pytest.FixtureRequest) -> None:
    """It is gone durably before any log is touched, so that a crash from then on is one."""
    gone = places(calls, "unlink", CLEAN_MARKER)
    assert bool(gone) == (request.node.callspec.params["calls"] == "clean")
    root = os.path.dirname(calls[places(calls, "create", CLEAN_MARKER)[-1]].path)
    in_logs = [number for number, call in enumerate(calls)
               if root not in (call.path, os.path.dirname(call.path))]
    assert all(number < in_logs[0] for number in gone)
    if gone:
        assert root not in [*followed(calls)][in_logs[0]][1].names


def test_a_checkpoint_is_on_the_medium_before_it_replaces_one(calls: list[Call]) -> None:
    replaced = []
    for call, medium in followed(calls):
        target = os.path.basename(call.other)
        if call.kind == "rename" and target.endswith("-checkpoint"):
            assert call.path not in medium.contents, call
            replaced.append(target)
    assert {RECOVERY_POINTS, LOG_START_OFFSETS} <= set(replaced)


@pytest.mark.parametrize("name", ["4-offsets_overflow_often-marker_gone",
                                  "5-offsets_overflow_often"])
def test_a_split_replaces_a_segment_by_durable_ones(box: Box, damaged: dict[str, Damaged],
                                                    tmp_path: Path, name: str) -> None:
    """`.cleaned` files are whole before one is called `.swap`; the old log goes when all are."""
    case, root = damaged[name], tmp_path / "data"
    case.make(root)
    box.run("load", under=root, faults={"trace": str(tmp_path / "trace")}, root=str(root),
            config=case.config)
    calls = read_trace(tmp_path / "trace")
    swapped = 0
    for call, medium in followed(calls):
        if call.kind == "rename" and call.other.endswith(".swap"):
            assert not [path for path in medium.contents if path.endswith(".cleaned")], call
            swapped += 1
        if call.kind == "rename" and call.name.endswith(".log") \
                and call.other.endswith(".deleted"):
            assert not [path for path in medium.contents if path.endswith((".swap", ".cleaned"))]
    assert swapped


@pytest.mark.parametrize("name", ["004", "012", "028", "048"])
def test_what_no_flush_will_reach_is_durable_at_once(box: Box, damaged: dict[str, Damaged],
                                                     tmp_path: Path, name: str) -> None:
    """After a load and a flush of everything nothing is left in the page cache: also not of
    segments below the recovery point, which a flush does not come to."""
    case, root = damaged[name], tmp_path / "data"
    case.make(root)
    answer = box.run("manage", under=root, faults={"trace": str(tmp_path / "trace")},
                     roots=[str(root)], config=case.config)
    assert "result" in answer, answer
    medium = Medium()
    for call in read_trace(tmp_path / "trace"):
        if os.path.basename(call.other) == RECOVERY_POINTS:
            break
        medium.follow(call)
    else:
        raise AssertionError("no recovery points were written")
    # A snapshot has a checksum, and a load uses the one before a bad one. But the newest, with
    # which the next load starts, must exist.
    newest = {str(max(folder.glob("*.snapshot"))) for folder in root.iterdir()
              if folder.is_dir() and any(folder.glob("*.snapshot"))}
    assert newest
    left = {path for path in medium.contents if os.path.dirname(path) != str(root)}
    assert not {path for path in left if not path.endswith(".snapshot") or path in newest}
    assert not medium.names - {str(root)}
