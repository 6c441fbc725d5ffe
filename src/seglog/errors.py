"""The exceptions of seglog.

Names are Kafka's in Python's spelling: `CorruptRecordError` is Kafka's `CorruptRecordException`,
which `kafka_name` holds; a class that is another exception in Kafka says which. Every error about
bytes on disk carries the file, the position, the expected value and the value found.
"""

from __future__ import annotations

import contextlib
import errno
import os

TYPE_CHECKING = False  # `seglog --help` imports no typing
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, ClassVar

__all__ = [
    "AllLogDirsFailedError", "ConfigError", "CorruptDataError", "CorruptIndexError",
    "CorruptRecordError", "CorruptSnapshotError", "CorruptTxnStateError", "DecompressionError",
    "DuplicateLogDirError", "DuplicatePartitionError", "ForkedProcessError",
    "IllegalArgumentError", "IllegalStateError",
    "InconsistentLogDirError", "InconsistentTopicIdError",
    "InvalidProducerEpochError", "InvalidRecordError", "InvalidReplicaAssignmentError",
    "InvalidTimestampError", "InvalidTopicError", "InvalidTopicPartitionError",
    "InvalidTxnStateError", "KafkaStorageError", "LogCleaningAbortedError", "LogCleaningError",
    "LogDirLockedError", "LogDirNotFoundError",
    "LogLoadError", "LogManagerStateError", "LogSegmentOffsetOverflowError",
    "MalformedCheckpointError", "MetadataParseError", "OffsetOutOfRangeError",
    "OffsetsOutOfOrderError", "OutOfBoundsError", "OutOfOrderSequenceError",
    "RecordBatchTooLargeError", "RecordTooLargeError", "RecordValidationError",
    "RemoteMetadataTimeoutError", "RemoteReadTimeoutError", "RemoteResourceNotFoundError",
    "RemoteStorageError", "ReplicaNotAvailableError", "RetriableRemoteStorageError",
    "SeglogError", "SparkSetupError", "TransactionCoordinatorFencedError", "UncheckedError",
    "UnexpectedAppendOffsetError", "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError", "UnsupportedOperationError", "storage_errors",
]


class SeglogError(Exception):
    """Base class of all errors that seglog raises deliberately."""

    kafka_name: ClassVar[str] = "KafkaException"
    #: Set by an append of many batches: the LogAppendInfo of the batches already appended.
    appended: Any = None
    #: Set by a cleaning round: file and position of the batch that cannot be cleaned.
    batch_at: tuple[str, int] | None = None

    def __init_subclass__(cls) -> None:
        if "kafka_name" not in vars(cls) and cls.__name__.endswith("Error"):
            cls.kafka_name = f"{cls.__name__.removesuffix('Error')}Exception"

    def __reduce__(self) -> tuple[Any, ...]:
        # Not the constructor: it may take other arguments, or make another message in another
        # process. Spark executors pickle errors.
        return (_without_constructor, (type(self), self.args), self.__dict__)


def _without_constructor(cls: type[SeglogError], args: tuple[Any, ...]) -> SeglogError:
    return cls.__new__(cls, *args)


class CorruptDataError(SeglogError, ValueError):
    """Bytes on disk that Kafka cannot have written.

    `code` is the stable name of the cause (`batch_crc`, `index_size`, ...), one of those in
    csrc/include/seglog/statuses.h; `position` is the byte offset in `file`.
    """

    kafka_name = "KafkaException"

    def __init__(self, message: str, *, file: str | None = None, position: int | None = None,
                 expected: Any = None, found: Any = None, code: str = "corrupt",
                 kafka_name: str | None = None) -> None:
        super().__init__(message)
        self.file, self.position = file, position
        self.expected, self.found, self.code = expected, found, code
        if kafka_name is not None:
            self.kafka_name = kafka_name  # type: ignore[misc]


class CorruptRecordError(CorruptDataError):
    """A batch whose length, size or CRC is wrong."""


class InvalidRecordError(CorruptDataError):
    """A batch with a good CRC whose records do not parse."""


class DecompressionError(CorruptDataError):
    """A compressed payload that its codec rejects, or that decompresses to more than the cap."""

    kafka_name = "KafkaException"


class UnsupportedCompressionTypeError(CorruptDataError):
    """Codec bits that are not a codec of this message format."""


class CorruptIndexError(CorruptDataError):
    """An offset, time or transaction index with invalid contents."""


class CorruptSnapshotError(CorruptDataError):
    """A producer state snapshot with a bad CRC, version or size."""


class InvalidTxnStateError(SeglogError, ValueError):
    """A batch that contradicts its producer's transaction state."""


