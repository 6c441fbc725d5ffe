"""LogReader: the reading vocabulary of PartitionLog, UnifiedLog and EmbeddedLog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from seglog.model import TimestampOffset, TopicPartition
from seglog.storage.batches import FetchData
from seglog.storage.isolation import Isolation
from seglog.storage.record_rows import ColumnFollower, Record
from seglog.storage.stream import RecordBatchStream

__all__ = ["BATCH_BYTES", "BATCH_ROWS", "LogReader"]

#: Default upper bounds of one set of columns of `to_arrow`.
BATCH_ROWS: Final = 16384
BATCH_BYTES: Final = 64 * 1024 * 1024


class LogReader(Protocol):
    """A log as its readers see it. PartitionLog, UnifiedLog and EmbeddedLog are LogReaders.

    `isolation` says up to which offset a read goes (`storage.isolation.Isolation`). A start outside
    of the log raises OffsetOutOfRangeError, corrupt bytes raise CorruptDataError, and errors of the
    file system KafkaStorageError.
    """

    @property
    def path(self) -> str:
        """The partition directory, or its URL."""

    @property
    def topic_partition(self) -> TopicPartition | None:
        """The partition; None if the directory's name is not a partition's."""

    @property
    def log_start_offset(self) -> int:
        """The first readable offset."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def last_stable_offset(self) -> int:
        """The offset below which no transaction is open."""

    def fetch(self, start_offset: int, max_bytes: int,
              isolation: Isolation = "read_uncommitted") -> FetchData:
        """Whole record batches of one segment, from the one that holds `start_offset`, as Kafka's
        fetch: at least one batch, then as many as fit into `max_bytes`; none at the end.

        CRCs are left to the consumer. ValueError for negative `max_bytes`.
        """

    def to_arrow(self, start_offset: int | None = None, end_offset: int | None = None,
                 columns: Sequence[str] | None = None, isolation: Isolation = "read_uncommitted",
                 *, threads: int = 0, batch_rows: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES,
                 include_control: bool = False, check_crcs: bool = True) -> RecordBatchStream:
        """The records of `[start_offset, end_offset)`, by default all that exist now, as a lazy
        stream of Arrow record batches.

        `columns` are names of `seglog.arrow.COLUMNS`. A batch has at most `batch_rows` rows and
        `batch_bytes` of keys, values and headers (a single record may have more). `threads` decode
        ahead; with 0 the consumer's thread decodes. Each batch is a `seglog.arrow.RecordColumns`.
        """

    def records(self, start_offset: int | None = None, end_offset: int | None = None, *,
                isolation: Isolation = "read_uncommitted") -> Iterator[Record]:
        """Yields the records of `to_arrow` one by one."""

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record at or after a time, None if all are earlier. Negative values are Kafka's
        special timestamps (`seglog.model`). Control records count, as in Kafka."""

    def follow(self, start_offset: int | None = None, *, end_offset: int | None = None,
               isolation: Isolation = "read_uncommitted", timeout: float | None = None,
               columns: Sequence[str] | None = None, include_control: bool = False
               ) -> ColumnFollower:
        """Like `to_arrow`, but waits for new records. Starts at `start_offset`, by default at the
        end.

        Ends at `end_offset`, after `timeout` seconds without new records, or when it or the log is
        closed. After a timeout it can be iterated again, and waits for the next records. Raises
        OffsetOutOfRangeError if returned records are truncated.
        """
