"""Columns that an encoder takes: pieces of Arrow data of any library, and plain buffers."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.pycapsule cimport PyCapsule_GetPointer
from cython cimport final
from libc.errno cimport EINVAL
from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport strerror

from seglog._native.capi cimport *
from seglog._native.capi_columns cimport *
from seglog._native.status cimport check

from seglog._native.columns import COLUMNS as _COLUMNS, ORIGIN_COLUMNS as _ORIGIN_COLUMNS
from seglog.errors import IllegalArgumentError

# What readers return, of a log or of a topic.
READ_COLUMNS = frozenset((*_COLUMNS, *_ORIGIN_COLUMNS))

# The Arrow types that each column may have, for messages.
_TYPES = {
    "key": "binary or text", "value": "binary or text", "timestamp": "int64 or a timestamp",
    "headers": "a list of structs (key: text, value: binary) or such a map"}

cdef enum:
    BUFFERS_MAX = 4


cdef class ColumnSource:
    """One column, or a table of them, that comes in pieces. Pulled by one thread at a time."""

    def __dealloc__(self):
        self._drop()
        if self._own_schema.release != NULL:
            self._own_schema.release(&self._own_schema)

    cdef int _drop(self) except -1:
        if self._own_array.release != NULL:
            self._own_array.release(&self._own_array)
        self._array = NULL
        self._at = 0
        return 0

    cdef int64_t _left(self) except -1:
        """Rows of the piece in hand, after pulling one that has rows; 0 at the end."""
        while self._array == NULL or self._at >= self._length():
            self._drop()
            if self._pieces is not None:
                if not self._next_piece():
                    return 0
                continue
            if self._stream == NULL:
                return 0
            self._pull()
            if self._array == NULL:
                self._stream = NULL
                return 0
        return self._length() - self._at

    cdef int64_t _length(self) noexcept:
        """Rows of the piece in hand."""
        return self._selected if self._selection != NULL else self._array.length

    cdef bint _next_piece(self) except -1:
        """Takes the next table of selected rows; False after the last."""
        cdef const int32_t[::1] selection
        for capsules, selection in self._pieces:
            if selection is None:
                raise TypeError("row numbers are an array of int32, not None")
            if selection.shape[0] == 0:
                continue
            self._owner = (capsules, selection)
            self._schema, self._array = schema_of(capsules[0]), array_of(capsules[1])
            self._check_names()
            self._selection, self._selected = &selection[0], selection.shape[0]
            return True
        return False

    cdef int _pull(self) except -1:
        cdef int code
        with nogil:
            code = self._stream.get_next(self._stream, &self._own_array)
        if code != 0:
            self._own_array.release = NULL
            raise _stream_failure(self._stream, code)
        if self._own_array.release != NULL:
            self._array = &self._own_array
        return 0

    cdef int _fill(self, slg_input *rows) except -1:
        """Aims the columns of `rows` at the next rows.rows of the piece."""
        cdef int64_t child, first = self._at
        if self._column != SLG_INPUT_OTHER:
            return self._aim(rows, self._column, self._name, self._schema, self._array, self._at)
        if self._array.n_children != self._schema.n_children:
            raise IllegalArgumentError("a table with fewer columns than its schema")
        if self._array.null_count != 0 and self._array.n_buffers > 0 \
                and self._array.buffers[0] != NULL:
            raise IllegalArgumentError("a table whose rows are null")
        if self._selection != NULL:
            rows.selection, rows.selectable = self._selection + self._at, self._array.length
            first = 0
        for child in range(self._schema.n_children):
            column = slg_input_named(self._schema.children[child].name)
            if column != SLG_INPUT_OTHER:
                self._aim(rows, column, _text(self._schema.children[child].name),
                          self._schema.children[child], self._array.children[child],
                          self._array.offset + first)
        return 0

    cdef int _aim(self, slg_input *rows, slg_input_column column, str name, ArrowSchema *schema,
                  ArrowArray *array, int64_t first) except -1:
        cdef slg_error error
        cdef slg_status status = slg_input_arrow(rows, column, schema, array, first, &error)
        if status != SLG_OK:
            coded = "dictionary of " if schema.dictionary != NULL else ""
            check(status, &error, f"column {name!r} of Arrow type {coded}{_text(schema.format)!r}, "
                  f"not {_TYPES[name]}")
        return 0

    cdef int _check_names(self) except -1:
        """A table's columns are those of records; a misspelt one would silently be missing."""
        cdef int64_t child
        seen = set()
        if _text(self._schema.format) != "+s":
            raise IllegalArgumentError(
                f"a table is an Arrow struct, not of type {_text(self._schema.format)!r}")
        for child in range(self._schema.n_children):
            name = _text(self._schema.children[child].name)
            if name not in READ_COLUMNS:
                raise IllegalArgumentError(
                    f"records have no column {name!r}; they have key, value, timestamp, headers")
            if name in seen:
                raise IllegalArgumentError(f"two columns are named {name!r}")
            seen.add(name)
        return 0


cdef object _taken(str what):
    # Who takes a struct out of its capsule leaves one behind whose pointers dangle.
    return ValueError(f"somebody has taken this Arrow {what} already")


cdef ArrowSchema *schema_of(object capsule) except NULL:
    """The schema in a capsule, which keeps it; ValueError if it was moved out."""
    cdef ArrowSchema *schema = <ArrowSchema *>PyCapsule_GetPointer(capsule, b"arrow_schema")
    if schema.release == NULL:
        raise _taken("schema")
    return schema


