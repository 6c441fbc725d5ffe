"""Records of a span of a log file as Arrow columns, without the GIL from batch to batch."""

import functools

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.pythread cimport (
    NOWAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_release_lock, PyThread_type_lock)
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from seglog._native.capi cimport *
from seglog._native.status cimport as_exception
from seglog.errors import CorruptDataError

COLUMNS = tuple([slg_column_name(<slg_column>i).decode() for i in range(<int>SLG_COLUMNS)])
DEFAULT_COLUMNS = COLUMNS[:6]
MAX_ROWS_DEFAULT = 65536
MAX_BYTES_DEFAULT = 64 << 20

cdef enum:
    LIMIT_MAX = 1 << 30
    POOL_KEEP = 2
    INTO_BYTES_FIRST = 262144

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()

# Sets of columns that somebody holds, over all pools. C counts it atomically.
cdef int64_t _live = 0


def live_columns():
    """How many sets of columns are alive in this process: 0 once every consumer let go."""
    return _live


@cython.final
cdef class ColumnPool:
    """Memory of columns that were let go, for the next ones. Safe to share between threads."""

    cdef slg_pool *_pool

    def __cinit__(self, *, size_t keep=POOL_KEEP):
        self._pool = slg_pool_new(keep, &_live)
        if self._pool == NULL:
            raise MemoryError("no memory for a pool of columns")

    def __dealloc__(self):
        if self._pool != NULL:
            slg_pool_close(self._pool)


# ---- projections ---------------------------------------------------------------------------------

cdef class _Projection:
    """The columns asked for, in order."""

    cdef slg_column order[<int>SLG_COLUMNS]
    cdef size_t count
    cdef uint32_t wanted
    cdef readonly tuple names

    def __cinit__(self, columns):
        names = tuple(columns)
        if isinstance(columns, str):
            raise TypeError("columns is a string, not a sequence of names")
        for name in names:
            if name not in COLUMNS:
                raise ValueError(f"no column {name!r}; there are {', '.join(COLUMNS)}")
        if len(set(names)) != len(names):
            raise ValueError("a column is named twice")
        self.names = names
        self.count = <size_t>len(names)
        for i, name in enumerate(names):
            self.order[i] = <slg_column><int>COLUMNS.index(name)
            self.wanted |= <uint32_t>1 << <int>self.order[i]

    cdef object schema(self):
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        if schema == NULL or not slg_export_schema(self.order, self.count, schema):
            free(schema)
            raise MemoryError("no memory for an Arrow schema")
        return PyCapsule_New(schema, b"arrow_schema", _free_schema)


cdef void _free_schema(object capsule) noexcept:
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release != NULL:
        schema.release(schema)
    free(schema)


cdef void _free_array(object capsule) noexcept:
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release != NULL:
        array.release(array)
    free(array)


def schema_capsule(columns=DEFAULT_COLUMNS):
    """The Arrow schema of a projection, as an `arrow_schema` capsule."""
    return _Projection(columns).schema()


# ---- columns -------------------------------------------------------------------------------------

# Known here alone: an object that nobody filled would point nowhere.
cdef object _TOKEN = object()


@cython.final
cdef class RecordColumns:
    """Rows of one stretch of the log, an Arrow array per column. Safe from any thread."""

    cdef slg_columns *_columns
    cdef _Projection _projection

    def __cinit__(self, token=None):
        if token is not _TOKEN:
            raise TypeError("RecordColumns come from RecordDecoder.next()")

    def __dealloc__(self):
        if self._columns != NULL:
            slg_columns_release(self._columns)

    @property
    def num_rows(self):
        return self._columns.rows

    def __len__(self):
        return self._columns.rows

    @property
    def nbytes(self):
        return slg_columns_nbytes(self._columns)

    @property
    def columns(self):
        return self._projection.names

    @property
    def first_offset(self):
        return self._columns.first_offset

    @property
    def last_offset(self):
        return self._columns.last_offset

    def __arrow_c_schema__(self):
        return self._projection.schema()

    def __arrow_c_array__(self, requested_schema=None):
        # The protocol lets a producer ignore a requested schema that it cannot serve.
        cdef ArrowArray *array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        if array == NULL or not slg_export_columns(self._columns, self._projection.order,
                                                   self._projection.count, array):
            free(array)
            raise MemoryError("no memory for an Arrow array")
        return self._projection.schema(), PyCapsule_New(array, b"arrow_array", _free_array)

    def to_pylists(self):
        """Each column as a list: ints, bytes or None, and lists of (key, value) for headers."""
        return {name: _column_list(self._columns, self._projection.order[i])
                for i, name in enumerate(self._projection.names)}

    def __repr__(self):
        return (f"<RecordColumns {self.num_rows} rows, offsets {self.first_offset}.."
                f"{self.last_offset}, {', '.join(self.columns)}>")


cdef inline bint _is_valid(const slg_binary *binary, int64_t row) noexcept:
    return (binary.null_count == 0
            or (binary.validity.data[row >> 3] >> (row & 7)) & 1)