class CorruptTxnStateError(CorruptDataError, InvalidTxnStateError):
    """A batch read from a log that contradicts its producer's transaction state.

    No broker writes such a batch.
    """

    kafka_name = "InvalidTxnStateException"


class InvalidProducerEpochError(SeglogError, ValueError):
    """A batch or marker with a producer epoch that a newer epoch has fenced."""


class OutOfOrderSequenceError(SeglogError, ValueError):
    """A batch of an idempotent producer whose first sequence is not the expected next one."""


class TransactionCoordinatorFencedError(SeglogError, ValueError):
    """A marker of a transaction coordinator that a newer one has replaced."""


class UncheckedError(SeglogError, RuntimeError):
    """Bytes for which Kafka fails with an unchecked Java exception.

    `kafka_name` is that exception (`NullPointerException`, ...), and the message is Java's.
    """

    def __init__(self, message: str, kafka_name: str = "RuntimeException") -> None:
        super().__init__(message)
        self.kafka_name = kafka_name  # type: ignore[misc]


class MalformedCheckpointError(CorruptDataError):
    """A checkpoint or metadata text file that does not parse."""

    kafka_name = "KafkaStorageException"


class ConfigError(SeglogError, ValueError):
    """A setting with a value that Kafka rejects."""


class InvalidTopicPartitionError(SeglogError, ValueError):
    """A directory name that does not have the form topic-partition."""

    kafka_name = "KafkaException"


class OffsetOutOfRangeError(SeglogError, ValueError):
    """An offset below the log start offset or above the log end offset."""


class UnknownTopicOrPartitionError(SeglogError, LookupError):
    """A topic or partition that the data directory does not hold."""


class KafkaStorageError(SeglogError, OSError):
    """A file operation failed: the file is missing, unreadable or deleted, or an I/O error.

    The arguments, `errno` and `filename` are OSError's; the other attributes are those of
    CorruptDataError.
    """
    code = "io"

    def __init__(self, *args: Any, position: int | None = None, expected: Any = None,
                 found: Any = None, code: str = code) -> None:
        super().__init__(*args)
        self.position, self.expected, self.found, self.code = position, expected, found, code

    @property
    def file(self) -> str | None:
        """`filename`, by the name that CorruptDataError gives it."""
        name: str | None = self.filename
        return name

    def __reduce__(self) -> tuple[Any, ...]:
        found = OSError.__reduce__(self)  # with the file name, which `args` does not have
        assert isinstance(found, tuple)
        return found


@contextlib.contextmanager
def storage_errors(path: str, position: int | None = None) -> Iterator[None]:
    """Turns an OSError into a KafkaStorageError: for the file that it names, or else for `path`."""
    try:
        yield
    except SeglogError:
        raise
    except OSError as error:
        raise KafkaStorageError(error.errno or errno.EIO, error.strerror or str(error),
                                error.filename or path, position=position) from error


class LogLoadError(CorruptDataError):
    """A log that neither Kafka's loader nor seglog's can load: a broker would stop here.

    `kafka_name` is the exception that Kafka throws, and the message is Kafka's.
    """


class MetadataParseError(CorruptDataError):
    """A record value in one of Kafka's metadata topics does not parse.

    `kafka_name` is the exception that Kafka throws, and the message is Kafka's. `position` is the
    byte offset in the value.
    """


class RemoteStorageError(SeglogError):
    """Remote storage or its metadata failed, or returned an unexpected result."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The same call may succeed later: nothing is to be cleaned up."""


class RemoteMetadataTimeoutError(RemoteStorageError, TimeoutError):
    """A metadata record was written, and was not read back in time."""

    kafka_name = "TimeoutException"


class RemoteReadTimeoutError(RetriableRemoteStorageError, TimeoutError):
    """Remote storage did not answer a lookup in time."""

    kafka_name = "TimeoutException"


class RemoteResourceNotFoundError(RemoteStorageError, LookupError):
    """A remote segment, index or partition that does not exist."""


class ReplicaNotAvailableError(SeglogError):
    """The metadata of a remote partition is not complete yet: try again later."""


class AllLogDirsFailedError(KafkaStorageError):
    """All data directories have failed; Kafka halts its process here."""

    kafka_name = "KafkaStorageException"


class LogDirLockedError(SeglogError):
    """Another process, or another part of this one, holds the lock of a data directory.

    `holder_pid` is that process, or None if the system does not report it; `command` is its
    program.
    """

    kafka_name = "KafkaException"

    def __init__(self, log_dir: str, holder_pid: int | None = None,
                 command: str | None = None) -> None:
        # The first sentence is from Kafka's LogManager.lockLogDirs.
        text = f"Failed to acquire lock on file .lock in {log_dir}. "
        if holder_pid == os.getpid():
            text += (f"It is already open in this process (process {holder_pid}): close the "
                     "LogManager or the log that has it first.")
        else:
            holder = "" if holder_pid is None else f" (process {holder_pid})"
            text += ("A Kafka instance in another process or thread is using this directory"
                     f"{holder if command is None else ''}.")
            if command is not None:
                text += f" It is in use by process {holder_pid} ({command})."
        super().__init__(text)
        self.log_dir, self.holder_pid, self.command = log_dir, holder_pid, command


