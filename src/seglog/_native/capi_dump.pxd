"""What dumps need of csrc, declared once. `capi` has the rest."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from seglog._native.capi cimport slg_error, slg_status, slg_walk, slg_walk_record

cdef extern from "seglog/dump.h" nogil:
    enum:
        SLG_DUMP_RECORDS
        SLG_DUMP_METADATA
        SLG_DUMP_STRINGS
        SLG_DUMP_CALLER
        SLG_DUMP_BUFFER_MIN

    ctypedef struct slg_dump_gap:
        int64_t previous
        int64_t next

    ctypedef struct slg_dump:
        slg_walk walk
        slg_dump_gap *gaps
        size_t gap_room
        size_t gap_count
        size_t wanted
        slg_walk_record record
        int32_t control

    void slg_dump_init(slg_dump *dump, unsigned what, slg_dump_gap *gaps,
                       size_t gap_room) noexcept
    slg_status slg_dump_text(slg_dump *dump, uint8_t *out, size_t capacity, size_t *used,
                             slg_error *error) noexcept
