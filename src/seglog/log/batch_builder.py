"""Builds record batches of magic 2, byte for byte as Kafka's MemoryRecordsBuilder does."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from seglog._native.batch import (
    ATTRIBUTE_CONTROL, ATTRIBUTE_DELETE_HORIZON, ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
)
from seglog._native.encode import BATCH_OVERHEAD, BatchEncoder
from seglog._native.validate import RecordWalk, transfer
from seglog.arguments import INT32_MAX, INT32_MIN, INT64_MAX, int32, int64, integer, shown
from seglog.errors import IllegalArgumentError, IllegalStateError
from seglog.storage import codecs
from seglog.storage.codecs import Buffer
from seglog.storage.markers import ControlType

__all__ = ["Headers", "RecordBatchBuilder", "RecordsInfo", "batch_of_one", "end_transaction_marker"]

#: Pairs of a key (text, or its bytes in UTF-8) and a value, which may be None.
Headers = Iterable[tuple[str | Buffer, Buffer | None]]

#: Exceptions of the encoder for values of wrong types.
_REFUSED: Final = (BufferError, OverflowError, TypeError, ValueError)
_PAIR: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
_ESTIMATION_FACTOR = np.float32(1.05)
_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_CONTROL_KEY_VERSION = _MARKER_VERSION = 0


@dataclass(frozen=True, slots=True)
class RecordsInfo:
    """The largest timestamp (ms) of a batch and its offset in a time index, -1 for none (Kafka:
    MemoryRecordsBuilder.RecordsInfo)."""

    max_timestamp: int
    shallow_offset_of_max_timestamp: int


def _check_record(offset: Any, timestamp: Any, key: Any, value: Any, headers: Any) -> None:
    """Raises TypeError with the field that has a wrong type, after the encoder failed."""
    int64("offset", offset)
    int64("timestamp", timestamp)
    check_bytes("key", key)
    check_bytes("value", value)
    if isinstance(headers, str | bytes | Mapping) or not isinstance(headers, Iterable):
        raise TypeError(f"headers must be pairs of a key and a value, not {shown(headers)}")
    for pair in headers:
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != _PAIR:
            raise TypeError(f"a header must be a pair of a key and a value, not {shown(pair)}")
        if not isinstance(pair[0], str):
            check_bytes("the key of a header", pair[0], "a str or bytes")
        check_bytes("the value of a header", pair[1])


def _check_control_type(control_type: Any) -> None:
    if not isinstance(control_type, ControlType):
        raise TypeError(f"control_type must be a ControlType, not {shown(control_type)}")


def check_bytes(name: str, value: Any, kinds: str = "bytes or None") -> None:
    """Raises TypeError unless a key or value is None or whole bytes of any type."""
    if isinstance(value, str):
        raise TypeError(f"{name} must be bytes or None, not str; encode {shown(value)}")
    if value is not None:
        try:
            is_whole = memoryview(value).c_contiguous
        except TypeError:
            is_whole = False
        if not is_whole:
            raise TypeError(f"{name} must be {kinds}, not {shown(value)}")


def codec_of(codec: int | str) -> int:
    """The id of a codec from its id or its name in Kafka (`compression.type`).

    Raises IllegalArgumentError with Kafka's text.
    """
    if isinstance(codec, int) and not isinstance(codec, bool):
        if not 0 <= codec < len(codecs.CODEC_NAMES):
            raise IllegalArgumentError(f"Unknown compression type id: {codec}")
        return codec
    if codec not in codecs.CODEC_NAMES:
        raise IllegalArgumentError(f"Unknown compression name: {codec}")
    return codecs.CODEC_NAMES.index(codec)


class RecordBatchBuilder:
    """Builds one batch (Kafka: MemoryRecordsBuilder, with its names and messages).

    Offsets begin at `base_offset` and timestamps are ms since 1970, -1 for none. `codec` is an id
    or Kafka's name, `level` is that of `compression.<codec>.level`, None the codec's default. With
    `log_append_time` the batch has that time and the timestamp type LogAppendTime. `write_limit`
    (bytes) limits `has_room_for` and `is_full`; the first record may exceed it. A batch of a log
    that is `rewritten` may have a negative base offset. One thread at a time.

    Raises IllegalArgumentError where Kafka throws IllegalArgumentException, and IllegalStateError
    for calls in a wrong state.
    """

    def __init__(self, *, base_offset: int = 0, codec: int | str = codecs.NONE,
                 level: int | None = None, log_append_time: int | None = None,
                 producer_id: int = NO_PRODUCER_ID, producer_epoch: int = -1,
                 base_sequence: int = -1, is_transactional: bool = False,
                 is_control_batch: bool = False, partition_leader_epoch: int = -1,
                 write_limit: int = INT32_MAX, delete_horizon_ms: int = NO_TIMESTAMP,
                 rewritten: bool = False) -> None:
        self.base_offset = base_offset
        self.codec, self.level = codec_of(codec), level
        codecs.level_of(self.codec, level)
        self.log_append_time = log_append_time
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional, self.is_control_batch = is_transactional, is_control_batch
        self.partition_leader_epoch = partition_leader_epoch
        self.write_limit = write_limit
        self.delete_horizon_ms = delete_horizon_ms
        #: The expected compression ratio, until the batch is built.
        self.estimated_compression_ratio = 1.0
        try:
            self._encoder = BatchEncoder(
                base_offset, delete_horizon=delete_horizon_ms if delete_horizon_ms >= 0 else None,
                rewritten=rewritten)
        except (OverflowError, TypeError):
            self._check_numbers()
            raise
        self._next_offset = base_offset
        self._last_offset: int | None = None
        self._is_open = True
        self._is_aborted = False
        self._payload: bytes | None = None
        self._built: bytes | None = None

    # --- records ----------------------------------------------------------------------------------

    def append(self, timestamp: int, key: Buffer | None, value: Buffer | None,
               headers: Headers = ()) -> None:
        """Adds a record at the next offset."""
        if self.is_control_batch:
            raise IllegalArgumentError("Control records can only be appended to control batches")
        self._append(self._next_offset, timestamp, key, value, headers)

    def try_append(self, timestamp: int, key: Buffer | None, value: Buffer | None,
                   headers: Headers = ()) -> bool:
        """Appends if `has_room_for`, at the cost of one call. Returns whether there was room."""
        if self.codec or self.is_control_batch or self._last_offset is not None \
                or not self._is_open:
            if not self.has_room_for(timestamp, key, value, headers):
                return False
            self.append(timestamp, key, value, headers)
            return True
        try:
            if not self._encoder.append(self._next_offset, timestamp, key, value, headers,
                                        self.write_limit):
                return False
        except _REFUSED:
            self._check_offset(self._next_offset)
            _check_record(self._next_offset, timestamp, key, value, headers)
            raise
        self._next_offset += 1
        return True

    def append_with_offset(self, offset: int, timestamp: int, key: Buffer | None,
                           value: Buffer | None, headers: Headers = ()) -> None:
        """Adds a record at `offset`, which must be above the last one."""
        if self.is_control_batch:
            raise IllegalArgumentError("Control records can only be appended to control batches")
        self._append(offset, timestamp, key, value, headers)

    def append_all(self, walk: RecordWalk) -> int:
        """Adds the remaining records of a walk at the next offsets. Returns what ended the walk."""
        if self.is_control_batch:
            raise IllegalArgumentError("Control records can only be appended to control batches")
        return self.append_kept(walk, None)

    def append_kept(self, walk: RecordWalk, kept: Buffer | None) -> int:
        """Adds those records of a walk whose byte in `kept` is not 0, including control records,
        and keeps their offsets; None: all, at the next offsets. Returns what ended the walk."""
        refusal = transfer(walk, self._encoder, self._next_offset, kept=kept)
        last = self._encoder.last_offset
        self._next_offset = self.base_offset if last is None else last + 1
        return refusal

    def append_control_record(self, timestamp: int, control_type: ControlType,
                              value: Buffer | None) -> None:
        """Adds a control record at the next offset; the batch is a control batch."""
        _check_control_type(control_type)
        if control_type is ControlType.UNKNOWN:
            raise IllegalArgumentError("Cannot serialize UNKNOWN control record type")
        if not self.is_control_batch:
            raise IllegalArgumentError("Control records can only be appended to control batches")
        key = _CONTROL_KEY.pack(_CONTROL_KEY_VERSION, control_type)
        self._append(self._next_offset, timestamp, key, value, ())

    def append_end_txn_marker(self, timestamp: int, control_type: ControlType,
                              coordinator_epoch: int) -> None:
        """Adds the marker that commits or aborts the producer's transaction."""
        _check_control_type(control_type)
        int32("coordinator_epoch", coordinator_epoch, INT32_MIN)
        if control_type not in (ControlType.COMMIT, ControlType.ABORT):
            raise IllegalArgumentError("Invalid control record type for end transaction marker "
                                       f"{control_type.name}")
        if self.producer_id == NO_PRODUCER_ID:
            raise IllegalArgumentError("End transaction marker requires a valid producerId")
        if not self.is_transactional:
            raise IllegalArgumentError("End transaction marker depends on batch transactional "
                                       "flag being enabled")
        self.append_control_record(timestamp, control_type,
                                   _MARKER_VALUE.pack(_MARKER_VERSION, coordinator_epoch))

    def _append(self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None,
                headers: Headers) -> None:
        if self._last_offset is not None or not self._is_open:
            self._check_append(offset, timestamp)
        try:
            self._encoder.append(offset, timestamp, key, value, headers)
        except _REFUSED:
            self._check_offset(offset)
            _check_record(offset, timestamp, key, value, headers)
            raise
        self._next_offset, self._last_offset = offset + 1, None

    def _check_offset(self, offset: int) -> None:
        """Raises Kafka's error for an offset beyond int64: Kafka's wraps, and is then below the
        previous one."""
        if offset > INT64_MAX:
            raise IllegalArgumentError(
                f"Illegal offset {offset - 2**64} following previous offset {self.last_offset} "
                "(Offsets must increase monotonically).") from None

    def _check_append(self, offset: int, timestamp: int) -> None:
        """Checks what the encoder cannot: an overridden last offset, and the end of appends."""
        last = self.last_offset
        if last is not None and offset <= last:
            raise IllegalArgumentError(f"Illegal offset {offset} following previous offset {last} "
                                       "(Offsets must increase monotonically).")
        if timestamp < NO_TIMESTAMP:
            raise IllegalArgumentError(f"Invalid negative timestamp {timestamp}")
        if not self._is_open:
            raise IllegalStateError("Tried to append a record, but MemoryRecordsBuilder is closed "
                                    "for record appends")

    # --- sizes ------------------------------------------------------------------------------------

    @property
    def num_records(self) -> int:
        """The number of records."""
        return self._encoder.record_count

    @property
    def uncompressed_bytes_written(self) -> int:
        """Bytes of the header and the uncompressed records."""
        return BATCH_OVERHEAD + self._encoder.records_size

    @property
    def estimated_size_in_bytes(self) -> int:
        """Exact if there is no compression or the batch is built."""
        return len(self._built) if self._built is not None else self._estimated_bytes_written()

    def _estimated_bytes_written(self) -> int:
        size = self._encoder.records_size
        if self.codec == codecs.NONE:
            return BATCH_OVERHEAD + size
        # In Java's 32-bit floats, so that batches end where Kafka's end.
        ratio = np.float32(self.estimated_compression_ratio)
        return BATCH_OVERHEAD + int(np.float32(size) * ratio * _ESTIMATION_FACTOR)

    @property
    def is_full(self) -> bool:
        """Whether no more records can be added: closed, or at the limit."""
        return not self._is_open or (
            self.num_records > 0 and self.write_limit <= self._estimated_bytes_written())

    def has_room_for(self, timestamp: int, key: Buffer | None, value: Buffer | None,
                     headers: Headers = ()) -> bool:
        """Whether the record fits below the limit; the first one always does."""
        if self.num_records == 0:
            return self._is_open
        # Invalid records have no size, and a batch at its limit has no room for any.
        try:
            size = self._encoder.size_of(self._next_offset, timestamp, key, value, headers)
        except _REFUSED:
            _check_record(self._next_offset, timestamp, key, value, headers)
            raise
        return self._is_open and self.write_limit >= self._estimated_bytes_written() + size

    def has_room_for_bytes(self, estimated_records_size: int) -> bool:
        """Whether that many bytes of records fit below the limit."""
        return not self.is_full and (
            self.write_limit >= self._estimated_bytes_written() + estimated_records_size)

    @property
    def last_offset(self) -> int | None:
        """The last offset of the batch; None if it has no record."""
        return self._encoder.last_offset if self._last_offset is None else self._last_offset

    @property
    def info(self) -> RecordsInfo:
        """The batch's entry for a time index."""
        last = self.last_offset
        offset = -1 if last is None else last
        if self.log_append_time is not None:
            return RecordsInfo(self.log_append_time, offset)
        if self._encoder.max_timestamp == NO_TIMESTAMP:
            return RecordsInfo(NO_TIMESTAMP, -1)
        return RecordsInfo(self._encoder.max_timestamp, offset)

    # --- the batch --------------------------------------------------------------------------------

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int,
                           is_transactional: bool) -> None:
        """Sets the producer of a batch that is not built yet."""
        if self._built is not None:
            raise IllegalStateError("Trying to set producer state of an already closed batch. "
                                    "This indicates a bug on the client.")
        self.producer_id, self.producer_epoch = producer_id, producer_epoch
        self.base_sequence, self.is_transactional = base_sequence, is_transactional

    def reopen_and_rewrite_producer_state(self, producer_id: int, producer_epoch: int,
                                          base_sequence: int, is_transactional: bool) -> None:
        """Sets another producer for the same records: `build` then returns a new header."""
        if self._is_aborted:
            raise IllegalStateError("Should not reopen a batch which is already aborted.")
        self._built = None
        self.set_producer_state(producer_id, producer_epoch, base_sequence, is_transactional)

    def override_last_offset(self, last_offset: int) -> None:
        """Sets a last offset other than that of the last record, as compaction does."""
        if self._built is not None:
            raise IllegalStateError("Cannot override the last offset after the records have been "
                                    "built")
        self._last_offset, self._next_offset = last_offset, last_offset + 1

    def close_for_record_appends(self) -> None:
        """Ends the appends and compresses the records."""
        if not self._is_open:
            return
        self._is_open = False
        if self.codec != codecs.NONE and self.num_records and not self._is_aborted:
            self._payload = codecs.compress(self.codec, self._encoder.records(), self.level)

    def abort(self) -> None:
        """Abandons the batch."""
        self._is_aborted, self._is_open = True, False

    @property
    def is_closed(self) -> bool:
        """Whether the batch is built."""
        return self._built is not None

    def build(self) -> bytes:
        """The bytes of the batch; empty if it has no records."""
        if self._is_aborted:
            raise IllegalStateError("Attempting to build an aborted record batch")
        if self._built is None:
            check_producer(self.producer_id, self.producer_epoch, self.base_sequence,
                           is_transactional=self.is_transactional,
                           is_control=self.is_control_batch)
            self.close_for_record_appends()
            try:
                self._built = self._seal() if self.num_records else b""
            except (OverflowError, TypeError):
                self._check_numbers()
                raise
        return self._built

    def _check_numbers(self) -> None:
        """Raises IllegalArgumentError with the field that is out of range, after the encoder
        failed."""
        for name in ("base_offset", "producer_id", "delete_horizon_ms"):
            int64(name, getattr(self, name))
        if self.log_append_time is not None:
            int64("log_append_time", self.log_append_time)
        integer("producer_epoch", self.producer_epoch, -1 << 15, (1 << 15) - 1)
        for name in ("base_sequence", "partition_leader_epoch"):
            int32(name, getattr(self, name), INT32_MIN)

    def _seal(self) -> bytes:
        return self._encoder.seal(
            attributes=attributes_of(
                self.codec, is_log_append_time=self.log_append_time is not None,
                is_transactional=self.is_transactional, is_control=self.is_control_batch,
                has_delete_horizon=self.delete_horizon_ms >= 0),
            max_timestamp=self.log_append_time, last_offset=self._last_offset,
            producer_id=self.producer_id, producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence, payload=self._payload,
            partition_leader_epoch=self.partition_leader_epoch)


