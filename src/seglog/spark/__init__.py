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

try:
    for _module in ("pyarrow", "pyspark", "pyspark.sql.datasource"):
        _import_module(_module)
except ImportError as error:
    _old = getattr(_sys.modules.get("pyspark"), "__version__", None)
    _found = f"no {error.name}" if error.name == "pyarrow" or _old is None else f"PySpark {_old}"
    raise ImportError(f"seglog.spark needs pyarrow and PySpark 4.0 or newer, and {_sys.executable} "
                      f"has {_found}: pip install 'seglog[spark]'") from None

from seglog.spark.counts import Counts, count
from seglog.spark.failures import end_quietly
from seglog.spark.replica_table import replicas
from seglog.spark.session import register, session
from seglog.spark.source import SeglogDataSource
from seglog.spark.streaming.handover import end_offsets
from seglog.spark.verification import Verification, verify

__all__ = ["Counts", "SeglogDataSource", "Verification", "count", "end_offsets", "register",
           "replicas", "session", "verify"]

end_quietly()
