"""How much the tests do: `make test` is quick (SEGLOG_QUICK=1), everything else is thorough.

A quick run leaves out what is marked `judge`, and draws fewer cases where a number of them is
drawn.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

IS_QUICK = os.environ.get("SEGLOG_QUICK", "0") not in ("", "0")


def how_many(variable: str, thorough: int, quick: int) -> int:
    """A number of cases: the environment's where it names one."""
    named = os.environ.get(variable)
    return int(named) if named else quick if IS_QUICK else thorough


def quick_first(values: Iterable[Any], quick: int) -> list[Any]:
    """Values (or `pytest.param`s): the first few, and the others as judges."""
    return [value if number < quick else _judge(value) for number, value in enumerate(values)]


def quick_each(values: Iterable[Any], step: int) -> list[Any]:
    """Values (or `pytest.param`s): each `step`th from the first on, and the others as judges."""
    return [value if number % step == 0 else _judge(value) for number, value in enumerate(values)]


def _judge(value: Any) -> Any:
    if not isinstance(value, type(pytest.param())):
        return pytest.param(value, marks=pytest.mark.judge)
    return pytest.param(*value.values, marks=[*value.marks, pytest.mark.judge], id=value.id)


def examples(thorough: int) -> int:
    """How many examples Hypothesis draws: a fifth of them in a quick run."""
    return max(10, thorough // 5) if IS_QUICK else thorough
