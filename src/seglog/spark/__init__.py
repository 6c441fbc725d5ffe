"""Kafka's partition logs in Spark: `spark.read.format("seglog").load(path)`, streams, writers.

`session()` starts Spark with everything the format needs, and `register(spark)` adds the format to
a running session. Spark 4 also finds it without `register`, through the `pyspark_seglog` module, if
its workers' Python has it. `verify` checks data directories on a cluster, `count` counts records
by batch headers, and `seglog.spark.functions` has functions on columns.

Executors never lock or recover: this package imports neither the loader nor a manager.
"""

from __future__ import annotations

import sys as _sys
from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from seglog import forks as _forks
from seglog.spark.failures import end_quietly as _end_quietly

try:
    for _module in ("pyarrow", "pyspark", "pyspark.sql.datasource"):
        _import_module(_module)
except ImportError as error:
    _old = getattr(_sys.modules.get("pyspark"), "__version__", None)
    _found = f"no {error.name}" if error.name == "pyarrow" or _old is None else f"PySpark {_old}"
    raise ImportError(f"seglog.spark needs pyarrow and PySpark 4.0 or newer, and {_sys.executable} "
                      f"has {_found}: pip install 'seglog[spark]'") from None

if TYPE_CHECKING:
    from seglog.spark.counts import Counts, count
    from seglog.spark.replica_table import replicas
    from seglog.spark.source import SeglogDataSource
    from seglog.spark.spark_session import register, session
    from seglog.spark.streaming.handover import end_offsets
    from seglog.spark.verification import Verification, verify

# Imported at their first use: Spark starts Python for each step of a query's planning, and these
# steps need the data source alone.
__getattr__, __dir__ = _forks.imported_at_use(__name__, {
    "counts": ("Counts", "count"), "filters": ("filters",), "functions": ("functions",),
    "replica_table": ("replicas",), "source": ("SeglogDataSource",),
    "spark_session": ("register", "session"), "streaming.handover": ("end_offsets",),
    "verification": ("Verification", "verify"),
})

__all__ = ["Counts", "SeglogDataSource", "Verification", "count", "end_offsets", "register",
           "replicas", "session", "verify"]

_end_quietly()
