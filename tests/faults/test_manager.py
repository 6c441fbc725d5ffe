"""A log manager with a failing directory: the others are served, no marker is wrong, and the next
start has the same result as an undisturbed one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.box import CHANGES, DENIED, FULL_DISK, IO, QUESTIONS, Box, points
from tests.faults.managed import Pair

SIGKILL = 9


@pytest.fixture(params=["unclean", "clean"])
def pair(request: pytest.FixtureRequest, box: Box, golden: Path, tmp_path: Path) -> Pair:
    pair = Pair(box, golden, tmp_path / "dirs", request.param)
    pair.make()
    return pair


@pytest.fixture
def ends(pair: Pair) -> list[Any]:
    """The result of an undisturbed start and shutdown, and of repeating them."""
    first = pair.run()
    assert pair.is_clean(pair.first) and pair.is_clean(pair.second)
    once = pair.end(first)
    return [once, pair.end(pair.run())]


def test_a_second_start_changes_no_file(ends: list[Any]) -> None:
    assert ends[0][1:] == ends[1][1:]


def same_logs(states: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Whether logs are the same but for how far they are known to be flushed."""
    def without(one: dict[str, Any]) -> dict[str, Any]:
        return {path: {key: value for key, value in state.items() if key != "recovery_point"}
                for path, state in one.items()}
    return without(states) == without(expected)


def test_a_manager_that_is_killed_is_started_again(pair: Pair, ends: list[Any]) -> None:
    pair.make()
    count = pair.run()["calls"]
    for number, point in enumerate(points(count, 10)):
        pair.make()
        answer = pair.run(at=point, action="torn" if number % 2 else "kill")
        assert answer == {"signal": SIGKILL}
        states, *files = pair.end(pair.run())
        assert files == list(ends[0][1:]), f"killed at {point} of {count}"
        assert same_logs(states, ends[0][0]), f"killed at {point} of {count}"


@pytest.mark.parametrize("calls", [CHANGES, *QUESTIONS.split(",")])
def test_a_directory_that_fails_goes_offline_alone(pair: Pair, ends: list[Any],
                                                   calls: str) -> None:
    pair.make()
    count = pair.run(calls=calls)["calls"]
    expected, first_files, second_files = ends[0]
    offline = 0
    for number, point in enumerate(points(count, 5)):
        pair.make()
        what = (FULL_DISK, IO, DENIED)[number % 3] if calls == CHANGES else IO
        answer = pair.run(calls=calls, at=point, action=what, sticky=1)
        where = f"{calls} refused with {what} from {point} of {count} on: {answer}"
        states, _, second = pair.end(answer)
        # The other directory is served and closed as ever.
        assert second == second_files, where
        served = {path: state for path, state in states.items() if str(pair.second) in path}
        assert served == {path: state for path, state in expected.items() if path in served}
        assert len(served) == 1, where
        if answer["result"]["offline"]:
            offline += 1
            assert answer["result"]["offline"] == [str(pair.first)], where
        # A marker only where everything was done, or where nothing was.
        if pair.is_clean(pair.first):
            untouched = pair.home == "clean" and answer["result"]["offline_at_start"]
            assert untouched or not answer["result"]["offline"], where
        states, *files = pair.end(pair.run())
        assert files == [first_files, second_files], where
        assert same_logs(states, expected), where
    assert offline or calls == "stat"
