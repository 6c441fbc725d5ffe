"""Records of a span of a log file as Arrow columns, decoded without the GIL."""

import functools

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_release_lock,
    PyThread_type_lock, NOWAIT_LOCK,
)
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from seglog._native.capi cimport *
from seglog._native.capi_columns cimport *
from seglog._native.columns cimport ColumnPool, Projection, wrap_columns
from seglog._native.codec_view cimport view_of
from seglog._native.status cimport as_exception, check
from seglog._native.window cimport failure_of, source_of

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
cdef class RowFilter:
    """Conditions on rows besides their offsets; all that are given must hold.

    Timestamps are in ms, both inclusive; types are -1, 0 and 1; `keys` are bytes, None for null.
    """

    cdef slg_row_filter _filter
    cdef tuple _keys        # what the slots point into
    cdef slg_key *_slots

    def __cinit__(self, *, first_timestamp=None, last_timestamp=None, timestamp_types=(-1, 0, 1),
                  keys=None):
        self._filter.first_timestamp = INT64_MIN if first_timestamp is None else first_timestamp
        self._filter.last_timestamp = INT64_MAX if last_timestamp is None else last_timestamp
        for kind in timestamp_types:
            if not -1 <= kind <= 1:
                raise ValueError(f"timestamp type {kind} is none of -1, 0 and 1")
            self._filter.timestamp_types |= 1u << <unsigned>(<int>kind + 1)
        if keys is not None:
            self._set_keys(tuple(keys))

    cdef int _set_keys(self, tuple keys) except -1:
        cdef bytes key
        cdef size_t i
        self._keys = tuple([one for one in keys if one is not None])
        self._slots = <slg_key *>calloc(len(self._keys) + 1, sizeof(slg_key))
        if self._slots == NULL:
            raise MemoryError("no memory for the keys of a filter")
        for i, key in enumerate(self._keys):
            self._slots[i] = slg_key(<const uint8_t *>PyBytes_AS_STRING(key), <size_t>len(key))
        self._filter.by_key = True
        self._filter.null_key = len(self._keys) < len(keys)
        self._filter.keys = self._slots
        self._filter.key_count = <size_t>len(self._keys)
        return 0

    def __dealloc__(self):
        free(self._slots)

    def __reduce__(self):
        raise TypeError("a RowFilter holds addresses of this process")


