cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from seglog._native.capi cimport slg_batch
from seglog._native.capi_clean cimport slg_batch_keys


@cython.final
cdef class PlainRecords:
    cdef tuple _direct
    cdef bytearray _plain
    cdef object _view
    cdef Py_ssize_t _size

    cdef int read(self, const slg_batch *batch, const uint8_t *data, const uint8_t **records,
                  size_t *size) except -1
    cdef Py_ssize_t _decompress(self, int codec, const uint8_t *payload, size_t size) except -2
    cdef int _grow(self, Py_ssize_t size) except -1


@cython.final
cdef class BatchKeys:
    cdef slg_batch_keys found
    cdef object of              # the rows
    cdef int64_t start
    cdef PlainRecords plain

    cdef int read_part(self, const uint8_t *data, const slg_batch *batches, size_t count,
                       size_t *row, int64_t start) except -1


cdef const slg_batch *rows_of(object rows, Py_ssize_t row) except NULL
cdef int check_rows(const slg_batch *batches, size_t row, size_t count, Py_ssize_t size) except -1
