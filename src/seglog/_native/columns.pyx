"""Columns of records: their names, their memory, and their export to Arrow."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.errno cimport EIO, ENOMEM
from libc.stdint cimport INT64_MAX, INT64_MIN
from libc.stdlib cimport calloc, free

from seglog._native.capi cimport *
from seglog._native.capi_columns cimport *

LAYOUTS = ("kafka", "spark")
_NAMES = tuple([tuple([slg_column_name(<slg_layout>layout, <slg_column>i).decode()
                       for i in range(<int>SLG_COLUMNS_ALL)])
                for layout in range(<int>SLG_LAYOUTS)])
_ALL = _NAMES[<int>SLG_LAYOUT_KAFKA]
COLUMNS = _ALL[:<int>SLG_COLUMNS]
DEFAULT_COLUMNS = COLUMNS[:6]
# The partition of the records: the same in every row of a set.
ORIGIN_COLUMNS = _ALL[<int>SLG_COLUMNS:]

# A reader holds one set while the next is filled.
cdef enum:
    POOL_KEEP = 2

# Sets of columns in use, over all pools. C counts them atomically.
cdef int64_t _live = 0


def live_columns():
    """The number of column sets in use in this process: 0 once every consumer released them."""
    return _live


@cython.final
cdef class ColumnPool:
    """Recycles the memory of released columns. Safe to share between threads."""

    def __cinit__(self, *, size_t keep=POOL_KEEP):
        self.pool = slg_pool_new(keep, &_live)
        if self.pool == NULL:
            raise MemoryError("no memory for a pool of columns")

    def __dealloc__(self):
        if self.pool != NULL:
            slg_pool_close(self.pool)


# ---- projections ---------------------------------------------------------------------------------

@cython.final
cdef class Projection:
    """The requested columns, in order and by their names in the layout. With `origin` they may
    include ORIGIN_COLUMNS."""

    def __cinit__(self, columns, *, bint origin=False, str layout="kafka"):
        cdef tuple every, known
        names = tuple(columns)
        if layout not in LAYOUTS:
            raise ValueError(f"layout {layout!r} is neither {' nor '.join(LAYOUTS)}")
        self.layout = <slg_layout><int>LAYOUTS.index(layout)
        every = _NAMES[<int>self.layout]
        known = every if origin else every[:<int>SLG_COLUMNS]
        if isinstance(columns, str):
            raise TypeError("columns is a string, not a sequence of names")
        for name in names:
            if name not in known:
                raise ValueError(f"no column {name!r}; there are {', '.join(known)}")
        if len(set(names)) != len(names):
            raise ValueError("a column is named twice")
        self.names = names
        self.count = <size_t>len(names)
        for i, name in enumerate(names):
            self.order[i] = <slg_column><int>every.index(name)
            self.wanted |= <uint32_t>1 << <int>self.order[i]

    cdef object schema(self):
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        return wrap_schema(schema, schema != NULL and slg_export_schema(
            self.layout, self.order, self.count, schema))


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


cdef object wrap_schema(ArrowSchema *schema, bint is_made):
    """A capsule with a schema from calloc. MemoryError unless C made one there."""
    if not is_made:
        free(schema)
        raise MemoryError("no memory for an Arrow schema")
    return PyCapsule_New(schema, b"arrow_schema", _free_schema)


cdef object wrap_array(ArrowArray *array, bint is_made):
    """The same for an array."""
    if not is_made:
        free(array)
        raise MemoryError("no memory for an Arrow array")
    return PyCapsule_New(array, b"arrow_array", _free_array)


def schema_capsule(columns=DEFAULT_COLUMNS, *, layout="kafka"):
    """The Arrow schema of a projection, as an `arrow_schema` capsule."""
    return Projection(columns, origin=True, layout=layout).schema()


# ---- columns -------------------------------------------------------------------------------------

# Private, so that no code outside creates an object without columns.
cdef object _TOKEN = object()


@cython.final
cdef class RecordColumns:
    """Rows of a section of the log, an Arrow array per column. Thread-safe.

    `to_pylists()` has them as Python values; every library that reads the Arrow C data interface
    takes them without a copy (`pyarrow.record_batch(columns)`).
    """

    def __cinit__(self, token=None):
        if token is not _TOKEN:
            raise TypeError("RecordColumns come from RecordDecoder.next()")

    def __dealloc__(self):
        if self.set != NULL:
            slg_columns_release(self.set)

    @property
    def num_rows(self):
        """The number of records."""
        return self.set.rows

    def __len__(self):
        return self.set.rows

    @property
    def nbytes(self):
        """Bytes of memory of all columns."""
        return slg_columns_nbytes(self.set)

    @property
    def columns(self):
        """Their names, in order."""
        return self.projection.names

    @property
    def first_offset(self):
        """The offset of the first record, also without the column `offset`."""
        return self.set.first_offset

    @property
    def last_offset(self):
        """The offset of the last record, also without the column `offset`."""
        return self.set.last_offset

    def timestamp_range(self):
        """The smallest and largest value of the timestamp column."""
        cdef const int64_t *times
        cdef int64_t row, first, last
        cdef int64_t rows = self.set.rows
        if not self.set.wanted >> <int>SLG_COLUMN_TIMESTAMP & 1 or rows == 0:
            raise ValueError("these columns hold no timestamp")
        times = <const int64_t *>self.set.fixed[<int>SLG_COLUMN_TIMESTAMP].data
        with nogil:
            first = last = times[0]
            for row in range(1, rows):
                first = min(first, times[row])
                last = max(last, times[row])
        return first, last

    def __arrow_c_schema__(self):
        return self.projection.schema()

    def __arrow_c_array__(self, requested_schema=None):
        # The protocol lets a producer ignore a requested schema that it cannot serve.
        cdef ArrowArray *array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        return self.projection.schema(), wrap_array(array, array != NULL and slg_export_columns(
            self.set, self.projection.order, self.projection.count, array))

    def to_pylists(self):
        """Each column as a list: ints, bytes or None, and lists of (key, value) for headers."""
        return {name: _column_list(self.set, self.projection.order[i])
                for i, name in enumerate(self.projection.names)}

    def __repr__(self):
        return (f"<RecordColumns {self.num_rows} rows, offsets {self.first_offset}.."
                f"{self.last_offset}, {', '.join(self.columns)}>")


cdef RecordColumns wrap_columns(slg_columns *columns, Projection projection):
    """Takes over the caller's reference."""
    cdef RecordColumns wrapped = RecordColumns.__new__(RecordColumns, _TOKEN)
    wrapped.set = columns
    wrapped.projection = projection
    return wrapped


