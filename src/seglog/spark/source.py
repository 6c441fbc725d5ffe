"""The data source class that Spark instantiates to get a reader or writer for some options."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter,
)
from pyspark.sql.types import StructType

from seglog.spark.failures import in_one_sentence
from seglog.spark.read_options import parse_options
from seglog.spark.source_reader import make_reader
from seglog.spark.source_schema import check_schema, spark_schema
from seglog.spark.streaming.micro_batch import SeglogStreamReader
from seglog.spark.streaming.refused import RefusedStream
from seglog.spark.streaming.stream_options import parse_stream_options

__all__ = ["SeglogDataSource"]


class SeglogDataSource(DataSource):
    """`format("seglog")`: the options and schema of Spark's Kafka source over log directories.
    docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "seglog"

    @in_one_sentence
    def schema(self) -> StructType:
        """The columns for these options. Raises ValueError for bad options."""
        if _asks_for_table(self.options):
            from seglog.spark.directory_tables import table_schema  # records need none of it

            return table_schema(self.options)
        # Spark does not say here whether it is for a batch or a stream.
        return spark_schema(parse_options(self.options, is_stream=True))

    @in_one_sentence
    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for the declared or the user's schema. Raises ValueError for a bad schema."""
        if _asks_for_table(self.options):
            from seglog.spark.directory_tables import TableReader

            return TableReader(self.options, schema)
        return make_reader(parse_options(self.options), check_schema(schema))

    @in_one_sentence
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of micro-batches. What `reader` raises, and ValueError for a table, is raised by
        its first call."""
        try:
            if _asks_for_table(self.options):
                raise ValueError("Option 'table': a stream reads records; read tables with "
                                 "spark.read.")
            return SeglogStreamReader(parse_stream_options(self.options), check_schema(schema))
        except ValueError as error:
            return RefusedStream(error)

    @in_one_sentence
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """A writer for a DataFrame with the columns of Spark's Kafka sink. Raises as
        `SeglogWriter` does."""
        from seglog.spark.sink import SeglogWriter  # readers do not need the encoder

        return SeglogWriter(dict(self.options), schema, overwrite)

    @in_one_sentence
    def streamWriter(self, schema: StructType, overwrite: bool
                     ) -> DataSourceStreamWriter:
        """A writer for a streaming query. Raises as `writer` does."""
        from seglog.spark.sink import SeglogStreamWriter

        return SeglogStreamWriter(dict(self.options), schema, overwrite)


def _asks_for_table(options: Mapping[str, str]) -> bool:
    given = {name.lower(): value for name, value in options.items()}
    return given.get("table", "records").strip().lower() != "records"
