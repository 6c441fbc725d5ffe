cimport cython

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from seglog._native.capi_columns cimport (
    SLG_COLUMNS_ALL, ArrowArray, ArrowSchema, slg_column, slg_columns, slg_layout, slg_pool,
)


@cython.final
cdef class ColumnPool:
    cdef slg_pool *pool


@cython.final
cdef class Projection:
    cdef slg_layout layout
    cdef slg_column order[<int>SLG_COLUMNS_ALL]
    cdef size_t count
    cdef uint32_t wanted
    cdef readonly tuple names

    cdef object schema(self)


@cython.final
cdef class RecordColumns:
    cdef slg_columns *set
    cdef Projection projection


cdef RecordColumns wrap_columns(slg_columns *columns, Projection projection)
# Capsules of the Arrow C data interface, which own their structs.
cdef object wrap_schema(ArrowSchema *schema, bint is_made)
cdef object wrap_array(ArrowArray *array, bint is_made)