@cython.final
cdef class RecordOrigin:
    """The partition of records, and the requested columns and rows.

    `columns` may include ORIGIN_COLUMNS; `decoded` are the columns that a decoder must provide.
    Requested rows have a timestamp (ms) at or after `start_timestamp` and before `end_timestamp`.
    """

    cdef Projection projection
    cdef bytes topic
    cdef int32_t partition
    cdef int64_t first, last
    cdef bint by_time
    cdef readonly tuple decoded

    def __cinit__(self, columns, *, str topic, int32_t partition, start_timestamp=None,
                  end_timestamp=None):
        self.projection = Projection(columns, origin=True)
        # File names may be invalid UTF-8, which must not get into Arrow data.
        self.topic = topic.encode("utf-8", "replace")
        self.partition = partition
        self.by_time = start_timestamp is not None or end_timestamp is not None
        self.first = INT64_MIN if start_timestamp is None else start_timestamp
        self.last = INT64_MAX
        if end_timestamp == INT64_MIN:  # no time is before this one
            self.first, self.last = INT64_MAX, INT64_MIN
        elif end_timestamp is not None:
            self.last = end_timestamp - 1
        decoded = [name for name in self.projection.names if name in COLUMNS]
        if self.by_time:
            decoded += [name for name in ("offset", "timestamp") if name not in decoded]
        self.decoded = tuple(decoded)

    def apply(self, RecordColumns columns not None):
        """The requested rows and columns of decoded ones, or None if no row is requested.

        Consumes `columns`: the caller must be their only holder, and cannot use them afterwards.
        """
        cdef slg_columns *held = columns.set
        cdef slg_shape shape = slg_shape(
            self.projection.wanted, self.projection.layout, self.partition,
            PyBytes_AS_STRING(self.topic), <size_t>len(self.topic))
        cdef bint finished
        if columns.projection.names != self.decoded:
            raise ValueError(f"columns {', '.join(columns.columns)}, not "
                             f"{', '.join(self.decoded)}")
        if held.references != 1:
            raise ValueError("somebody else holds these columns")
        with nogil:
            if self.by_time:
                slg_columns_keep_times(held, self.first, self.last)
            finished = slg_columns_finish(held, &shape)
        if not finished:
            raise MemoryError("no memory for the columns of a topic and its partition")
        if held.rows == 0:
            return None
        slg_columns_retain(held)
        return wrap_columns(held, self.projection)


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


