"""The collector of cycles rests while logs are loaded, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from unittest import mock

import pytest

from seglog.manager.collector_pause import _Pauses, collections_paused


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_what_was_before_is_afterwards(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    first = collections_paused()
    first.__enter__()
    assert not gc.isenabled()
    with pytest.raises(KeyError), collections_paused():
        first.__exit__(None, None, None)  # the other start still runs
        assert not gc.isenabled()
        raise KeyError  # and fails
    assert gc.isenabled() == enabled


@pytest.mark.parametrize(("count", "frozen", "calls"), [
    (0, 0, []), (0, 1, []),
    (30_000, 0, ["get_freeze_count", "freeze", "unfreeze"]),
    (30_000, 1, ["get_freeze_count"])])
def test_many_new_objects_are_frozen_unless_others_are(
        count: int, frozen: int, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    called = mock.Mock()
    called.get_freeze_count.return_value = frozen
    for name in ("get_freeze_count", "freeze", "unfreeze"):
        monkeypatch.setattr(gc, name, getattr(called, name))
    gc.enable()
    with collections_paused():
        made: list[list[object]] = [[] for _ in range(count)]
    assert (len(made), [name for name, _, _ in called.method_calls]) == (count, calls)


@pytest.mark.parametrize(("pauses", "was_enabled", "enabled"), [
    (1, True, True), (2, True, True), (1, False, False), (0, True, False), (0, False, False)])
def test_a_forked_child_collects_again_if_its_parent_paused(
        pauses: int, was_enabled: bool, enabled: bool) -> None:
    child = _Pauses()
    child.count, child.was_enabled = pauses, was_enabled
    gc.disable()
    child.end_in_child()
    assert (gc.isenabled(), child.count) == (enabled, 0)
