"""The records of whole batches for the log cleaner, and their keys, hashed ahead of the map."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from seglog._native.batch cimport batches_of
from seglog._native.capi cimport *
from seglog._native.capi_clean cimport *
from seglog._native.codec_view cimport view_of

cdef enum:
    PLAIN_BYTES_FIRST = 262144          # room for the blocks of lz4 and snappy
    PLAIN_BYTES_FIRST_OF_ZSTD = 65536
    PLAIN_BYTES_MAX = 67108864


@cython.final
cdef class PlainRecords:
    """The decompressed records of one batch at a time; `direct` has the decoders of storage.codecs
    besides those of C."""

    def __cinit__(self, tuple direct):
        self._direct = direct

    cdef int read(self, const slg_batch *batch, const uint8_t *data, const uint8_t **records,
                  size_t *size) except -1:
        """The plain records of a batch; 0 for one that the reference path has to see."""
        cdef int codec = batch.attributes & SLG_ATTRIBUTE_CODEC
        cdef Py_ssize_t plain
        records[0] = data + batch.position + SLG_BATCH_HEADER_SIZE
        size[0] = <size_t>(batch.size - SLG_BATCH_HEADER_SIZE)
        if codec != SLG_CODEC_NONE:
            plain = self._decompress(codec, records[0], size[0])
            if plain < 0:
                return 0
            records[0], size[0] = <const uint8_t *><char *>self._plain, <size_t>plain
        return 1

    cdef Py_ssize_t _decompress(self, int codec, const uint8_t *payload, size_t size) except -2:
        """Bytes in `_plain`; -1 for a payload that the reference path has to see, whatever is wrong
        with it."""
        cdef object decode = self._direct[codec]
        cdef uint8_t *into
        cdef Py_ssize_t plain = -1
        if size == 0:
            return -1
        # A batch may have 2 GiB: eight times that is more than most processes can take.
        self._grow(min(max(<Py_ssize_t>(PLAIN_BYTES_FIRST_OF_ZSTD if codec == SLG_CODEC_ZSTD
                                        else PLAIN_BYTES_FIRST), 8 * <Py_ssize_t>size),
                       <Py_ssize_t>PLAIN_BYTES_MAX))
        if decode is None:
            into = <uint8_t *><char *>self._plain
            with nogil:
                plain = slg_unframe(codec, payload, size, into, <size_t>self._size)
        else:
            try:
                plain = decode(view_of(payload, size), self._view)
            except Exception:
                pass
        if plain < 0 and 2 * self._size <= PLAIN_BYTES_MAX:
            # Perhaps for want of room: the next such batch shall have it.
            self._grow(2 * self._size)
        return plain

    cdef int _grow(self, Py_ssize_t size) except -1:
        if size > self._size:
            self._view = None
            self._plain = bytearray(size)
            self._view = memoryview(self._plain)
            self._size = size
        return 0


@cython.final
cdef class BatchKeys:
    """The hashed keys of a chunk's batches, for BatchCleaner.map. At most 32,768, 1.8 MB: batches
    after those are left to it, as all that are unusual. One thread at a time."""

    def __cinit__(self, tuple direct):
        self.plain = PlainRecords(direct)

    def __dealloc__(self):
        slg_batch_keys_free(&self.found)

    def read(self, data, rows, int64_t start):
        """Reads the keys at or above an offset."""
        cdef Py_buffer view
        cdef const slg_batch *batches = rows_of(rows, 0)
        cdef size_t at = 0, count = <size_t>len(rows)
        self.of = None
        if not slg_batch_keys_begin(&self.found, count, SLG_BATCH_KEYS_MAX):
            raise MemoryError("no memory for the keys of batches")
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            check_rows(batches, 0, count, view.len)
            self.read_part(<const uint8_t *>view.buf, batches, count, &at, start)
        finally:
            PyBuffer_Release(&view)
        self.of, self.start = rows, start

    cdef int read_part(self, const uint8_t *data, const slg_batch *batches, size_t count,
                       size_t *row, int64_t start) except -1:
        """Reads batches from a row on, as many as there is room for, and moves the row."""
        cdef const uint8_t *records
        cdef size_t size
        cdef slg_clean_step step
        while True:
            with nogil:
                step = slg_batch_keys_read(&self.found, data, batches, count, row, start)
            if step != SLG_CLEAN_CODEC:
                return 0
            if self.plain.read(&batches[row[0]], data, &records, &size):
                with nogil:
                    step = slg_batch_keys_add(&self.found, row[0], &batches[row[0]], records, size,
                                              start)
                if step == SLG_CLEAN_FULL:
                    return 0
            row[0] += 1


cdef const slg_batch *rows_of(object rows, Py_ssize_t row) except NULL:
    cdef const slg_batch *found = batches_of(rows)
    if not 0 <= row <= len(rows) or not len(rows):
        raise IndexError("no such batch")
    return found


cdef int check_rows(const slg_batch *batches, size_t row, size_t count, Py_ssize_t size) except -1:
    for at in range(row, count):
        if (batches[at].size < 0 or batches[at].position < 0
                or batches[at].position > size - batches[at].size):
            raise ValueError("the batch is not in these bytes")
    return 0