def batch_of_one(timestamp: int, key: Buffer | None, value: Buffer | None, headers: Headers = (),
                 codec: int | str = codecs.NONE, level: int | None = None) -> bytes:
    """The batch that a builder makes of one record, at offset 0. Without a codec the encoder alone
    makes it: the builder's own state takes as long as all else that an append does."""
    if codec:
        builder = RecordBatchBuilder(codec=codec, level=level)
        builder.append(timestamp, key, value, headers)
        return builder.build()
    encoder = BatchEncoder()
    try:
        encoder.append(0, timestamp, key, value, headers)
    except _REFUSED:
        _check_record(0, timestamp, key, value, headers)
        raise
    return encoder.seal()


def check_producer(producer_id: int, producer_epoch: int, base_sequence: int, *,
                   is_transactional: bool, is_control: bool = False) -> None:
    """Raises IllegalArgumentError unless a batch can have this producer state."""
    if producer_id == NO_PRODUCER_ID:
        if is_transactional:
            raise IllegalArgumentError("Cannot write transactional messages without a valid "
                                       "producer ID")
        return
    if producer_epoch == -1:
        raise IllegalArgumentError("Invalid negative producer epoch")
    if base_sequence < 0 and not is_control:
        raise IllegalArgumentError("Invalid negative sequence number used")


