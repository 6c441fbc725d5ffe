"""A stream whose options are refused: Spark learns why at its first call."""

from __future__ import annotations

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader

from seglog.spark.failures import in_one_sentence
from seglog.spark.streaming.micro_batch import SupportsTriggerAvailableNow

__all__ = ["RefusedStream"]


class RefusedStream(SupportsTriggerAvailableNow, DataSourceStreamReader):
    """Raises `error` in every call for data. PySpark's python_streaming_source_runner reports an
    error of `DataSource.streamReader` as an UnboundLocalError of its own `reader`."""

    def __init__(self, error: ValueError) -> None:
        self._error = error

    @in_one_sentence
    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = getDefaultReadLimit = _refuse
    prepareForTriggerAvailableNow = partitions = read = _refuse
