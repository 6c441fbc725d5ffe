"""Followers that Ctrl-C interrupts, or a signal whose handler raises."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seglog
from seglog import PartitionLog
from seglog.storage import stream
from seglog.storage.record_rows import ColumnFollower
from tests.support.waiting import PATIENCE

COUNT = 100_000  # several columns


@pytest.fixture
def log(tmp_path: Path) -> Iterator[seglog.EmbeddedLog]:
    with seglog.open(tmp_path / "t-0") as opened:
        yield opened


@pytest.fixture(params=["program", "directory"])
def follower(log: seglog.EmbeddedLog, request: pytest.FixtureRequest) -> Iterator[ColumnFollower]:
    log.append_columns({"value": [b""] * COUNT})
    reader: Any = log if request.param == "program" else PartitionLog.open(log.path)
    with reader.follow(0, timeout=PATIENCE) as opened:
        yield opened


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_an_interrupted_wait_is_no_end(log: seglog.EmbeddedLog, follower: ColumnFollower,
                                       error: type[BaseException]) -> None:
    """The next call said that there was nothing more, or the handler's error came for ever."""
    while next(follower).last_offset < COUNT - 1:
        pass

    def handler(number: int, frame: object) -> None:
        raise error

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for number in range(2):
            signal.setitimer(signal.ITIMER_REAL, .1)
            with pytest.raises(error):
                next(follower)
            offset = log.append(b"%d" % number)
            found = next(follower)
            assert (found.first_offset, found.last_offset) == (offset, offset)
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_an_interrupt_between_columns_loses_and_repeats_none(
        log: seglog.EmbeddedLog, follower: ColumnFollower, monkeypatch: pytest.MonkeyPatch,
        error: type[BaseException]) -> None:
    """The records of the rest of a range were lost, or those before came again."""
    tell, calls = stream._tell, [0]

    def interrupted(*given: Any) -> None:
        calls[0] += 1
        if calls[0] in (1, 3):
            raise error
        tell(*given)

    monkeypatch.setattr(stream, "_tell", interrupted)
    offsets: list[int] = []
    interrupts = 0
    while len(offsets) < COUNT:
        try:
            found = next(follower)
        except error:
            interrupts += 1
        else:
            offsets += found.to_pylists()["offset"]
    assert offsets == list(range(COUNT)) and interrupts == 2
    log.append(b"more")
    assert next(follower).to_pylists()["value"] == [b"more"]


def test_the_context_of_a_task_ends_its_follower(log: seglog.EmbeddedLog) -> None:
    async def run() -> None:
        async with log.follow_async(0, timeout=1.0) as follower:
            log.append(b"0")
            assert (await anext(follower)).to_pylists()["offset"] == [0]
        log.append(b"1")
        assert await anext(follower, None) is None

    asyncio.run(run())
