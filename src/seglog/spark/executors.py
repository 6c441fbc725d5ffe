"""The Python of Spark's workers: its version, its missing packages, and a check in each task.

Workers may run a different Python from the driver, on another machine. Code that must run there
without seglog is pickled by value, so it is in nested functions without seglog imports.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.cloudpickle import dumps
from pyspark.sql.functions import udf

from seglog import __version__

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["NEEDED", "CheckedOnArrival", "Shortfall", "probe_executors", "shortfall",
           "why_it_failed"]

#: The packages that a worker imports for seglog, in the order in which they are reported.
NEEDED = ("pyarrow", "numpy", "cramjam", "seglog")
_PROBES_MAX = 256


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why seglog cannot run in Spark's workers, and the missing packages."""

    sentence: str
    packages: tuple[str, ...] = ()


class CheckedOnArrival:
    """Base class of objects pickled to executors. If seglog is missing there or has another
    version, the task fails with one sentence, not with pickle's ModuleNotFoundError."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        kind = type(self)
        # Bytes, so that nothing is unpickled before the check for seglog.
        state = dumps(vars(self))  # type: ignore[no-untyped-call]
        return _arrival(), (kind.__module__, kind.__qualname__, state, __version__)


def _arrival() -> Callable[..., Any]:
    def arrive(module: str, name: str, state: bytes, version: str) -> Any:
        import importlib
        import os
        import pickle
        import platform
        import sys

        here = f"the executor on {platform.node()} runs {sys.executable}"
        problem = kind = None
        try:
            found = importlib.import_module("seglog").__version__
            kind = getattr(importlib.import_module(module), name)
            if found != version:
                problem = (f"seglog: {here} with seglog {found}, but the driver has {version}: "
                           "install the same version on both")
        except ImportError as error:
            problem = (f"seglog: {here} (Python {platform.python_version()}), which cannot import "
                       f"{error.name or 'seglog'}: install seglog[spark] {version} there, set "
                       "PYSPARK_PYTHON to a Python that has it, or register(spark, ship=True)")
        if problem is not None or kind is None:
            # PySpark's name for an error without the worker's traceback.
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
            raise RuntimeError(problem)
        arrived = kind.__new__(kind)
        arrived.__dict__.update(pickle.loads(state))
        return arrived

    return arrive


def probe_executors(spark: SparkSession, tasks: int) -> list[dict[str, Any]]:
    """Describes each distinct Python of the executors, found by `tasks` tasks. Raises Spark's
    exception if no worker starts."""
    rows = spark.range(0, min(tasks, _PROBES_MAX), 1, min(tasks, _PROBES_MAX))
    probe = udf(_probe(NEEDED), "string", useArrow=False)
    found = {row[0] for row in rows.select(probe("id")).collect()}
    return [json.loads(text) for text in sorted(found)]


def _probe(modules: tuple[str, ...]) -> Callable[[int], str]:
    def probe(_: int) -> str:
        import importlib
        import json
        import platform
        import sys

        versions, missing = {}, {}
        for name in modules:
            try:
                versions[name] = str(importlib.import_module(name).__version__)
            except Exception as error:
                missing[name] = f"{type(error).__name__}: {error}"
        return json.dumps({"host": platform.node(), "python": sys.executable,
                           "version": platform.python_version(),
                           "platform": f"{sys.platform} {platform.machine()}",
                           "versions": versions, "missing": missing}, sort_keys=True)

    return probe


def shortfall(found: Mapping[str, Any]) -> Shortfall | None:
    """What is missing in one Python found by `probe_executors`, None if nothing is."""
    where = f"the executor on {found['host']} runs {found['python']} (Python {found['version']})"
    missing = found["missing"]
    seglog = found["versions"].get("seglog", __version__)
    if seglog != __version__:
        missing = {**missing, "seglog": "another version"}
        where += f" with seglog {seglog}, but the driver has seglog {__version__}"
    lacking = tuple(name for name in NEEDED if name in missing)
    if not lacking:
        return None
    absent = [name for name in lacking if f"No module named '{name}'" in missing[name]]
    if seglog != __version__:
        sentence = where
    elif absent:
        sentence = f"{where}, which has no {' and no '.join(absent)}"
    else:
        sentence = f"{where}, which cannot import {lacking[0]} ({missing[lacking[0]]})"
    return Shortfall(sentence, lacking)


def why_it_failed(error: BaseException, python: str) -> str:
    """Why a worker of `python` could not start, from Spark's exception."""
    text = str(error)
    if match := re.search(r"different version: (\S+) than that in driver: (\d+\.\d+)", text):
        return (f"Spark's workers run {python}, which is Python {match[1]}, and the driver is "
                f"Python {match[2]}: both must have the same minor version")
    if match := re.search(r'Cannot run program "([^"]+)"', text):
        return f"Spark's workers cannot run {match[1]}: the program does not exist"
    if match := re.search(r"No module named '(\w+)|seglog\.spark needs .* has no (\w+):", text):
        return f"Spark's workers run {python}, which has no {match[1] or match[2]}"
    errors = re.findall(r"^\s*(?:[\w.]+\.)?(\w*(?:Error|Exception): .+)$", text, re.MULTILINE)
    if errors:
        return f"Spark's workers ({python}) failed with {errors[-1].strip()}"
    return f"Spark's workers ({python}) failed with {text.strip().splitlines()[0][:300]}"
