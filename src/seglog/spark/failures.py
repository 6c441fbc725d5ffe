"""Reports seglog's errors to Spark users as one sentence, without the worker's traceback.

Spark prints the traceback of a failed worker. For a seglog error it adds nothing, so the error asks
PySpark to omit it (`SPARK_HIDE_TRACEBACK`, pyspark.util); the worker then ends. All other errors
keep their traceback.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from seglog.errors import SeglogError

__all__ = ["in_one_sentence", "without_traceback"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def without_traceback() -> Iterator[None]:
    """Makes a seglog error raised in this block reach the user as one sentence."""
    try:
        yield
    except Exception as error:
        if (isinstance(error, SeglogError) or type(error) is ValueError) and _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def in_one_sentence(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a call in `without_traceback`. Not for generators, which run later."""
    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with without_traceback():
            return function(*args, **kwargs)
    return call


def _is_worker() -> bool:
    """Whether this process is a PySpark worker, which does nothing after an error."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
