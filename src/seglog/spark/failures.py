"""Reports seglog's errors to Spark users as one sentence, without the worker's traceback, and ends
idle workers without one.

Spark prints the traceback of a failed worker. For a seglog error it adds nothing, so the error asks
PySpark to omit it (`SPARK_HIDE_TRACEBACK`, pyspark.util); the worker then ends. All other errors
keep their traceback.
"""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from seglog.errors import SeglogError

__all__ = ["end_quietly", "in_one_sentence", "without_traceback"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
#: PySpark's functions that read the start of a request, in planning workers and in tasks.
_BEGINNINGS = {"check_python_version", "get_init_message"}


@contextmanager
def without_traceback() -> Iterator[None]:
    """Makes a seglog error raised in this block reach the user as one sentence."""
    try:
        yield
    except Exception as error:
        # A PySpark worker does nothing after an error.
        if ((isinstance(error, SeglogError) or type(error) is ValueError)
                and _main_module().startswith("pyspark.")):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def in_one_sentence(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps a call in `without_traceback`. Not for generators, which run later."""
    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with without_traceback():
            return function(*args, **kwargs)
    return call


def _main_module() -> str:
    """The name of the module that this process runs."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return "" if spec is None else spec.name


def end_quietly() -> None:
    """Ignores the end of input between requests if this process is a PySpark worker.

    Spark closes the socket of a worker that was idle for a minute. PySpark treats this as an error
    and writes it to the closed socket. On a Unix domain socket (since Spark 4.1) this write fails,
    and the driver's console shows a BrokenPipeError for every such worker.
    """
    if _main_module() != "pyspark.daemon" \
            or os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() != "true":
        return
    for name in ("pyspark.worker", "pyspark.sql.worker.utils"):
        module: Any = sys.modules.get(name)
        if hasattr(module, "handle_worker_exception"):
            module.handle_worker_exception = _report_what_matters(module.handle_worker_exception)


def _report_what_matters(report: Callable[..., None]) -> Callable[..., None]:
    def report_what_matters(error: BaseException, *args: Any) -> None:
        frames = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
        if not (isinstance(error, EOFError) and frames & _BEGINNINGS):
            report(error, *args)

    return report_what_matters
