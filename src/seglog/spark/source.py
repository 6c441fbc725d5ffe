"""The data source class that Spark instantiates; options in, a reader out."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from seglog.spark.options import parse_options
from seglog.spark.reader import SeglogReader
from seglog.spark.schema import check_schema, spark_schema

__all__ = ["SeglogDataSource"]


class SeglogDataSource(DataSource):
    """`format("seglog")`: the options and the schema of Spark's Kafka source, read from the log
    directories themselves. docs/spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "seglog"

    def schema(self) -> StructType:
        """The columns for these options. Raises ValueError for options it refuses."""
        return spark_schema(parse_options(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the declared or user-given schema. Raises ValueError if it does not fit."""
        return SeglogReader(parse_options(self.options), check_schema(schema))
