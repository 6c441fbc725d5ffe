"""Bytes for native readers from a source without a descriptor: blocks of a fetched object."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pythread cimport (
    PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, NOWAIT_LOCK, WAIT_LOCK,
)
from libc.errno cimport EIO
from libc.string cimport memcpy

from seglog._native.capi cimport *


@cython.final
cdef class WindowSource:
    """Blocks from `load(position, least)`, which returns (first position, buffer with `position`).

    A reader copies from the block without the GIL. When it needs a byte outside the current block
    it calls `load`, with the GIL; `load` may block, and may close the source. A buffer that ends at
    or before `position` means the end of the bytes. The reader raises what `load` raises. One
    reader at a time.
    """

    def __cinit__(self, load):
        self._load = load
        self._block.owner = <void *>self
        self._block.lock = PyThread_allocate_lock()
        if self._block.lock == NULL:
            raise MemoryError("no memory for a lock")

    def __dealloc__(self):
        self._release()
        if self._block.lock != NULL:
            PyThread_free_lock(self._block.lock)

    def close(self):
        """Releases the block and `load`. A later read is an error, as is the one that is at work if
        its `load` closes the source. Waits for a reader of another thread."""
        if self._loader == PyThread_get_thread_ident():
            # This thread's reader has the lock, and takes nothing from a block before `load` ends.
            self._release()
            self._load = None
            return
        with nogil:
            PyThread_acquire_lock(self._block.lock, WAIT_LOCK)
        try:
            self._release()
            self._load = None
        finally:
            PyThread_release_lock(self._block.lock)

    cdef int _release(self) except -1:
        self._block.data = NULL
        self._block.size = 0
        if self._is_held:
            self._is_held = False
            PyBuffer_Release(&self._view)
        return 0

    cdef bint _fetch(self, int64_t position, size_t least) noexcept:
        """Loads the block that contains `position`. Returns whether it succeeded."""
        try:
            if self._load is None:
                raise ValueError("this source of bytes was closed")
            self._loader = PyThread_get_thread_ident()
            try:
                start, block = self._load(position, least)
            finally:
                self._loader = 0
            if self._load is None:
                raise ValueError("this source of bytes was closed while it was read")
            self._release()
            if start > position:
                raise ValueError(f"a block from byte {start} on does not hold byte {position}")
            PyObject_GetBuffer(block, &self._view, PyBUF_SIMPLE)
            self._is_held = True
            self._block.start = start
            self._block.data = <const uint8_t *>self._view.buf
            self._block.size = <size_t>self._view.len
        except BaseException as failure:
            self._failure = failure
            return False
        return True


cdef inline size_t _left(const block_state *block, int64_t position) noexcept nogil:
    cdef int64_t at = position - block.start
    return 0 if at < 0 or <size_t>at >= block.size else block.size - <size_t>at


cdef slg_status _copy(block_state *block, uint8_t *into, size_t least, size_t most,
                      int64_t position, size_t *got, slg_error *error) noexcept nogil:
    cdef size_t done = 0, size
    cdef bint is_fetched
    while done < most:
        size = _left(block, position)
        if size == 0:
            if done >= least:
                break  # `least` bytes suffice: do not wait for more
            with gil:
                is_fetched = (<WindowSource>block.owner)._fetch(position, least - done)
            if not is_fetched:
                return slg_fail_errno(error, SLG_IO, position, EIO)
            size = _left(block, position)
            if size == 0:
                break
        if size > most - done:
            size = most - done
        memcpy(into + done, block.data + (position - block.start), size)
        done += size
        position += <int64_t>size
    got[0] = done
    return SLG_OK


cdef slg_status _read(void *context, uint8_t *into, size_t least, size_t most, int64_t position,
                      size_t *got, slg_error *error) noexcept nogil:
    cdef block_state *block = <block_state *>context
    cdef slg_status status
    if not PyThread_acquire_lock(block.lock, NOWAIT_LOCK):
        with gil:
            (<WindowSource>block.owner)._failure = RuntimeError(
                "another thread is using this source of bytes")
        return slg_fail_errno(error, SLG_IO, position, EIO)
    status = _copy(block, into, least, most, position, got, error)
    PyThread_release_lock(block.lock)
    return status


cdef slg_source source_of(object source) except *:
    """The source that C reads: a descriptor or a WindowSource, which the caller keeps alive."""
    cdef slg_source found
    if isinstance(source, WindowSource):
        found.fd = -1
        found.read = _read
        found.context = <void *>&(<WindowSource>source)._block
        return found
    return slg_source_of(source)


cdef object failure_of(object source):
    """The error of a source's last fetch, returned once; None if none, or for a descriptor."""
    if not isinstance(source, WindowSource):
        return None
    failure, (<WindowSource>source)._failure = (<WindowSource>source)._failure, None
    return failure