cdef object _headers_at(const slg_columns *columns, int64_t row):
    cdef const int32_t *lists = <const int32_t *>columns.header_lists.data
    cdef int32_t i
    if columns.layout == SLG_LAYOUT_SPARK and lists[row] == lists[row + 1]:
        return None
    return [(_text_at(&columns.header_key, i), _bytes_at(&columns.header_value, i))
            for i in range(lists[row], lists[row + 1])]


cdef inline object _fixed_at(const slg_columns *columns, slg_column column, int64_t row):
    cdef const uint8_t *data = columns.fixed[<int>column].data
    if column == SLG_COLUMN_TIMESTAMP_TYPE:
        if columns.layout == SLG_LAYOUT_SPARK:
            return (<const int32_t *>data)[row]
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
        elif column == SLG_COLUMN_TOPIC:
            value = _text_at(&columns.topic, row)
        elif column == SLG_COLUMN_PARTITION:
            value = (<const int32_t *>columns.partition.data)[row]
        else:
            value = _fixed_at(columns, column, row)
        Py_INCREF(value)
        PyList_SET_ITEM(out, row, value)
    return out


# ---- streams -------------------------------------------------------------------------------------

cdef class _Stream:
    """The source of an exported ArrowArrayStream."""

    cdef object iterator
    cdef Projection projection
    cdef bytes failure
    cdef int code

    cdef int fail(self, int code, bytes text) noexcept:
        """Keeps the error: asked again, an iterator that failed would look like the end."""
        self.code, self.failure, self.iterator = code, text, None
        return code


cdef int _stream_schema(ArrowArrayStream *stream, ArrowSchema *out) noexcept with gil:
    cdef _Stream source = <_Stream>stream.private_data
    return 0 if slg_export_schema(source.projection.layout, source.projection.order,
                                  source.projection.count, out) else ENOMEM


cdef int _stream_next(ArrowArrayStream *stream, ArrowArray *out) noexcept with gil:
    cdef _Stream source = <_Stream>stream.private_data
    cdef RecordColumns columns
    out.release = NULL
    if source.failure is not None:
        return source.code
    try:
        columns = next(source.iterator, None)
        if columns is None:
            return 0
        if columns.projection.names != source.projection.names:
            raise ValueError("the iterator gave other columns than the stream's")
    except BaseException as failure:
        # A file may have a name in no encoding. An error here would look like the stream's end.
        try:
            text = f"{type(failure).__name__}: {failure}"
        except BaseException:  # its own text
            text = type(failure).__name__
        return source.fail(EIO, text.encode("utf-8", "backslashreplace"))
    if not slg_export_columns(columns.set, source.projection.order, source.projection.count,
                              out):
        return source.fail(ENOMEM, b"no memory for an Arrow array")
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


def export_stream(iterator, columns=DEFAULT_COLUMNS, *, layout="kafka"):
    """An `arrow_array_stream` capsule that pulls RecordColumns of `columns` from `iterator`."""
    cdef _Stream source = _Stream.__new__(_Stream)
    cdef ArrowArrayStream *stream
    source.projection = Projection(columns, origin=True, layout=layout)
    source.iterator = iter(iterator)
    stream = <ArrowArrayStream *>calloc(1, sizeof(ArrowArrayStream))
    if stream == NULL:
        raise MemoryError("no memory for an Arrow stream")
    stream.get_schema = _stream_schema
    stream.get_next = _stream_next
    stream.get_last_error = _stream_error
    stream.release = _stream_release
    Py_INCREF(source)
    stream.private_data = <void *>source
    return PyCapsule_New(stream, b"arrow_array_stream", _free_stream)
