"""Columns of bytes, for the stems that work on each of their values."""

from seglog._native.encode_columns cimport slg_input

cdef object take_bytes(object column, slg_input *rows, str what)
