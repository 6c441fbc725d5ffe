"""The walk over a batch's records, which `clean` continues."""

from seglog._native.capi_append cimport slg_record_rules, slg_record_walk

cdef class RecordWalk:
    cdef slg_record_walk _walk
    cdef slg_record_rules _rules
    cdef Py_buffer _view
    cdef bint _has_view