cdef inline object _bytes_at(const slg_binary *binary, int64_t row):
    cdef const int32_t *offsets = <const int32_t *>binary.offsets.data
    if not _is_valid(binary, row):
        return None
    return PyBytes_FromStringAndSize(<const char *>binary.bytes.data + offsets[row],
                                     offsets[row + 1] - offsets[row])


cdef inline str _text_at(const slg_binary *binary, int64_t row):
    cdef const int32_t *offsets = <const int32_t *>binary.offsets.data
    return PyUnicode_DecodeUTF8(<const char *>binary.bytes.data + offsets[row],
                                offsets[row + 1] - offsets[row], NULL)


cdef list _headers_at(const slg_columns *columns, int64_t row):
    cdef const int32_t *lists = <const int32_t *>columns.header_lists.data
    cdef int32_t i
    return [(_text_at(&columns.header_key, i), _bytes_at(&columns.header_value, i))
            for i in range(lists[row], lists[row + 1])]


cdef inline object _fixed_at(const uint8_t *data, slg_column column, int64_t row):
    if column == SLG_COLUMN_TIMESTAMP_TYPE:
        return (<const int8_t *>data)[row]
    if column == SLG_COLUMN_PRODUCER_EPOCH:
        return (<const int16_t *>data)[row]
    if column == SLG_COLUMN_SEQUENCE or column == SLG_COLUMN_LEADER_EPOCH:
        return (<const int32_t *>data)[row]
    if column == SLG_COLUMN_IS_TRANSACTIONAL or column == SLG_COLUMN_IS_CONTROL:
        return bool((data[row >> 3] >> (row & 7)) & 1)
    return (<const int64_t *>data)[row]


cdef list _column_list(const slg_columns *columns, slg_column column):
    cdef list out = PyList_New(columns.rows)
    cdef int64_t row
    cdef object value
    for row in range(columns.rows):
        if column == SLG_COLUMN_KEY:
            value = _bytes_at(&columns.key, row)
        elif column == SLG_COLUMN_VALUE:
            value = _bytes_at(&columns.value, row)
        elif column == SLG_COLUMN_HEADERS:
            value = _headers_at(columns, row)
        else:
            value = _fixed_at(columns.fixed[<int>column].data, column, row)
        Py_INCREF(value)
        PyList_SET_ITEM(out, row, value)
    return out


# ---- decoder -------------------------------------------------------------------------------------

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
    cdef _Projection _projection
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

    def __init__(self, int fd, int64_t start, int64_t end, *, columns=DEFAULT_COLUMNS,
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
        self._projection = _Projection(columns)
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
            self._columns = slg_pool_take(self._pool._pool, self._projection.wanted)
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
        cdef RecordColumns taken
        if self._columns == NULL or self._columns.rows == 0:
            if self._failure is not None:
                raise self._failure
            return None
        taken = RecordColumns.__new__(RecordColumns, _TOKEN)
        taken._columns = self._columns
        taken._projection = self._projection
        self._columns = NULL
        return taken

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


# ---- streams -------------------------------------------------------------------------------------

cdef class _Stream:
    """What an exported ArrowArrayStream pulls from."""

    cdef object iterator
    cdef _Projection projection
    cdef bytes failure


cdef int _stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    cdef _Stream source = <_Stream>stream.private_data
    return 0 if slg_export_schema(source.projection.order, source.projection.count, out) else ENOMEM


cdef int _stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef _Stream source = <_Stream>stream.private_data
    cdef RecordColumns columns
    out.release = NULL
    try:
        columns = next(source.iterator, None)
        if columns is None:
            return 0
        if columns._projection.names != source.projection.names:
            raise ValueError("the iterator gave other columns than the stream's")
    except BaseException as failure:
        source.failure = f"{type(failure).__name__}: {failure}".encode()
        return EIO
    if not slg_export_columns(columns._columns, source.projection.order, source.projection.count,
                              out):
        source.failure = b"no memory for an Arrow array"
        return ENOMEM
    return 0


cdef const char *_stream_error(ArrowArrayStream *stream) noexcept with gil:
    cdef _Stream source = <_Stream>stream.private_data
    if source.failure is None:
        return NULL
    return PyBytes_AS_STRING(source.failure)


cdef void _stream_release(ArrowArrayStream *stream) noexcept with gil:
    Py_DECREF(<_Stream>stream.private_data)
    stream.private_data = NULL
    stream.release = NULL


cdef void _free_stream(object capsule) noexcept:
    cdef ArrowArrayStream *stream
    stream = <ArrowArrayStream *>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
    if stream.release != NULL:
        stream.release(stream)
    free(stream)


def export_stream(iterator, columns=DEFAULT_COLUMNS):
    """An `arrow_array_stream` capsule that pulls RecordColumns of `columns` from `iterator`."""
    cdef _Stream source = _Stream.__new__(_Stream)
    source.projection = _Projection(columns)
    source.iterator = iter(iterator)
    cdef ArrowArrayStream *stream = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
    if stream == NULL:
        raise MemoryError("no memory for an Arrow stream")
    stream.get_schema = _stream_schema
    stream.get_next = _stream_next
    stream.get_last_error = _stream_error
    stream.release = _stream_release
    Py_INCREF(source)
    stream.private_data = <void *>source
    return PyCapsule_New(stream, b"arrow_array_stream", _free_stream)
