"""The border between C and Python: only here a slg_status becomes an exception."""

import errno as errnos
import os
from enum import IntEnum

from seglog._native.capi cimport *
from seglog.errors import (
    CorruptDataError,
    CorruptIndexError,
    CorruptRecordError,
    CorruptTxnStateError,
    DecompressionError,
    IllegalArgumentError,
    InvalidRecordError,
    KafkaStorageError,
    UnsupportedCompressionTypeError,
)


class _Code(IntEnum):
    @property
    def code(self):
        """The stable name in lower case, as in errors and findings."""
        return self.name.lower()

    @property
    def is_error(self):
        """False for OK and for the outcomes of a scan (END, TORN_TAIL, ...)."""
        return self >= SLG_BATCH_LENGTH


def _codes():
    cdef const char *name
    cdef int code
    for code in range(SLG_STATUS_MAX + 1):
        name = slg_status_name(code)
        if name != NULL:
            yield name.decode(), code


Status = _Code("Status", list(_codes()), module=__name__)
Status.__doc__ = "The codes of csrc/include/seglog/statuses.h, under the same names."


# One sentence per cause. statuses.h defines {expected} and {found}.
_SENTENCES = {
    Status.BATCH_LENGTH: "batch length {found} is below the minimum {expected}",
    Status.BATCH_SIZE: "batch of {found} bytes is smaller than its header of {expected}",
    Status.BATCH_CRC: "batch is corrupt (stored crc = {expected}, computed crc = {found})",
    Status.BATCH_MAGIC: "unknown magic {found} (the newest known is {expected})",
    Status.BATCH_CODEC: "unknown compression type {found} (the last known is {expected})",
    Status.BATCH_RECORD_COUNT: "record count {found} is impossible (at most {expected} fit)",
    Status.BATCH_LAST_OFFSET: "last offset delta {found} is negative or overflows the offset",
    Status.BATCH_OFFSET_ORDER: "offset {found} goes backwards (expected {expected} or more)",
    Status.BATCH_OFFSET_RANGE: "offset {found} does not belong to the segment of {expected}",
    Status.BATCH_ATTRIBUTES: "impossible batch attributes {found:#06x}",
    Status.RECORD_VARINT: "a varint has no end, or is longer than its type",
    Status.RECORD_LENGTH: "record length {found} is beyond the {expected} bytes that are left",
    Status.RECORD_SIZE: "record of {expected} bytes, but its fields take {found}",
    Status.RECORD_FIELD: "a field of {found} bytes in a record with {expected} bytes left",
    Status.RECORD_HEADERS: "header count {found} is impossible (at most {expected} fit)",
    Status.RECORD_COUNT: "the payload does not hold exactly {expected} records (found {found})",
    Status.RECORD_TIMESTAMP: "timestamp {found} ms does not fit Spark's timestamps (at most "
                             "{expected} ms); leave timestamp out of the columns to read it",
    Status.LEGACY_SIZE: "message of {found} bytes is below the minimum {expected}",
    Status.LEGACY_NULL_WRAPPER: "compressed message set with a null value",
    Status.LEGACY_EMPTY_WRAPPER: "compressed message set without a message",
    Status.LEGACY_NESTED: "compressed message inside a compressed message set",
    Status.LEGACY_OFFSET: "wrapper offset {found} is below the last inner offset {expected}",
    Status.LEGACY_CODEC: "compression type {found} in an old message (at most {expected})",
    Status.CODEC_DATA: "the codec refused the compressed payload",
    Status.CODEC_TOO_LARGE: "the payload grows past the cap of {expected} bytes",
    Status.INDEX_SIZE: "index of {found} bytes is no multiple of its {expected}-byte entries",
    Status.INDEX_OFFSET_ORDER: "index offset {found} is not above {expected}, the one before",
    Status.INDEX_POSITION_ORDER: "index position {found} is not above {expected}, the one before",
    Status.INDEX_TIME_ORDER: "index timestamp {found} is not above {expected}, the one before",
    Status.INDEX_OFFSET_RANGE: "index offset {found} does not belong to the segment of {expected}",
    Status.INDEX_POSITION_RANGE: "index position {found} is beyond the log of {expected} bytes",
    Status.INDEX_PADDED: "index entries are followed by zeros (preallocated, never trimmed)",
    Status.INDEX_UNWRITTEN: "index holds only zeros (created, never written)",
    Status.INDEX_NOT_A_BATCH: "index entry for offset {expected} points at something else",
    Status.TXN_SIZE: "transaction index of {found} bytes, no multiple of {expected}",
    Status.TXN_VERSION: "aborted transaction of version {found}, expected {expected}",
    Status.TXN_OFFSET: "last offset {found} of an aborted transaction, expected {expected} or more",
    Status.IO: "a system call failed",
    Status.FILE_MISSING: "no such file, or no longer",
    Status.FILE_KIND: "not a regular file",
    Status.FILE_TOO_LARGE: "file of {found} bytes, above the largest of {expected}",
    Status.FILE_SHRANK: "file has {found} bytes where {expected} were announced",
    Status.LIMIT: "limit of {expected} reached ({found} wanted)",
    Status.INDEX_FULL: "the index is full: {expected} entries fit",
    Status.TXN_STATE: "a batch that is not transactional inside a transaction of its producer",
    Status.TXN_NOT_STARTED: "the transaction that began at offset {found} is not open",
    # Kafka's text if it has one. A caller's value has no position in a file.
    Status.ENCODE_OFFSET: "Illegal offset {found} following previous offset {expected} "
                          "(Offsets must increase monotonically).",
    Status.ENCODE_TIMESTAMP: "Invalid negative timestamp {found}",
    Status.ENCODE_DELTA: "Maximum offset delta exceeded, base offset: {expected}, "
                         "last offset: {found}",
    Status.ENCODE_SIZE: "a batch of {found} bytes, above the largest of {expected}",
    Status.ENCODE_HEADER_KEY: "Invalid null header key found in headers",
    Status.ARROW_TYPE: "a column of this name cannot have this type",
    Status.ARROW_LAYOUT: "offsets out of order, or fewer values than announced "
                         "(expected {expected}, found {found})",
}

