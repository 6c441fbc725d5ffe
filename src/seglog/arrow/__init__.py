"""Records as Arrow data, by the Arrow C data interface; no Arrow library is needed for it."""

from seglog.arrow.reader import DecodeOptions, RecordBatchStream, decode_range, read
from seglog.arrow.schema import COLUMNS, DEFAULT_COLUMNS, RecordSchema

__all__ = ["COLUMNS", "DEFAULT_COLUMNS", "DecodeOptions", "RecordBatchStream", "RecordSchema",
           "decode_range", "read"]
