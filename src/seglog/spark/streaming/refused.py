"""A stream whose options are refused: Spark learns why at its first call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pyarrow as pa
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
    def _refuse(self) -> NoReturn:
        raise self._error

    def initialOffset(self) -> NoReturn:
        """Raises the error."""
        self._refuse()

    def latestOffset(self, start: Any = None, limit: Any = None) -> NoReturn:
        """Raises the error."""
        self._refuse()

    def getDefaultReadLimit(self) -> NoReturn:
        """Raises the error."""
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        """Raises the error."""
        self._refuse()

    def partitions(self, start: Any, end: Any) -> NoReturn:
        """Raises the error."""
        self._refuse()

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Raises the error."""
        self._refuse()
