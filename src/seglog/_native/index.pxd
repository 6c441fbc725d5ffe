cimport cython
from libc.stdint cimport int64_t

from seglog._native.capi cimport slg_error, slg_status
from seglog._native.capi_index cimport (
    slg_index_bound, slg_index_file, slg_index_found, slg_index_kind, slg_index_policy,
)


@cython.final
cdef class IndexReader:
    cdef readonly object path
    cdef slg_index_file file

    cdef int open(self, object path, slg_index_kind kind, int64_t base_offset,
                  slg_index_policy policy) except -1
    # Keeps the GIL if the entries are copied: their search takes less time than its release.
    cdef slg_status ask(self, int64_t entries, slg_index_bound bound, int64_t target,
                        slg_index_found *found, slg_error *error) noexcept
    cdef object search(self, int64_t entries, slg_index_bound bound, int64_t target)
    cdef slg_status copy(self, bytearray into, slg_error *error) except *
