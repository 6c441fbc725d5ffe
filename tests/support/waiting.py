"""Waiting for what other threads and processes do: on a condition, not for a time."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PATIENCE", "wait_for"]

#: Seconds after which something does not happen any more, on the slowest machine.
PATIENCE = 120.0


def wait_for(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Returns as soon as the condition holds. AssertionError if it does not come to that."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)
