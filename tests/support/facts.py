"""All that an exception says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seglog.errors import SeglogError

__all__ = ["facts_of", "refusal"]


def facts_of(error: BaseException) -> dict[str, object]:
    """Its class, its text, its attributes that say something, and the class of its cause."""
    found: dict[str, object] = {"class": type(error).__name__, "text": str(error)}
    if isinstance(error, OSError):
        found |= {"errno": error.errno, "file": error.filename}
    found |= vars(error)
    if error.__cause__ is not None:
        found["cause"] = type(error.__cause__).__name__
    return {name: value for name, value in found.items() if value is not None}


def refusal(call: Callable[[], object]) -> dict[str, object]:
    """The facts of the error that a call ends with."""
    with pytest.raises((SeglogError, TypeError, ValueError, OSError)) as caught:
        call()
    return facts_of(caught.value)
