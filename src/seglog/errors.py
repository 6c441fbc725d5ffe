"""The exceptions of seglog.

Kafka's names in Python's spelling: `CorruptRecordError` is Kafka's `CorruptRecordException`, and
`kafka_name` says so. Every error about bytes on disk carries the file, the position, what was
expected and what was found.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

__all__ = [
    "AllLogDirsFailedError", "ConfigError", "CorruptDataError", "CorruptIndexError",
    "CorruptRecordError", "CorruptSnapshotError", "CorruptTxnStateError", "DecompressionError",
    "DuplicateLogDirError", "DuplicatePartitionError", "ForkedProcessError",
    "IllegalArgumentError", "IllegalStateError",
    "InconsistentLogDirError", "InconsistentTopicIdError", "InvalidOffsetError",
    "InvalidProducerEpochError", "InvalidRecordError", "InvalidReplicaAssignmentError",
    "InvalidTimestampError", "InvalidTopicError", "InvalidTopicPartitionError",
    "InvalidTxnStateError", "KafkaStorageError", "LogCleaningAbortedError", "LogCleaningError",
    "LogDirLockedError", "LogDirNotFoundError",
    "LogLoadError", "LogManagerStateError", "LogSegmentOffsetOverflowError",
    "MalformedCheckpointError", "MetadataParseError", "OffsetOutOfRangeError",
    "OffsetsOutOfOrderError", "OutOfBoundsError", "OutOfOrderSequenceError", "ReadOnlyError",
    "RecordBatchTooLargeError", "RecordTooLargeError", "RecordValidationError",
    "RemoteMetadataTimeoutError", "RemoteResourceNotFoundError", "RemoteStorageError",
    "ReplicaNotAvailableError", "RetriableRemoteStorageError",
    "SeglogError", "SparkSetupError", "TransactionCoordinatorFencedError", "UncheckedError",
    "UnexpectedAppendOffsetError", "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError", "UnsupportedOperationError",
]


class SeglogError(Exception):
    """Base of every error that seglog raises on purpose."""

    kafka_name: ClassVar[str] = "KafkaException"
    #: Of an append of many batches: what became of those before (a LogAppendInfo).
    appended: Any = None
    #: Of a round of cleaning: file and byte of the batch that cannot be cleaned.
    batch_at: tuple[str, int] | None = None


class CorruptDataError(SeglogError, ValueError):
    """Bytes on disk that cannot be what Kafka wrote.

    `code` is the stable name of the cause (`batch_crc`, `index_size`, ...), one of those in
    csrc/include/seglog/statuses.h; `position` is the byte in `file`.
    """

    def __init__(self, message: str, *, file: str | None = None, position: int | None = None,
                 expected: Any = None, found: Any = None, code: str = "corrupt") -> None:
        super().__init__(message)
        self.file, self.position = file, position
        self.expected, self.found, self.code = expected, found, code

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments: without this an error could not leave a Spark executor.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[SeglogError], args: tuple[Any, ...], state: dict[str, Any]) -> SeglogError:
    error = cls(*args)
    error.__dict__.update(state)
    return error


class CorruptRecordError(CorruptDataError):
    """A batch whose length, size or CRC is wrong."""

    kafka_name = "CorruptRecordException"


class InvalidRecordError(CorruptDataError):
    """A batch with a good CRC whose records do not parse."""

    kafka_name = "InvalidRecordException"


class DecompressionError(CorruptDataError):
    """A compressed payload that its codec refuses, or that grows past the cap."""


class UnsupportedCompressionTypeError(CorruptDataError):
    """Codec bits that name no codec of this message format."""

    kafka_name = "UnsupportedCompressionTypeException"


class CorruptIndexError(CorruptDataError):
    """An offset, time or transaction index that does not hold what an index holds."""

    kafka_name = "CorruptIndexException"


class CorruptSnapshotError(CorruptDataError):
    """A producer state snapshot with a bad CRC, version or size."""

    kafka_name = "CorruptSnapshotException"


class InvalidTxnStateError(SeglogError, ValueError):
    """A batch that contradicts the transaction its producer has open, or has not."""

    kafka_name = "InvalidTxnStateException"


class CorruptTxnStateError(CorruptDataError, InvalidTxnStateError):
    """Such a batch in a log that is read: no broker has written it there."""

    kafka_name = "InvalidTxnStateException"


class InvalidProducerEpochError(SeglogError, ValueError):
    """A batch or marker of a producer epoch that a newer one has fenced off."""

    kafka_name = "InvalidProducerEpochException"


class OutOfOrderSequenceError(SeglogError, ValueError):
    """A batch of an idempotent producer whose first sequence is not the next one."""

    kafka_name = "OutOfOrderSequenceException"


class TransactionCoordinatorFencedError(SeglogError, ValueError):
    """A marker of a transaction coordinator that a newer one has replaced."""

    kafka_name = "TransactionCoordinatorFencedException"


class UncheckedError(SeglogError, RuntimeError):
    """Where Kafka stumbles over bytes that it did not foresee: `kafka_name` is what Java throws
    there (`NullPointerException`, ...), the message is Java's."""

    def __init__(self, message: str, kafka_name: str = "RuntimeException") -> None:
        super().__init__(message)
        self.kafka_name = kafka_name  # type: ignore[misc]

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (*self.args, self.kafka_name))


