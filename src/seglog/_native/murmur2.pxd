"""Columns of bytes, for the stems that map each of their values."""

from libc.stdint cimport int32_t

from seglog._native.capi cimport slg_error, slg_status
from seglog._native.capi_columns cimport slg_input

# Fills `out` with one number per row of `rows.key`.
ctypedef slg_status (*column_function)(const slg_input *rows, int32_t how, int32_t null, void *out,
                                       slg_error *error) noexcept nogil

cdef object numbers_of(object column, str what, type dtype, column_function function, int32_t how,
                       int32_t null)
