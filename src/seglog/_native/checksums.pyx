"""CRC-32C, and validity as a record batch, of every value of an Arrow column."""

from libc.stdint cimport int32_t, int64_t

from seglog._native.capi cimport slg_crc32c_best, slg_crc32c_kernel, slg_error, slg_status
from seglog._native.capi_columns cimport (
    SLG_CHECKSUM_CRC32C, SLG_CHECKSUM_IS_BATCH, slg_checksum, slg_checksum_column, slg_input,
)
from seglog._native.murmur2 cimport numbers_of

import numpy as np


cdef slg_crc32c_kernel _kernel = slg_crc32c_best()


def crc32c_column(column):
    """The CRC-32C of every value of a binary or text Arrow array, int64; -1 for a null.

    Raises IllegalArgumentError for another type.
    """
    return numbers_of(column, "bytes", np.int64, checksum_column, SLG_CHECKSUM_CRC32C, -1)


def valid_batches(column):
    """Whether each value of a binary Arrow array is exactly one record batch with a valid CRC.

    int8: 1, 0, or -1 for a null. Invalid bytes never raise.

    A message of magic 0 or 1 counts too (Kafka: DefaultRecordBatch.isValid, LegacyRecord.isValid).
    Raises IllegalArgumentError for another type.
    """
    found = numbers_of(column, "bytes", np.int64, checksum_column, SLG_CHECKSUM_IS_BATCH, -1)
    return found.astype(np.int8)


cdef slg_status checksum_column(const slg_input *rows, int32_t how, int32_t null, void *out,
                                slg_error *error) noexcept nogil:
    return slg_checksum_column(&rows.key, rows.rows, <slg_checksum>how, _kernel, <int64_t *>out,
                               error)