class MalformedCheckpointError(CorruptDataError):
    """A checkpoint or metadata text file that does not parse."""

    kafka_name = "KafkaStorageException"


class ConfigError(SeglogError, ValueError):
    """A setting with a value that Kafka refuses."""

    kafka_name = "ConfigException"


class InvalidTopicPartitionError(SeglogError, ValueError):
    """A directory name that is not of the form topic-partition."""


class InvalidOffsetError(SeglogError, ValueError):
    """An offset that goes backwards."""

    kafka_name = "InvalidOffsetException"


class OffsetOutOfRangeError(SeglogError, ValueError):
    """An offset below the log start offset or above the log end offset."""

    kafka_name = "OffsetOutOfRangeException"


class UnknownTopicOrPartitionError(SeglogError, LookupError):
    """A topic or partition that the data directory does not hold."""

    kafka_name = "UnknownTopicOrPartitionException"


class KafkaStorageError(SeglogError, OSError):
    """The file system refused: missing, unreadable, vanished, or an I/O error.

    `errno` and `filename` are OSError's; the rest is as in CorruptDataError where native code met
    the failure.
    """

    kafka_name = "KafkaStorageException"

    code: str = "io"
    file: str | None = None
    position: int | None = None
    expected: Any = None
    found: Any = None


class LogLoadError(CorruptDataError):
    """A log that Kafka's loader gives up, and seglog's with it: a broker would stop here.

    `kafka_name` is the exception that Kafka throws, and the message is Kafka's.
    """

    def __init__(self, message: str, *, kafka_name: str = "KafkaException", **where: Any) -> None:
        super().__init__(message, **where)
        self.kafka_name = kafka_name  # type: ignore[misc]


class MetadataParseError(CorruptDataError):
    """The value of a record in one of Kafka's metadata topics that does not parse.

    `kafka_name` is the exception that Kafka throws, and the message is Kafka's. `position` is the
    byte in the value.
    """

    kafka_name = "MetadataParseException"

    def __init__(self, message: str, *, kafka_name: str = "MetadataParseException",
                 **where: Any) -> None:
        super().__init__(message, **where)
        self.kafka_name = kafka_name  # type: ignore[misc]


class RemoteStorageError(SeglogError):
    """Remote storage, or the metadata of it, does not answer as it should."""

    kafka_name = "RemoteStorageException"


class RetriableRemoteStorageError(RemoteStorageError):
    """The same call may succeed later: nothing is to be cleaned up."""

    kafka_name = "RetriableRemoteStorageException"


class RemoteMetadataTimeoutError(RemoteStorageError, TimeoutError):
    """A metadata record was written, and was not read back in time."""

    kafka_name = "TimeoutException"


class RemoteResourceNotFoundError(RemoteStorageError, LookupError):
    """A remote segment, index or partition that is not there."""

    kafka_name = "RemoteResourceNotFoundException"


class ReplicaNotAvailableError(SeglogError):
    """The metadata of a remote partition is not complete yet: ask again."""

    kafka_name = "ReplicaNotAvailableException"


class ReadOnlyError(SeglogError):
    """A write to a log that was opened read-only."""


class AllLogDirsFailedError(KafkaStorageError):
    """No data directory is left to work with; Kafka halts its process here."""


class LogDirLockedError(SeglogError):
    """Another process, or another part of this one, has the lock of a data directory.

    `holder_pid` is the process, None where the system does not say, and `command` its program.
    """

    def __init__(self, log_dir: str, holder_pid: int | None = None,
                 command: str | None = None) -> None:
        # The first sentence is that of Kafka's LogManager.lockLogDirs.
        text = f"Failed to acquire lock on file .lock in {log_dir}. "
        if holder_pid == os.getpid():
            text += (f"It is already open in this process (process {holder_pid}): close the "
                     "LogManager or the log that has it first.")
        else:
            holder = "" if holder_pid is None else f" (process {holder_pid})"
            text += ("A Kafka instance in another process or thread is using this directory"
                     f"{holder}.")
            if command is not None:
                text += f" It is in use by process {holder_pid} ({command})."
        super().__init__(text)
        self.log_dir, self.holder_pid, self.command = log_dir, holder_pid, command

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.log_dir, self.holder_pid, self.command))


class DuplicateLogDirError(SeglogError, ValueError):
    """Two configured data directories are one."""


class InconsistentLogDirError(CorruptDataError):
    """`meta.properties` of a data directory says that it belongs to another cluster or node, or
    that it is another directory."""

    kafka_name = "RuntimeException"