# Codes that imply a system error even if no call failed in C.
_ERRNOS = {
    Status.IO: errnos.EIO,
    Status.FILE_MISSING: errnos.ENOENT,
    Status.FILE_KIND: errnos.EINVAL,
    Status.FILE_TOO_LARGE: errnos.EFBIG,
    Status.FILE_SHRANK: errnos.EIO,
}


def _class_of(status):
    if status in (Status.BATCH_CODEC, Status.LEGACY_CODEC):
        return UnsupportedCompressionTypeError
    if status < 48:
        return CorruptRecordError
    if status < 100:
        return CorruptRecordError if status == Status.LEGACY_SIZE else InvalidRecordError
    if status < 112:
        return DecompressionError
    if status < 144:
        return CorruptIndexError
    return CorruptDataError if status < 176 else CorruptTxnStateError


def _name_of(file):
    # A descriptor is the name if the caller has no better one.
    if file is None or isinstance(file, int):
        return file if file is None else f"descriptor {file}"
    return os.fsdecode(file)


def status_error(status, *, file=None, position=0, expected=0, found=0, sys_errno=0):
    """The exception for a status and its numbers; returned, not raised."""
    status = Status(status)
    if not status.is_error:
        raise ValueError(f"{status.name} is an outcome, not an error")
    if status == Status.NO_MEMORY:
        return MemoryError("no memory for native buffers")
    name = _name_of(file)
    sentence = _SENTENCES[status].format(expected=expected, found=found)
    where = "" if name is None else f"{name}: "
    if status in _ERRNOS:
        number = sys_errno or _ERRNOS[status]
        reason = f"{sentence} at byte {position}" if position else sentence
        if status == Status.IO:
            reason = f"{reason}: {os.strerror(number)}"
        elif number == errnos.ELOOP:
            reason = f"{reason} but a symbolic link"
        return KafkaStorageError(number, reason, name, position=position, expected=expected,
                                 found=found, code=status.code)
    if status >= Status.ENCODE_OFFSET:
        return IllegalArgumentError(f"{where}{sentence}")
    return _class_of(status)(f"{where}{sentence}, at byte {position}", file=name,
                             position=position, expected=expected, found=found, code=status.code)


cdef object as_exception(slg_status status, const slg_error *error, object file):
    if error == NULL:
        return status_error(<int>status, file=file)
    return status_error(<int>status, file=file, position=error.position, expected=error.expected,
                        found=error.found, sys_errno=error.sys_errno)


cdef int check(slg_status status, const slg_error *error, object file) except -1:
    """Raises for an error; outcomes (END, TORN_TAIL, ...) are left to the caller."""
    if status >= SLG_BATCH_LENGTH:
        raise as_exception(status, error, file)
    return 0