def attributes_of(codec: int, *, is_log_append_time: bool = False, is_transactional: bool = False,
                  is_control: bool = False, has_delete_horizon: bool = False) -> int:
    """The attributes of a batch (Kafka: DefaultRecordBatch.computeAttributes)."""
    return (codec | ATTRIBUTE_LOG_APPEND_TIME * is_log_append_time
            | ATTRIBUTE_TRANSACTIONAL * is_transactional | ATTRIBUTE_CONTROL * is_control
            | ATTRIBUTE_DELETE_HORIZON * has_delete_horizon)


def end_transaction_marker(producer_id: int, producer_epoch: int, control_type: ControlType, *,
                           timestamp: int, coordinator_epoch: int = 0, base_offset: int = 0,
                           partition_leader_epoch: int = -1) -> bytes:
    """The control batch that ends a transaction (Kafka: MemoryRecords.withEndTransactionMarker).

    `control_type` is ControlType.COMMIT or ABORT, `timestamp` ms since 1970. Raises
    IllegalArgumentError.
    """
    builder = RecordBatchBuilder(
        base_offset=base_offset, producer_id=producer_id, producer_epoch=producer_epoch,
        is_transactional=True, is_control_batch=True,
        partition_leader_epoch=partition_leader_epoch)
    builder.append_end_txn_marker(timestamp, control_type, coordinator_epoch)
    return builder.build()
