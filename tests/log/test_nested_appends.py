"""An append that begins inside of another one of the same thread, as a finalizer's, that of a
signal's handler or of an object with `__buffer__`: the log's lock lets it in."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seglog._native.batch import scan
from seglog.config import LogConfig
from seglog.errors import IllegalStateError, KafkaStorageError
from seglog.log.active_segment import ActiveSegment
from seglog.log.appends import Appends
from seglog.log.local_log import LocalLog
from seglog.log.producer_state_manager import ProducerStateManager
from seglog.log.scheduler import MockTime
from seglog.log.unified_log import UnifiedLog
from tests.log.test_fast_path import NOW, batch


class Clock(MockTime):
    """Runs `once` the next time that somebody asks."""

    once: Callable[[], object] | None = None

    def milliseconds(self) -> int:
        once, self.once = self.once, None
        if once is not None:
            once()
        return super().milliseconds()


@pytest.fixture
def clock() -> Clock:
    return Clock(current_time_ms=NOW)


@pytest.fixture
def log(tmp_path: Path, clock: Clock) -> UnifiedLog:
    log = UnifiedLog.create(tmp_path / "t-0", LogConfig(), scheduler=clock.scheduler, time=clock)
    log.append_as_leader(batch(), 0)  # opens the leader's epoch
    log.append_as_leader(batch(), 0)  # arms the native fast path
    return log


def offsets(log: UnifiedLog) -> list[int]:
    """The base offsets of the batches on the disk; each begins where the one before it ends."""
    log.close()
    batches = scan(Path(log.path, f"{0:020d}.log").read_bytes()).batches
    assert batches["base_offset"].tolist()[1:] == (batches["last_offset"] + 1).tolist()[:-1]
    found: list[int] = batches["base_offset"].tolist()
    return found


def test_the_fast_path_reads_the_end_after_the_clock(log: UnifiedLog, clock: Clock) -> None:
    clock.once = lambda: log.append_as_leader(batch(2), 0)
    assert log.append_as_leader(batch(3), 0).first_offset == 4
    assert offsets(log) == [0, 1, 2, 4]


@pytest.mark.parametrize("codec", [0, 1])
def test_the_other_paths_refuse_the_outer_one(
        log: UnifiedLog, clock: Clock, codec: int) -> None:
    """The inner one is in the log by then."""
    log.fast_path.disarm()
    clock.once = lambda: log.append_as_leader(batch(2, codec=codec), 0)
    with pytest.raises(IllegalStateError, match="a second append began inside of this one"):
        log.append_as_leader(batch(3, codec=codec), 0)
    assert log.append_as_leader(batch(4, codec=codec), 0).first_offset == 4
    assert offsets(log) == [0, 1, 2, 4]


def test_the_write_itself_looks_at_the_end(log: UnifiedLog, monkeypatch: pytest.MonkeyPatch
                                           ) -> None:
    """The inner append may come at any moment before it."""
    write = Appends._write

    def append_first(*args: Any) -> None:
        monkeypatch.setattr(Appends, "_write", write)
        log.append_as_leader(batch(2), 0)
        write(*args)

    monkeypatch.setattr(Appends, "_write", append_first)
    with pytest.raises(IllegalStateError, match="the log ends at 4; not written: from 2 on"):
        log.append_as_leader(batch(codec=1), 0)
    assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize(("owner", "step"), [
    (ActiveSegment, "become_inactive"), (LocalLog, "_remove_leftovers"),
    (LocalLog, "_open_segment"), (ProducerStateManager, "take_snapshot")])
def test_none_begins_inside_of_a_roll(log: UnifiedLog, monkeypatch: pytest.MonkeyPatch,
                                      owner: type, step: str, codec: int) -> None:
    """It would go to the old segment, below the base offset of the new one, or to both."""
    inner, refused = getattr(owner, step), list[IllegalStateError]()

    def append_first(*args: Any, **how: Any) -> Any:
        monkeypatch.undo()
        with pytest.raises(IllegalStateError, match="inside of a roll") as caught:
            log.append_as_leader(batch(2, codec=codec), 0)
        with pytest.raises(IllegalStateError, match="inside of a roll"):
            log.roll()
        refused.append(caught.value)
        return inner(*args, **how)

    monkeypatch.setattr(owner, step, append_first)
    assert log.roll() == 2
    assert len(refused) == 1
    assert log.append_as_leader(batch(2), 0).first_offset == 2
    assert offsets(log) == [0, 1]
    data = Path(log.path, f"{2:020d}.log").read_bytes()
    assert scan(data).batches["base_offset"].tolist() == [2]


class Slot(ctypes.Structure):
    """PyType_Slot."""

    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class Spec(ctypes.Structure):
    """PyType_Spec."""

    _fields_ = (("name", ctypes.c_char_p), ("size", ctypes.c_int), ("item_size", ctypes.c_int),
                ("flags", ctypes.c_uint), ("slots", ctypes.POINTER(Slot)))


def exporter(content: bytes, at: str, once: list[Callable[[], object]]) -> Any:
    """Bytes of an object that runs Python when it gives them (`get`) or gets them back (`release`),
    as one with `__buffer__` does since Python 3.12."""
    def run(moment: str) -> None:
        if moment == at and once:
            once.pop()()

    def get(self: object, view: int, flags: int) -> int:
        run("get")
        fill = ctypes.pythonapi.PyBuffer_FillInfo
        return int(fill(ctypes.c_void_p(view), ctypes.py_object(self), content,
                        ctypes.c_ssize_t(len(content)), 1, flags))

    functions = (
        (1, ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)(get)),
        (2, ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.c_void_p)(
            lambda self, view: run("release"))))
    slots = (Slot * 3)(*((slot, ctypes.cast(function, ctypes.c_void_p).value)
                         for slot, function in functions))
    make = ctypes.pythonapi.PyType_FromSpec
    make.restype = ctypes.py_object
    kind = make(ctypes.byref(Spec(b"tests.Exporter", object.__basicsize__, 0, 1 << 18, slots)))
    _kept.append(functions)
    return kind()


_kept: list[object] = []


@pytest.mark.parametrize("at", ["get", "release"])
@pytest.mark.parametrize("path", ["native", "fast", "reference"])
def test_an_object_that_gives_its_bytes_may_append(log: UnifiedLog, path: str, at: str) -> None:
    """Both batches got the same offset."""
    codec = 1 if path == "reference" else 0
    if path == "fast":
        log.fast_path.disarm()
    once: list[Callable[[], object]] = [lambda: log.append_as_leader(batch(2), 0)]
    outer = log.append_as_leader(exporter(batch(3, codec=codec), at, once), 0)
    # The reference path asks for the bytes again after the fast ones gave them back.
    is_last = at == "get" or path == "reference"
    assert not once and outer.first_offset == (4 if is_last else 2)
    assert offsets(log) == ([0, 1, 2, 4] if is_last else [0, 1, 2, 5])


@pytest.mark.parametrize("is_armed", [False, True])
@pytest.mark.parametrize(("owner", "step"), [
    (Appends, "_assign"), (ProducerStateManager, "analyze"), (ActiveSegment, "append")])
def test_a_log_that_is_closed_inside_of_an_append_gets_no_more(
        log: UnifiedLog, monkeypatch: pytest.MonkeyPatch, owner: type, step: str, is_armed: bool
        ) -> None:
    """As by a handler of SIGTERM: the files may be another process's then."""
    if not is_armed:
        log.active.close_handles()
    inner = getattr(owner, step)

    def close_first(*args: Any, **how: Any) -> Any:
        monkeypatch.undo()
        log.close()
        return inner(*args, **how)

    monkeypatch.setattr(owner, step, close_first)
    with pytest.raises(KafkaStorageError, match="is closed"):
        log.append_as_leader(batch(2, codec=1), 0)
    assert offsets(log) == [0, 1]
    assert not log.context.failures.is_any_offline