class DuplicateLogDirError(SeglogError, ValueError):
    """Two configured data directories are the same directory."""

    kafka_name = "KafkaException"


class InconsistentLogDirError(CorruptDataError):
    """`meta.properties` names another cluster, node or directory than the expected one."""

    kafka_name = "RuntimeException"


class DuplicatePartitionError(SeglogError):
    """Two directories hold the same partition."""

    kafka_name = "IllegalStateException"


class LogDirNotFoundError(SeglogError, LookupError):
    """A data directory that is not in the configuration."""


class InvalidTopicError(SeglogError, ValueError):
    """A topic name that Kafka would not create, or that is too long for the operation."""


class InvalidReplicaAssignmentError(SeglogError, ValueError):
    """A partition was assigned to a directory that cannot take it."""


class LogManagerStateError(SeglogError, RuntimeError):
    """A call that a log manager does not serve before its start or after its shutdown."""

    kafka_name = "IllegalStateException"


class IllegalArgumentError(SeglogError, ValueError):
    """An argument that Kafka rejects with Java's IllegalArgumentException."""


class IllegalStateError(SeglogError, RuntimeError):
    """An operation that is not allowed in the current state."""


class ForkedProcessError(IllegalStateError):
    """A log, manager or scheduler was used in a forked child of the process that opened it.

    `owner_pid` is the process that opened it.
    """

    kafka_name = "IllegalStateException"

    def __init__(self, name: str, owner_pid: int,
                 advice: str = "Open it again in this process, after the fork.") -> None:
        super().__init__(
            f"This {name} was opened by process {owner_pid} and belongs to it; this is process "
            f"{os.getpid()}, forked from it. {advice}")
        self.name, self.owner_pid = name, owner_pid


class InconsistentTopicIdError(SeglogError, ValueError):
    """A log with the topic id of another topic."""


class RecordBatchTooLargeError(SeglogError, ValueError):
    """An append larger than a segment."""


class RecordTooLargeError(SeglogError, ValueError):
    """A batch larger than `max.message.bytes`."""


class OffsetsOutOfOrderError(SeglogError, ValueError):
    """Batches with assigned offsets that do not increase."""


class InvalidTimestampError(SeglogError, ValueError):
    """Records with timestamps that the topic's settings reject."""


class RecordValidationError(SeglogError, ValueError):
    """Records that the topic's settings reject; the whole batch is rejected with them.

    `invalid_exception` is the error that a client receives (InvalidTimestampError or
    InvalidRecordError), whose message this error has. `record_errors` holds all record errors, in
    order.
    """

    def __init__(self, invalid_exception: SeglogError, record_errors: Sequence[object]) -> None:
        super().__init__(str(invalid_exception))
        self.invalid_exception, self.record_errors = invalid_exception, tuple(record_errors)


class SparkSetupError(SeglogError, RuntimeError):
    """Spark cannot run seglog: the message says what is missing, on the driver or an executor."""

    kafka_name = "KafkaException"


class UnsupportedOperationError(SeglogError, RuntimeError):
    """Input for which Kafka's code throws UnsupportedOperationException."""


class OutOfBoundsError(SeglogError, IndexError):
    """A field that extends beyond its record or batch."""

    kafka_name = "IndexOutOfBoundsException"


class LogSegmentOffsetOverflowError(SeglogError, ValueError):
    """An offset that is too far from the base offset of its segment."""


class LogCleaningAbortedError(SeglogError, RuntimeError):
    """A cleaning round that ended early and left the log unchanged; it may be retried."""


class LogCleaningError(SeglogError, RuntimeError):
    """A log that cannot be cleaned, for the reason in `__cause__`.

    Its partition is uncleanable from then on. `log` is the UnifiedLog.
    """

    def __init__(self, message: str, log: Any = None) -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the log, which belongs to this process.
        make, args, state = super().__reduce__()
        return (make, args, state | {"log": None})


class UnexpectedAppendOffsetError(SeglogError, ValueError):
    """Records with assigned offsets that begin before the log end offset.

    `first_offset` and `last_offset` are the append's.
    """

    def __init__(self, message: str, first_offset: int = -1, last_offset: int = -1) -> None:
        super().__init__(message)
        self.first_offset, self.last_offset = first_offset, last_offset
