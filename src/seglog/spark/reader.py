"""The reader: plans on the driver, decodes on the executors, writes nothing anywhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from seglog.errors import CorruptDataError, KafkaStorageError
from seglog.spark.options import ReadOptions
from seglog.spark.plan import SeglogPartition, plan_partitions
from seglog.spark.schema import RowConverter
from seglog.storage.stream import DecodeOptions, decode_range

__all__ = ["SeglogReader"]

_log = logging.getLogger(__name__)


class SeglogReader(DataSourceReader):
    """Reads the columns `names` (of the declared schema, in its order).

    It has no `pushFilters`: Spark refuses a reader that overrides it while
    spark.sql.python.filterPushdown.enabled is off, which it is by default.
    """

    def __init__(self, options: ReadOptions, names: Sequence[str]) -> None:
        self._options = options
        self._names = tuple(names)

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks of the query, planned on the driver. Raises what `plan_partitions` raises."""
        return plan_partitions(self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one task. CorruptDataError or KafkaStorageError on damage, or, with
        failOnDataLoss off, a warning and the next range."""
        if not isinstance(partition, SeglogPartition):
            return  # Spark's stand-in when there is nothing to read
        converter = RowConverter(self._names, partition.topic_partition, self._options.batch_rows)
        decoding = DecodeOptions(columns=converter.native_columns,
                                 batch_rows=self._options.batch_rows,
                                 check_crcs=self._options.check_crcs)
        for planned in partition.ranges:
            try:
                for columns in decode_range(planned, decoding):
                    yield converter.convert(columns)
            except (CorruptDataError, KafkaStorageError) as error:
                if self._options.fail_on_data_loss:
                    raise
                _log.warning("failOnDataLoss is false, skipping to the next range after: %s", error)
