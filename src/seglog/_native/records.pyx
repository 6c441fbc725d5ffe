"""Records of a span of a log file as Arrow columns, without the GIL from batch to batch."""

import functools

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock,
    PyThread_type_lock, NOWAIT_LOCK,
)
from libc.stdint cimport INT64_MAX, INT64_MIN, uintptr_t
from libc.string cimport memcpy

from seglog._native.capi cimport *
from seglog._native.columns cimport ColumnPool, Projection, wrap_columns
from seglog._native.status cimport as_exception

from seglog._native.columns import DEFAULT_COLUMNS as _DEFAULT_COLUMNS
from seglog.errors import CorruptDataError

MAX_ROWS_DEFAULT = 65536
MAX_BYTES_DEFAULT = 64 << 20

cdef enum:
    LIMIT_MAX = 1 << 30
    INTO_BYTES_FIRST = 262144

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()


cdef int64_t _limit(str name, object value) except -1:
    if not 1 <= value <= LIMIT_MAX:
        raise ValueError(f"{name} is {value}, not within 1..{LIMIT_MAX}")
    return value


cdef object _sorted_aborted(object aborted):
    array = np.ascontiguousarray(aborted, np.int64)
    if array.size == 0:
        return np.empty((0, 3), np.int64)
    if array.ndim != 2 or array.shape[1] != 3:
        raise ValueError("aborted is not an array of (producer_id, first_offset, last_offset)")
    return np.ascontiguousarray(array[np.lexsort((array[:, 1], array[:, 0]))])


@cython.final
cdef class RecordDecoder:
    """Decodes bytes [start, end) of a log file into columns. One thread at a time."""

    cdef slg_records *_records
    cdef slg_columns *_columns     # being filled
    cdef PyThread_type_lock _lock
    cdef slg_error _error
    cdef slg_status _status
    cdef ColumnPool _pool
    cdef Projection _projection
    cdef object _aborted           # what C points into
    cdef object _decompress
    cdef object _into              # bytearray, with slack behind what codecs see
    cdef object _into_view
    cdef object _failure           # raised once the rows before it were taken
    cdef object _file
    cdef object _max_decompressed_bytes

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError("no memory for a lock")

    def __init__(self, int fd, int64_t start, int64_t end, *, columns=_DEFAULT_COLUMNS,
                 start_offset=None, end_offset=None, base_offset=None,
                 max_rows=MAX_ROWS_DEFAULT, max_bytes=MAX_BYTES_DEFAULT, bint check_crcs=True,
                 bint include_control=False, aborted=None, decompress,
                 max_decompressed_bytes=None, file=None, ColumnPool pool=None):
        cdef slg_records_options options
        cdef uintptr_t address
        if self._records != NULL:
            raise TypeError("a RecordDecoder is initialised once")
        if start < 0 or end < start:
            raise ValueError("a position lies before the file or after its end")
        self._projection = Projection(columns)
        self._aborted = _sorted_aborted(() if aborted is None else aborted)
        self._decompress = decompress if max_decompressed_bytes is None else functools.partial(
            decompress, max_bytes=max_decompressed_bytes)
        self._file = fd if file is None else file
        self._pool = ColumnPool() if pool is None else pool
        address = self._aborted.ctypes.data
        options.flags = ((SLG_RECORDS_CRC if check_crcs else 0)
                         | (SLG_RECORDS_CONTROL if include_control else 0))
        options.kernel = _kernel
        options.start_offset = INT64_MIN if start_offset is None else start_offset
        options.end_offset = INT64_MAX if end_offset is None else end_offset
        options.base_offset = INT64_MIN if base_offset is None else base_offset
        options.max_rows = _limit("max_rows", max_rows)
        options.max_bytes = _limit("max_bytes", max_bytes)
        options.aborted = <const slg_aborted *>address
        options.aborted_count = <size_t>len(self._aborted)
        self._records = slg_records_new(fd, start, end, &options)
        if self._records == NULL:
            raise MemoryError("no memory for a decoder")

    def __dealloc__(self):
        if self._columns != NULL:
            slg_columns_release(self._columns)
        slg_records_free(self._records)
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    @property
    def position(self):
        if self._records == NULL:
            raise ValueError("the decoder was never initialised")
        return slg_records_position(self._records)

    @property
    def status(self):
        return <int>self._status

    @property
    def status_name(self):
        return slg_status_name(self._status).decode()

    def __iter__(self):
        return self

    def __next__(self):
        columns = self.next()
        if columns is None:
            raise StopIteration
        return columns

    def next(self):
        """The next columns, or None at the end; a bad batch raises when the rows before are out."""
        if self._records == NULL:
            raise ValueError("the decoder was never initialised")
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            raise RuntimeError("another thread is using this decoder")
        try:
            if self._failure is None:
                self._fill()
            return self._take()
        finally:
            PyThread_release_lock(self._lock)

    cdef int _fill(self) except -1:
        """Decodes until the columns are full, the bytes end, or something is wrong."""
        cdef slg_status status
        if self._columns == NULL:
            self._columns = slg_pool_take(self._pool.pool, self._projection.wanted)
            if self._columns == NULL:
                raise MemoryError("no memory for columns")
        while True:
            with nogil:
                status = slg_records_next(self._records, self._columns, &self._error)
            self._status = status
            if status != SLG_CODEC:
                break
            try:
                self._decompress_payload()
            except Exception as failure:
                self._failure = failure
                return 0
        if status >= SLG_BATCH_LENGTH:
            self._failure = as_exception(status, &self._error, self._file)
        return 0

    cdef object _take(self):
        cdef slg_columns *columns = self._columns
        if columns == NULL or columns.rows == 0:
            if self._failure is not None:
                raise self._failure
            return None
        self._columns = NULL
        return wrap_columns(columns, self._projection)

    cdef int _decompress_payload(self) except -1:
        cdef slg_payload payload = slg_records_payload(self._records)
        cdef Py_buffer view
        cdef object data
        if self._into is None:
            self._grow_into(max(<size_t>INTO_BYTES_FIRST, 4 * payload.size))
        data = PyMemoryView_FromMemory(<char *>payload.data, <Py_ssize_t>payload.size, PyBUF_READ)
        try:
            result = self._decompress(payload.codec, payload.magic, data, self._into_view)
        except CorruptDataError as error:
            error.file = str(self._file)
            error.position = slg_records_position(self._records)
            raise
        finally:
            # The bytes are the window's: nobody may look at them after this batch.
            data.release()
        PyObject_GetBuffer(result, &view, PyBUF_SIMPLE)
        try:
            self._resume(<const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int _resume(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Hands the bytes on, out of memory that this decoder keeps and that has slack."""
        cdef uint8_t *into = <uint8_t *><char *>self._into
        cdef Py_ssize_t room = len(self._into_view)
        if data < into or data + size > into + room:
            if size > room:
                self._grow_into(2 * size)
                into = <uint8_t *><char *>self._into
            memcpy(into, data, <size_t>size)
            data = into
        slg_records_resume(self._records, data, <size_t>size)
        return 0

    cdef int _grow_into(self, size_t size) except -1:
        self._into = bytearray(size + SLG_RECORDS_SLACK)
        self._into_view = memoryview(self._into)[:size]
        return 0
