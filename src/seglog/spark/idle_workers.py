"""Python workers of Spark that are no longer needed end without a stack trace.

Spark closes the socket of a worker that was idle for a minute. PySpark takes that for an error and
writes it to the closed socket, which fails on a Unix domain socket (Spark 4.1 on), and the console
of the driver shows a BrokenPipeError for every such worker.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["end_quietly"]

#: PySpark's functions that read the beginning of a request, in workers that plan and in tasks.
_BEGINNINGS = {"check_python_version", "get_init_message"}


def end_quietly() -> None:
    """Where this process is such a worker, passes over the end of its input between requests."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is None or spec.name != "pyspark.daemon" \
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
