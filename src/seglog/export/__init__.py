"""Export of records to Parquet, Arrow IPC, CSV and JSON lines (`seglog export`)."""

from seglog.export.formats import FORMATS, Sink, format_of, make_sink
from seglog.export.output_file import CountedFile, OutputFile

__all__ = ["CountedFile", "FORMATS", "OutputFile", "Sink", "format_of", "make_sink"]
