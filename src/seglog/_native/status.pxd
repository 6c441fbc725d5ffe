from seglog._native.capi cimport slg_error, slg_status

cdef int check(slg_status status, const slg_error *error, object file) except -1
cdef object as_exception(slg_status status, const slg_error *error, object file)
