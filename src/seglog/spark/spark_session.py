"""Sets up Spark for seglog: `session` starts Spark, `register` prepares a running session.

Both return a session that can read, or raise SparkSetupError with one sentence on what is missing.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from seglog import __version__
from seglog.errors import SparkSetupError
from seglog.spark.executors import (
    Shortfall, probe_executors, shortfall, why_it_failed,
)
from seglog.spark.filters import enable_pushdown
from seglog.spark.functions import register_functions
from seglog.spark.java import why_no_jvm
from seglog.spark.jobs import context_of
from seglog.spark.option_values import option_texts
from seglog.spark.shipping import ship_packages
from seglog.spark.source import SeglogDataSource

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["register", "session"]

_log = logging.getLogger("seglog.spark")
_RELEASE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
_PATIENCE_SECONDS = 20.0
_TASKS_OF_CONNECT = 8  # a client does not know the server's number of cores
# Other places that set Spark's master.
_ELSEWHERE = ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_HOME", "SPARK_CONF_DIR",
              "SPARK_REMOTE", "MASTER")


def session(master: str | None = None, app_name: str | None = None,
            conf: Mapping[str, object] | None = None, *, ship: bool = False) -> SparkSession:
    """Starts Spark with what `format("seglog")` needs, or uses the active session.

    `master` is Spark's (`local[4]`, `spark://host:7077`, `sc://host` for Spark Connect); its
    default comes from the environment (spark-submit, SPARK_CONF_DIR, ...), else is `local[*]`.
    `conf` holds any of Spark's settings and overrides the defaults set here. Workers run this
    interpreter unless PYSPARK_PYTHON or `spark.pyspark.python` names another. An active session
    keeps its master and static settings. `ship` is as in `register`.

    Raises SparkSetupError, with one sentence, if Spark cannot start or cannot read.
    """
    given = option_texts(conf or {})
    active = SparkSession.getActiveSession()
    if active is not None:
        return _joined(active, master, given, ship)
    master = master or given.pop("spark.master", None)
    if master is None and not any(os.environ.get(name) for name in _ELSEWHERE):
        master = "local[*]"
    builder = SparkSession.builder.appName(app_name or given.get("spark.app.name", "seglog"))
    if (master or os.environ.get("SPARK_REMOTE", "")).startswith("sc://"):
        builder = builder.remote(master or os.environ["SPARK_REMOTE"])
        chosen: dict[str, str] = {}
    else:
        _begin_jvm(given)
        chosen = _defaults(master)
        builder = builder.master(master) if master else builder
    for name, value in {**chosen, **given}.items():
        builder = builder.config(name, value)
    try:
        started = builder.getOrCreate()
    except Exception as error:
        # The JVM's own errors have a class of py4j, which clients of Spark Connect do not install.
        if not isinstance(error, PySparkException) and type(error).__module__ != "py4j.protocol":
            raise
        raise SparkSetupError(f"Spark does not start{f' on {master}' if master else ''}: "
                              f"{_reason(error)}.") from error
    # Otherwise the JVM exits before its workers, which then print stack traces.
    atexit.register(started.stop)
    register(started, ship=ship)
    return started


def _reason(error: Exception) -> str:
    """The first line of what PySpark or the JVM says, without the trace."""
    lines = str(getattr(error, "java_exception", None) or error).splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def _joined(active: SparkSession, master: str | None, conf: Mapping[str, str], ship: bool
            ) -> SparkSession:
    """The active session, with the settings that a running session accepts."""
    context = context_of(active)
    if master is not None and context is not None and context.master != master:
        raise SparkSetupError(f"A Spark session on {context.master} is active, so none was started "
                              f"on {master}: stop it first (spark.stop()), or leave master out.")
    for name, value in conf.items():
        if active.conf.get(name, None) == value:
            continue
        if not active.conf.isModifiable(name):
            raise SparkSetupError(f"A Spark session is active, and {name} can only be set when one "
                                  "starts: stop it first (spark.stop()), or leave the setting out.")
        active.conf.set(name, value)
    register(active, ship=ship)
    return active


def _begin_jvm(given: Mapping[str, str]) -> None:
    """Checks Java if a JVM must be started, and sets the Python of Spark's workers."""
    from pyspark import SparkContext

    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        problem = why_no_jvm()
        if problem is not None:
            raise SparkSetupError(f"{problem}.")
    # PySpark reads this variable for workers; the JVM reads it for its own lookups.
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))


