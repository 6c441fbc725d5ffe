"""The collector of cycles rests while logs are loaded, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from seglog.manager.collector_pause import collections_paused


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
