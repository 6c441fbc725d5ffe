"""What a user of Spark sees of an error: one sentence, without the frames of a Python worker.

Spark prints the traceback of a worker that fails. Ours says nothing that the sentence does not, so
an expected error asks PySpark to leave it out (`SPARK_HIDE_TRACEBACK`, pyspark.util); the worker
ends with it. Everything else keeps its traceback.
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
    """An error of ours that leaves this block reaches the user as one sentence."""
    try:
        yield
    except Exception as error:
        if (isinstance(error, SeglogError) or type(error) is ValueError) and _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def in_one_sentence(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`without_traceback` around a whole call. Not for generators, which run later."""
    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with without_traceback():
            return function(*args, **kwargs)
    return call


def _is_worker() -> bool:
    """Whether this process is one of PySpark's workers, which does nothing after an error."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