@cython.final
cdef class RecordDecoder:
    """Decodes bytes [start, end) of a log file into columns. One thread at a time."""

    cdef slg_records *_records
    cdef slg_records_options _options
    cdef slg_record_sets _sets
    cdef PyThread_type_lock _lock
    cdef slg_error _error
    cdef slg_status _status
    cdef ColumnPool _pool
    cdef Projection _projection
    cdef bytes _topic              # what the shape of the sets points into
    cdef object _aborted           # what C points into
    cdef RowFilter _filter
    cdef object _decompress
    cdef object _into              # bytearray, with slack behind what codecs see
    cdef object _into_view
    cdef Py_ssize_t _into_size     # what codecs may write
    cdef tuple _direct             # by codec: functions of (bytes, room), or None for C's or none
    cdef object _failure           # raised once the rows before it were taken
    cdef object _file
    cdef object _source            # what C reads from
    cdef Py_ssize_t _most          # bytes that a payload may become; 0: only `decompress` knows

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError("no memory for a lock")

    def __init__(self, source, int64_t start, int64_t end, *, columns=_DEFAULT_COLUMNS,
                 start_offset=None, end_offset=None, base_offset=None,
                 max_rows=MAX_ROWS_DEFAULT, max_bytes=MAX_BYTES_DEFAULT, bint check_crcs=True,
                 bint include_control=False, aborted=None, decompress, direct=(),
                 max_decompressed_bytes=None, file=None, ColumnPool pool=None,
                 str layout="kafka", origin=None, RowFilter row_filter=None,
                 bint believe_headers=True):
        if self._records != NULL:
            raise TypeError("a RecordDecoder is initialised once")
        self._projection = Projection(columns, origin=origin is not None, layout=layout)
        self._decompress = decompress if max_decompressed_bytes is None else functools.partial(
            decompress, max_bytes=max_decompressed_bytes)
        if direct and max_decompressed_bytes is None:
            raise ValueError("codecs that are called directly know no limit of their own")
        self._direct = tuple(direct)
        self._most = 0 if max_decompressed_bytes is None else max_decompressed_bytes
        self._pool = ColumnPool() if pool is None else pool
        self._options.flags = ((SLG_RECORDS_CRC if check_crcs else 0)
                               | (SLG_RECORDS_CONTROL if include_control else 0)
                               | (SLG_RECORDS_HEADERS if believe_headers else 0))
        self._filter = row_filter
        self._options.filter = NULL if row_filter is None else &row_filter._filter
        self._options.kernel = _kernel
        self._options.max_rows = _limit("max_rows", max_rows)
        self._options.max_bytes = _limit("max_bytes", max_bytes)
        self._set_shape(origin)
        self._aim(source, start, end, start_offset, end_offset, base_offset, aborted, file)

    cdef int _set_shape(self, origin) except -1:
        cdef slg_shape *shape = &self._sets.shape
        topic, partition = ("", 0) if origin is None else origin
        # File names may be invalid UTF-8, which must not get into Arrow data.
        self._topic = topic.encode("utf-8", "replace")
        shape.wanted, shape.layout = self._projection.wanted, self._projection.layout
        shape.topic, shape.topic_size = PyBytes_AS_STRING(self._topic), <size_t>len(self._topic)
        shape.partition = partition
        if shape.wanted >> <int>SLG_COLUMN_TOPIC & 1 and shape.topic_size > 0:
            # So that the topic of all rows of a set stays below 2 GiB.
            self._options.max_rows = min(self._options.max_rows,
                                         <int64_t>(INT32_MAX // shape.topic_size))
        return 0

    def restart(self, source, int64_t start, int64_t end, *, start_offset=None, end_offset=None,
                base_offset=None, aborted=None, file=None):
        """Reuses the decoder for other bytes; drops decoded rows that were not taken."""
        if self._records == NULL:
            raise ValueError("the decoder was never initialised")
        self._enter()
        try:
            self._aim(source, start, end, start_offset, end_offset, base_offset, aborted, file)
        finally:
            PyThread_release_lock(self._lock)

    cdef int _aim(self, source, int64_t start, int64_t end, start_offset, end_offset, base_offset,
                  aborted, file) except -1:
        cdef uintptr_t address
        cdef slg_source read_from = source_of(source)
        if start < 0 or end < start:
            raise ValueError("a position lies before the file or after its end")
        ranges = _sorted_aborted(() if aborted is None else aborted)
        address = ranges.ctypes.data
        self._options.start_offset = INT64_MIN if start_offset is None else start_offset
        self._options.end_offset = INT64_MAX if end_offset is None else end_offset
        self._options.base_offset = INT64_MIN if base_offset is None else base_offset
        self._options.aborted = <const slg_aborted *>address
        self._options.aborted_count = <size_t>len(ranges)
        if self._records == NULL:
            self._records = slg_records_new(read_from, start, end, &self._options)
            if self._records == NULL:
                raise MemoryError("no memory for a decoder")
        else:
            slg_record_sets_clear(&self._sets)
            slg_records_restart(self._records, read_from, start, end, &self._options)
        self._aborted = ranges
        self._file = source if file is None else file
        self._source = source
        self._failure = None
        self._status = SLG_OK
        return 0

    def __dealloc__(self):
        slg_record_sets_clear(&self._sets)
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
        return slg_status_name(self._status).decode().lower()

    def __iter__(self):
        return self

    def __next__(self):
        columns = self.next()
        if columns is None:
            raise StopIteration
        return columns

    def next(self):
        """The next columns, or None at the end. A bad batch raises after the rows before it."""
        cdef list taken = self._take(1, 1)
        return taken[0] if taken else None

    def take(self, int64_t max_bytes):
        """A list of columns of about `max_bytes`, decoded without the GIL; empty at the end."""
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}, not positive")
        return self._take(max_bytes, LIMIT_MAX)

    cdef int _enter(self) except -1:
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            raise RuntimeError("another thread is using this decoder")
        return 0

    cdef list _take(self, int64_t max_bytes, Py_ssize_t most):
        cdef list taken = []
        if self._records == NULL:
            raise ValueError("the decoder was never initialised")
        self._enter()
        try:
            if self._failure is None and self._sets.nbytes < max_bytes:
                self._fill(max_bytes)
            while self._sets.first != NULL and len(taken) < most:
                taken.append(wrap_columns(slg_record_sets_pop(&self._sets), self._projection))
            if not taken and self._failure is not None:
                raise self._failure
            return taken
        finally:
            PyThread_release_lock(self._lock)

    cdef int _fill(self, int64_t max_bytes) except -1:
        """Decodes until it has `max_bytes`, the bytes end or an error occurs."""
        cdef slg_status status
        while True:
            with nogil:
                status = slg_records_fill(self._records, self._pool.pool, max_bytes, &self._sets,
                                          &self._error)
            self._status = status
            if status != SLG_CODEC:
                break
            try:
                self._decompress_payload()
            except Exception as failure:
                check(slg_record_sets_end(&self._sets, &self._error), &self._error, self._file)
                self._failure = failure
                return 0
        if status >= SLG_BATCH_LENGTH:
            self._failure = failure_of(self._source) or as_exception(status, &self._error,
                                                                     self._file)
        return 0

    # ---- codecs

    cdef int _decompress_payload(self) except -1:
        cdef slg_payload payload = slg_records_payload(self._records)
        cdef Py_ssize_t size = -1
        cdef Py_buffer view
        cdef object data
        if self._into is None:
            self._grow_into(max(<size_t>INTO_BYTES_FIRST, 4 * payload.size))
            if payload.codec in (SLG_CODEC_LZ4, SLG_CODEC_SNAPPY):
                return 0  # C has the room now
        if payload.codec < len(self._direct) and self._into_size <= self._most:
            size = self._decompress_directly(&payload)
        if 0 <= size <= self._into_size:
            slg_records_resume(self._records, <uint8_t *><char *>self._into, <size_t>size)
            return 0
        data = PyMemoryView_FromMemory(<char *>payload.data, <Py_ssize_t>payload.size, PyBUF_READ)
        try:
            result = self._decompress(payload.codec, payload.magic, data, self._into_view)
        except CorruptDataError as error:
            error.file = str(self._file)
            error.position = slg_records_position(self._records)
            raise
        finally:
            # The bytes are the window's: they are not valid after this batch.
            data.release()
        PyObject_GetBuffer(result, &view, PyBUF_SIMPLE)
        try:
            self._resume(<const uint8_t *>view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef Py_ssize_t _decompress_directly(self, const slg_payload *payload) except -2:
        """Decompresses a payload in the usual framing; -1 if `decompress` must do it.

        An error here is not final: `decompress`, which knows Kafka's rules, starts over.
        """
        cdef object decode = self._direct[payload.codec]
        if decode is None or payload.size == 0 or (payload.codec == SLG_CODEC_ZSTD
                                                   and payload.magic < 2):
            return -1
        try:
            return decode(view_of(payload.data, payload.size), self._into_view)
        except Exception:
            return -1

    cdef int _resume(self, const uint8_t *data, Py_ssize_t size) except -1:
        """Passes the bytes to C, from memory that this decoder keeps and that has slack."""
        cdef uint8_t *into = <uint8_t *><char *>self._into
        if data < into or data + size > into + self._into_size:
            if size > self._into_size:
                self._grow_into(2 * size)
                into = <uint8_t *><char *>self._into
            memcpy(into, data, <size_t>size)
            data = into
        slg_records_resume(self._records, data, <size_t>size)
        return 0

    cdef int _grow_into(self, size_t size) except -1:
        """Makes room for `size` bytes, or for as many as a payload may become."""
        if self._most > 0:
            size = min(size, <size_t>self._most)
        self._into = bytearray(size + SLG_RECORDS_SLACK)
        self._into_view = memoryview(self._into)[:size]
        self._into_size = <Py_ssize_t>size
        if self._direct and self._into_size <= self._most:
            slg_records_set_room(self._records, <uint8_t *><char *>self._into, size)
        else:
            slg_records_set_room(self._records, NULL, 0)
        return 0
