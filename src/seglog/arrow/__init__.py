"""Records as Arrow data through the Arrow C data interface, without an Arrow library."""

from seglog._native.columns import RecordColumns
from seglog.arrow.read_stream import (
    DecodeOptions, RecordBatchStream, batch_headers, decode_range, read,
)
from seglog.arrow.schema import COLUMNS, DEFAULT_COLUMNS, ORIGIN_COLUMNS, RecordSchema
from seglog.arrow.topics import TOPIC_COLUMNS, TopicStream

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "DecodeOptions", "ORIGIN_COLUMNS", "RecordBatchStream",
           "RecordColumns", "RecordSchema", "TOPIC_COLUMNS", "TopicStream", "batch_headers",
           "decode_range", "read"]