cdef ArrowArray *array_of(object capsule) except NULL:
    """The array in a capsule, which keeps it; ValueError if it was moved out."""
    cdef ArrowArray *array = <ArrowArray *>PyCapsule_GetPointer(capsule, b"arrow_array")
    if array.release == NULL:
        raise _taken("array")
    return array


cdef str _text(const char *text):
    return "" if text == NULL else text.decode("utf-8", "replace")


cdef object _stream_failure(ArrowArrayStream *stream, int code):
    cdef const char *message = stream.get_last_error(stream)
    said = _text(message if message != NULL else strerror(code))
    return ValueError(said) if code == EINVAL else OSError(code, said)


cdef ColumnSource _new_source(str name):
    cdef ColumnSource source = ColumnSource.__new__(ColumnSource)
    source._name = name
    source._column = SLG_INPUT_OTHER
    if name is not None:
        source._column = slg_input_named(name.encode())
        if source._column == SLG_INPUT_OTHER:
            raise IllegalArgumentError(
                f"records have no column {name!r}; they have key, value, timestamp, headers")
    return source


def arrow_source(data, name=None):
    """A table (or, with a name, a column) of an object with Arrow's PyCapsule protocol."""
    cdef ColumnSource source = _new_source(name)
    cdef int code
    if hasattr(data, "__arrow_c_stream__"):
        source._owner = data.__arrow_c_stream__()
        source._stream = <ArrowArrayStream *>PyCapsule_GetPointer(
            source._owner, b"arrow_array_stream")
        if source._stream.release == NULL:
            raise _taken("stream")
        with nogil:
            code = source._stream.get_schema(source._stream, &source._own_schema)
        if code != 0:
            source._own_schema.release = NULL
            raise _stream_failure(source._stream, code)
        source._schema = &source._own_schema
    elif hasattr(data, "__arrow_c_array__"):
        source._owner = data.__arrow_c_array__()
        source._schema, source._array = schema_of(source._owner[0]), array_of(source._owner[1])
    else:
        raise TypeError(f"{type(data).__name__} has neither __arrow_c_stream__ nor "
                        "__arrow_c_array__")
    if name is None:
        source._check_names()
    return source


def selected_source(pieces):
    """Rows of tables. A piece is a table, as the pair of capsules of `__arrow_c_array__`, and the
    numbers of its rows (int32) in their order. A column of an encoder by itself."""
    cdef ColumnSource source = _new_source(None)
    source._pieces = iter(pieces)
    return source


@final
cdef class _Buffers:
    """What a column of plain buffers points at."""

    cdef const void *buffers[<int>BUFFERS_MAX]
    cdef object arrays
    cdef bytes format


def buffer_source(str name, str format, int64_t length, arrays, validity):
    """A column of an Arrow `format` whose buffers are numpy arrays, `validity` the first or None.

    The caller answers for the arrays: contiguous, and as long as the layout says.
    """
    cdef ColumnSource source = _new_source(name)
    cdef _Buffers held = _Buffers.__new__(_Buffers)
    cdef uintptr_t address
    cdef int number = 1
    if len(arrays) >= BUFFERS_MAX:
        raise ValueError(f"{len(arrays)} buffers are more than a column has")
    held.arrays = (*arrays, validity)
    held.format = format.encode()
    held.buffers[0] = NULL
    if validity is not None:
        address = validity.ctypes.data
        held.buffers[0] = <const void *>address
        source._own_array.null_count = -1
    for array in arrays:
        address = array.ctypes.data
        held.buffers[number] = <const void *>address
        number += 1
    source._own_schema.format = PyBytes_AS_STRING(held.format)
    source._own_array.length = length
    source._own_array.n_buffers = number
    source._own_array.buffers = held.buffers
    source._owner = held
    source._schema, source._array = &source._own_schema, &source._own_array
    return source


@final
cdef class _Pairs:
    """The structs of a list of pairs, which point at each other and at two columns."""

    cdef ArrowSchema item_schema
    cdef ArrowArray item
    cdef ArrowSchema *schemas[3]  # of the item, the key, the value
    cdef ArrowArray *arrays[3]
    cdef const void *no_validity[1]
    cdef object owners


def headers_source(ColumnSource lists, ColumnSource keys, ColumnSource values):
    """The column of headers: row n has the pairs [offsets[n], offsets[n + 1]) of `lists`, a
    `buffer_source` of one array of int64, whose columns `keys` and `values` are `buffer_source`s.
    """
    cdef ColumnSource source = _new_source("headers")
    cdef _Pairs held = _Pairs.__new__(_Pairs)
    held.owners = (lists, keys, values)
    held.schemas[:] = [&held.item_schema, keys._schema, values._schema]
    held.arrays[:] = [&held.item, keys._array, values._array]
    keys._schema.name, values._schema.name = b"key", b"value"
    held.item_schema.format = b"+s"
    held.item_schema.n_children = held.item.n_children = 2
    held.item_schema.children, held.item.children = &held.schemas[1], &held.arrays[1]
    held.item.length = keys._array.length
    held.item.n_buffers = 1
    held.item.buffers = held.no_validity
    source._own_schema, source._own_array = lists._own_schema, lists._own_array
    source._own_schema.n_children = source._own_array.n_children = 1
    source._own_schema.children, source._own_array.children = held.schemas, held.arrays
    source._owner = held
    source._schema, source._array = &source._own_schema, &source._own_array
    return source
