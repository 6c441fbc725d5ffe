"""CRC-32C, and validity as a record batch, of every value of an Arrow column."""

from libc.stdint cimport int8_t, int64_t

from seglog._native.capi cimport (
    SLG_OK, slg_crc32c_best, slg_crc32c_kernel, slg_error, slg_status,
)
from seglog._native.encode_columns cimport slg_input, slg_input_binary
from seglog._native.murmur2 cimport take_bytes
from seglog._native.status cimport check

import numpy as np

cdef extern from "seglog/checksums.h" nogil:
    slg_status slg_checksum_column(const slg_input_binary *column, int64_t rows,
                                   slg_crc32c_kernel kernel, int64_t *out,
                                   slg_error *error) noexcept
    slg_status slg_valid_batch_column(const slg_input_binary *column, int64_t rows,
                                      slg_crc32c_kernel kernel, int8_t *out,
                                      slg_error *error) noexcept

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()


def crc32c_column(column):
    """The CRC-32C of every value of a binary or text Arrow array, int64; -1 where it is null.

    Raises IllegalArgumentError for another type.
    """
    cdef slg_input rows
    cdef slg_error error
    cdef slg_status status = SLG_OK
    cdef int64_t[::1] into
    owner = take_bytes(column, &rows, "bytes")
    result = np.empty(rows.rows, np.int64)
    if rows.rows > 0:
        into = result
        with nogil:
            status = slg_checksum_column(&rows.key, rows.rows, _kernel, &into[0], &error)
        if status != SLG_OK:
            check(status, &error, "bytes of an Arrow array")
    return result


def valid_batches(column):
    """Whether each value of a binary Arrow array is exactly one record batch with a good CRC,
    int8: 1, 0, or -1 where it is null. No bytes make it raise.

    A message of magic 0 or 1 counts too (Kafka: DefaultRecordBatch.isValid, LegacyRecord.isValid).
    Raises IllegalArgumentError for another type.
    """
    cdef slg_input rows
    cdef slg_error error
    cdef slg_status status = SLG_OK
    cdef int8_t[::1] into
    owner = take_bytes(column, &rows, "bytes")
    result = np.empty(rows.rows, np.int8)
    if rows.rows > 0:
        into = result
        with nogil:
            status = slg_valid_batch_column(&rows.key, rows.rows, _kernel, &into[0], &error)
        if status != SLG_OK:
            check(status, &error, "bytes of an Arrow array")
    return result