def _defaults(master: str | None) -> dict[str, str]:
    """The settings that seglog sets unless the caller does."""
    chosen = {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master is not None and master.startswith("local"):
        # The host's name may not resolve, or resolve to a network that is down.
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if _RELEASE >= (4, 1) and hasattr(socket, "AF_UNIX"):
        chosen["spark.python.unix.domain.socket.enabled"] = "true"
    return chosen


def register(spark: SparkSession, *, ship: bool = False) -> None:
    """Registers `format("seglog")` and the SQL functions of `seglog.spark.functions` with `spark`,
    and checks that they work.

    Plans a read on the driver and, unless the master is local, checks the executors' Python and its
    packages. If PYSPARK_PYTHON is not set and Spark's `python3` does not work, workers run this
    interpreter instead. `ship` sends missing packages to the executors.

    Raises SparkSetupError, with one sentence on what is missing and where.
    """
    context = context_of(spark)
    lacking = _choose_python(spark, context)
    if lacking is not None and lacking.packages and ship and context is not None:
        ship_packages(context, lacking.packages)
        lacking = _attempt(spark, context)
    if lacking is not None:
        advice = (f"install seglog[spark] {__version__} there, or name a Python that has it in "
                  "PYSPARK_PYTHON before Spark starts")
        if lacking.packages and not ship:
            advice += ", or send it there with seglog.spark.register(spark, ship=True)"
        raise SparkSetupError(f"{lacking.sentence[:1].upper()}{lacking.sentence[1:]}; {advice}.")
    enable_pushdown(spark)
    with warnings.catch_warnings():
        # PySpark's warning about pandas 3 does not apply: seglog's functions take Arrow columns.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        register_functions(spark)


def _is_local(context: SparkContext) -> bool:
    return (context.master or "").startswith("local")


def _choose_python(spark: SparkSession, context: SparkContext | None) -> Shortfall | None:
    """Tries the possible Pythons for workers and keeps the first that can read."""
    if context is None:
        return _attempt(spark, None)
    given, environment = context.pythonExec, dict(context.environment)
    local = _is_local(context)
    pythons = [given]
    if "PYSPARK_PYTHON" not in os.environ and given != sys.executable:
        # Local workers try this Python first; remote machines may not have it.
        pythons.insert(0 if local else 1, sys.executable)
    first = None
    for python in pythons:
        context.pythonExec = python
        lacking = _attempt(spark, context)
        if lacking is None:
            return None
        first = first or lacking
    if local and sys.executable in pythons:
        # This Python lacks seglog because this process has it from its own sys.path.
        context.pythonExec = sys.executable
        context.environment["PYTHONPATH"] = os.pathsep.join(filter(os.path.isabs, sys.path))
        if _attempt(spark, context) is None:
            return None
    context.pythonExec, context.environment = given, environment
    return first


def _attempt(spark: SparkSession, context: SparkContext | None) -> Shortfall | None:
    """Registers the format, plans a read, and checks the Python of remote executors."""
    python = context.pythonExec if context is not None else "the server's Python"
    local = context is not None and _is_local(context)
    try:
        with _silent(context):
            _make_known(spark)
            # A Python worker on the driver parses the options; no path is opened.
            _ = spark.read.format("seglog").load(os.sep).schema
        if local:
            return None
        with _warning_when_idle():
            tasks = context.defaultParallelism if context is not None else _TASKS_OF_CONNECT
            found = probe_executors(spark, tasks)
    except Exception as error:  # Spark's, Py4J's or gRPC's
        return Shortfall(why_it_failed(error, python))
    return next(filter(None, map(shortfall, found)), None)


def _make_known(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(SeglogDataSource)
    except Exception as error:
        # Spark 4.0 refuses to register a format that it has already found itself.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


@contextlib.contextmanager
def _silent(context: SparkContext | None) -> Iterator[None]:
    """Silences the JVM's log, which prints a stack trace for errors reported here."""
    if context is None:
        yield
        return
    jvm: Any = context._jvm
    level = jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().name()
    context.setLogLevel("OFF")
    try:
        yield
    finally:
        context.setLogLevel(level)


@contextlib.contextmanager
def _warning_when_idle() -> Iterator[None]:
    """Warns if no executor answers, because Spark waits for one forever."""
    timer = threading.Timer(_PATIENCE_SECONDS, _log.warning, (
        "no executor has answered for %.0f s; Spark waits for one", _PATIENCE_SECONDS))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
