"""The columns of an encoder, for `encode_columns`."""

from libc.stdint cimport int32_t, int64_t

from seglog._native.capi cimport *
from seglog._native.capi_columns cimport *


cdef class ColumnSource:
    cdef ArrowSchema *_schema     # borrowed, or &_own_schema
    cdef ArrowArray *_array       # the piece in hand, NULL when there is none
    cdef ArrowSchema _own_schema
    cdef ArrowArray _own_array
    cdef ArrowArrayStream *_stream
    cdef object _owner            # keeps alive what is borrowed
    cdef slg_input_column _column # SLG_INPUT_OTHER: a table
    cdef str _name
    cdef int64_t _at              # rows of the piece that were taken
    cdef object _pieces           # of selected rows: pieces that were not pulled yet
    cdef const int32_t *_selection
    cdef int64_t _selected

    cdef int _drop(self) except -1
    cdef int64_t _left(self) except -1
    cdef int64_t _length(self) noexcept
    cdef bint _next_piece(self) except -1
    cdef int _pull(self) except -1
    cdef int _fill(self, slg_input *rows) except -1
    cdef int _aim(self, slg_input *rows, slg_input_column column, str name, ArrowSchema *schema,
                  ArrowArray *array, int64_t first) except -1
    cdef int _check_names(self) except -1


cdef ArrowSchema *schema_of(object capsule) except NULL
cdef ArrowArray *array_of(object capsule) except NULL