class DuplicatePartitionError(SeglogError):
    """Two directories hold the same partition."""

    kafka_name = "IllegalStateException"


class LogDirNotFoundError(SeglogError, LookupError):
    """A data directory that is not in the configuration."""

    kafka_name = "LogDirNotFoundException"


class InvalidTopicError(SeglogError, ValueError):
    """A topic whose name Kafka would not create, or that is too long for what is to be done."""

    kafka_name = "InvalidTopicException"


class InvalidReplicaAssignmentError(SeglogError, ValueError):
    """A partition is to go where none may go."""

    kafka_name = "InvalidReplicaAssignmentException"


class LogManagerStateError(SeglogError, RuntimeError):
    """A log manager was asked for what it does not do before it is started or after its end."""

    kafka_name = "IllegalStateException"


class IllegalArgumentError(SeglogError, ValueError):
    """An argument that Kafka refuses without an exception of its own."""

    kafka_name = "IllegalArgumentException"


class IllegalStateError(SeglogError, RuntimeError):
    """What cannot be done in this state."""

    kafka_name = "IllegalStateException"


class ForkedProcessError(IllegalStateError):
    """A log, manager or scheduler that is used in a forked child of the process that opened it.

    `owner_pid` is that process.
    """

    def __init__(self, name: str, owner_pid: int) -> None:
        super().__init__(
            f"This {name} was opened by process {owner_pid} and belongs to it; this is process "
            f"{os.getpid()}, forked from it. Open it again in this process, after the fork.")
        self.name, self.owner_pid = name, owner_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_forked, (self.name, self.owner_pid, self.args))


def _rebuild_forked(name: str, owner_pid: int, args: tuple[Any, ...]) -> ForkedProcessError:
    error = ForkedProcessError(name, owner_pid)
    error.args = args  # the message names the process that raised it
    return error


class InconsistentTopicIdError(SeglogError, ValueError):
    """A log that has the topic id of another topic."""

    kafka_name = "InconsistentTopicIdException"


class RecordBatchTooLargeError(SeglogError, ValueError):
    """An append that no segment can hold."""

    kafka_name = "RecordBatchTooLargeException"


class RecordTooLargeError(SeglogError, ValueError):
    """A batch above `max.message.bytes`."""

    kafka_name = "RecordTooLargeException"


class OffsetsOutOfOrderError(SeglogError, ValueError):
    """Batches with offsets of their own that do not increase."""

    kafka_name = "OffsetsOutOfOrderException"


class InvalidTimestampError(SeglogError, ValueError):
    """Records whose timestamps the topic does not take."""

    kafka_name = "InvalidTimestampException"


class RecordValidationError(SeglogError, ValueError):
    """Records that a topic's rules refuse: the whole batch is refused with them.

    `invalid_exception` is what a client is told (InvalidTimestampError or InvalidRecordError, and
    the message is its), `record_errors` are all that were found, in order.
    """

    kafka_name = "RecordValidationException"

    def __init__(self, invalid_exception: SeglogError, record_errors: Sequence[object]) -> None:
        super().__init__(str(invalid_exception))
        self.invalid_exception, self.record_errors = invalid_exception, tuple(record_errors)

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.invalid_exception, self.record_errors))


class SparkSetupError(SeglogError, RuntimeError):
    """Spark cannot run seglog: the text says what is missing, and on which side."""


class UnsupportedOperationError(SeglogError, RuntimeError):
    """What Kafka's code cannot do with this input and dies of."""

    kafka_name = "UnsupportedOperationException"


class OutOfBoundsError(SeglogError, IndexError):
    """A field that lies outside of its record or batch."""

    kafka_name = "IndexOutOfBoundsException"


class LogSegmentOffsetOverflowError(SeglogError, ValueError):
    """An offset that is too far from the base offset of its segment."""

    kafka_name = "LogSegmentOffsetOverflowException"


class LogCleaningAbortedError(SeglogError, RuntimeError):
    """A round of cleaning that ended early and left the log as it was; it may be tried again."""

    kafka_name = "LogCleaningAbortedException"


class LogCleaningError(SeglogError, RuntimeError):
    """A log that cannot be cleaned, for the reason in `__cause__`: its partition is uncleanable
    from then on. `log` is the UnifiedLog."""

    kafka_name = "LogCleaningException"

    def __init__(self, message: str, log: Any = None) -> None:
        super().__init__(message)
        self.log = log

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), self.args)


class UnexpectedAppendOffsetError(SeglogError, ValueError):
    """Records with offsets of their own that begin before the log's end.

    `first_offset` and `last_offset` are those of the append.
    """

    kafka_name = "UnexpectedAppendOffsetException"

    def __init__(self, message: str, first_offset: int = -1, last_offset: int = -1) -> None:
        super().__init__(message)
        self.first_offset, self.last_offset = first_offset, last_offset

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (*self.args, self.first_offset, self.last_offset))
