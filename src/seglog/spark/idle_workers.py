"""Ends idle Python workers of Spark without a stack trace.

Spark closes the socket of a worker that was idle for a minute. PySpark treats this as an error and
writes it to the closed socket. On a Unix domain socket (since Spark 4.1) this write fails, and the
driver's console shows a BrokenPipeError for every such worker.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["end_quietly"]

#: PySpark's functions that read the start of a request, in planning workers and in tasks.
_BEGINNINGS = {"check_python_version", "get_init_message"}


def end_quietly() -> None:
    """Ignores the end of input between requests if this process is a PySpark worker."""
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
