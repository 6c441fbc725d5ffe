"""The lock of a log, which appends take and release inline."""

cimport cython
from cpython.pythread cimport (
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock,
)

from seglog._native.capi cimport slg_log_lock_release, slg_log_lock_take


@cython.final
cdef class LogLock:
    cdef PyThread_type_lock _sleep
    cdef int _word
    cdef unsigned long _owner  # 0: nobody
    cdef size_t _depth

    cdef inline int take(self) except -1:
        cdef unsigned long me = PyThread_get_thread_ident()
        if self._owner != me:
            if not slg_log_lock_take(&self._word):
                self._wait()
            self._owner = me
        self._depth += 1
        return 0

    cdef int _wait(self) except -1

    cdef inline void release(self) noexcept:
        """Undoes one `take` of this thread."""
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            if slg_log_lock_release(&self._word):
                PyThread_release_lock(self._sleep)

    cdef int give(self) except -1
