"""Record batches from columns."""

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.pythread cimport (
    NOWAIT_LOCK, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_release_lock, PyThread_type_lock,
)
from cython cimport final
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from seglog._native.capi cimport *
from seglog._native.capi_columns cimport *
from seglog._native.encode_sources cimport ColumnSource
from seglog._native.status cimport check

from seglog.errors import IllegalArgumentError

cdef extern from "Python.h":
    ctypedef struct PyVarObject:
        pass

    # A pointer, because only the holder of its single reference may resize a bytes object.
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    char *bytes_data "PyBytes_AS_STRING"(PyObject *data) noexcept
    int _PyBytes_Resize(PyObject **data, Py_ssize_t size) except -1
    void set_size "Py_SET_SIZE"(PyVarObject *data, Py_ssize_t size) noexcept
    void Py_XDECREF(PyObject *data) noexcept

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()


cdef bytes _whole(PyObject *span, size_t used, size_t capacity):
    """The first `used` bytes of `span`, whose only reference it takes; None for NULL."""
    if span == NULL or used == 0:
        Py_XDECREF(span)
        return None
    if used < capacity // 8 * 7:
        _PyBytes_Resize(&span, <Py_ssize_t>used)
    else:
        # A block that shrinks by a few pages is mapped and zeroed anew for every span (a sixth
        # of the time); one that keeps its size is used again.
        bytes_data(span)[used] = 0
        set_size(<PyVarObject *>span, <Py_ssize_t>used)
    result = <bytes>span
    Py_XDECREF(span)
    return result


# ---- the encoder ---------------------------------------------------------------------------------

@final
cdef class ColumnEncoder:
    """Spans of record batches from columns of the same length. One thread at a time."""

    cdef slg_encoder _encoder
    cdef slg_input _input
    cdef slg_error _error
    cdef PyThread_type_lock _lock
    cdef list _sources
    cdef object _compress
    cdef Py_ssize_t _span_bytes  # 0: all in one
    cdef bint _ended
    cdef bint _is_lost      # the system refused memory and took the span with its batches
    cdef PyObject *_span    # without a codec: bytes that C fills, handed out once they are whole
    cdef uint8_t *_records  # with one, the records of the open batch
    cdef list _parts        # and the batches that are done
    cdef Py_ssize_t _parts_size

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError("no memory for a lock")

    def __init__(self, sources, *, base_offset=None, int attributes=0,
                 int64_t producer_id=-1, int16_t producer_epoch=-1, int32_t base_sequence=-1,
                 int32_t partition_leader_epoch=-1, int64_t timestamp=-1,
                 int64_t append_time=-1, int64_t max_batch_bytes=INT32_MAX,
                 int64_t max_records=INT32_MAX, span_bytes=None, compress=None):
        cdef slg_encode_fields fields
        if self._sources is not None:
            raise TypeError("a ColumnEncoder is initialised once")
        if base_offset is not None and base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
        if not 0 < max_batch_bytes <= INT32_MAX or not 0 < max_records <= INT32_MAX:
            raise ValueError("max_batch_bytes and max_records lie between 1 and 2147483647")
        if span_bytes is not None and span_bytes < 1:
            raise ValueError(f"span_bytes is {span_bytes}, not positive")
        if (attributes & SLG_ATTRIBUTE_CODEC != 0) != (compress is not None):
            raise ValueError("attributes name a codec if and only if compress is given")
        fields.attributes = <int16_t>attributes
        fields.max_timestamp = append_time
        fields.producer_id, fields.producer_epoch = producer_id, producer_epoch
        fields.base_sequence = base_sequence
        fields.partition_leader_epoch = partition_leader_epoch
        fields.last_offset_delta = 0
        slg_encoder_init(&self._encoder, &fields, base_offset or 0, _kernel)
        self._encoder.is_sent = base_offset is None
        self._encoder.default_timestamp = timestamp
        if span_bytes is not None and compress is None:
            self._encoder.limit = <size_t>span_bytes
        self._encoder.batch.max_size = max_batch_bytes
        self._encoder.batch.max_records = <int32_t>max_records
        self._compress, self._span_bytes = compress, 0 if span_bytes is None else span_bytes
        self._parts = []
        self._sources = list(sources)
        if not self._sources:
            raise ValueError("no column to encode")
        if len(self._sources) > 1 and any(
                [(<ColumnSource>one)._pieces is not None for one in sources]):
            raise ValueError("selected rows have all columns of their tables")

    def __dealloc__(self):
        free(self._records)
        Py_XDECREF(self._span)
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    @property
    def batches(self):
        return self._encoder.batches

    @property
    def records(self):
        return self._encoder.records

    def __iter__(self):
        return self

    def __next__(self):
        span = self.next()
        if span is None:
            raise StopIteration
        return span

    def next(self):
        """Whole batches: at least one, and as many as fit in `span_bytes` (None: all). None at the
        end."""
        if self._sources is None:
            raise ValueError("the encoder was never initialised")
        if self._is_lost:
            raise MemoryError("the batches so far were lost for want of memory")
        if not PyThread_acquire_lock(self._lock, NOWAIT_LOCK):
            raise RuntimeError("another thread is using this encoder")
        try:
            span = None
            while span is None and not self._ended:
                if self._input.row >= self._input.rows and not self._refill():
                    span = self._finish()
                else:
                    span = self._feed()
            return span
        finally:
            PyThread_release_lock(self._lock)

    cdef bint _refill(self) except -1:
        """Points the input at the rows that all sources have ready; False at their end."""
        cdef int64_t rows = INT64_MAX
        cdef ColumnSource source
        for source in self._sources:
            source._at += self._input.rows
        memset(&self._input, 0, sizeof(slg_input))  # a missing column is all nulls
        for source in self._sources:
            rows = min(rows, source._left())
        for source in self._sources:
            if rows == 0 and source._left() > 0:
                raise IllegalArgumentError("the columns have different lengths")
        self._input.rows = rows
        if rows == 0:
            return False
        try:
            for source in self._sources:
                source._fill(&self._input)
        except BaseException:
            # The next call must not take the columns that are not filled for nulls.
            memset(&self._input, 0, sizeof(slg_input))
            raise
        return True

    cdef bytes _feed(self):
        """Encodes until the current rows end (None) or a span is full (its bytes)."""
        cdef slg_status status
        with nogil:
            status = slg_encoder_feed(&self._encoder, &self._input, &self._error)
        if status == SLG_OK:
            return None
        if status == SLG_CODEC:
            return self._close_compressed()
        if status == SLG_MORE:
            return self._more(<size_t>self._error.expected)
        row = self._encoder.records + self._encoder.batch.record_count
        check(status, &self._error, f"row {row}")
        return None

    # ---- without a codec: C writes consecutive batches into a span

    cdef bytes _more(self, size_t wanted):
        """Makes `wanted` bytes for the open batch. Returns the whole batches before it, or None."""
        cdef size_t used = self._encoder.used
        cdef size_t capacity = max(<size_t>self._span_bytes, wanted)
        cdef PyObject *full
        cdef size_t size
        if self._encoder.batch.record_count > 0:
            # A batch that outgrows its span doubles it, so it moves only a few times.
            capacity = max(capacity, 2 * wanted)
        if self._compress is not None:
            self._grow_records(capacity)
            return None
        if self._span_bytes == 0 and self._span != NULL:
            # The C library moves a large block by its page tables, without copying.
            capacity = 2 * (used + wanted)
            try:
                _PyBytes_Resize(&self._span, <Py_ssize_t>capacity)
            except BaseException:
                self._is_lost = True  # a failed resize frees the object
                raise
            slg_encoder_grow(&self._encoder, <uint8_t *>bytes_data(self._span), capacity)
            return None
        full, size = self._span, self._encoder.capacity
        self._span = new_bytes(NULL, <Py_ssize_t>capacity)
        slg_encoder_move(&self._encoder, <uint8_t *>bytes_data(self._span), capacity)
        return _whole(full, used, size)

    cdef bytes _finish(self):
        cdef PyObject *full
        if self._compress is not None:
            span = None
            if self._encoder.batch.record_count > 0:
                span = self._close_compressed()
            if span is not None:
                return span  # The last batch did not fit into it: the next call takes that.
            span = self._take_parts()
            self._ended = True
            return span
        self._ended = True
        slg_encoder_close(&self._encoder, NULL, NULL, 0)
        full, self._span = self._span, NULL
        return _whole(full, self._encoder.used, self._encoder.capacity)

    # ---- with a codec: C writes the records of a batch, and the codec's payload replaces them

    cdef int _grow_records(self, size_t capacity) except -1:
        cdef uint8_t *grown = <uint8_t *>realloc(self._records, capacity)
        if grown == NULL:
            raise MemoryError("no memory for a batch")
        self._records = grown
        slg_encoder_grow(&self._encoder, grown, capacity)
        return 0

    cdef bytes _close_compressed(self):
        """Ends the open batch. Returns the span before it if the batch does not fit in."""
        cdef bytes span = None
        cdef bytes header = PyBytes_FromStringAndSize(NULL, SLG_BATCH_HEADER_SIZE)
        cdef bytes payload
        view = PyMemoryView_FromMemory(<char *>self._records + SLG_BATCH_HEADER_SIZE,
                                       <Py_ssize_t>self._encoder.batch.size - SLG_BATCH_HEADER_SIZE,
                                       PyBUF_READ)
        try:
            payload = self._compress(view)
        finally:
            view.release()  # The next batch is written over these bytes.
        if len(payload) > INT32_MAX - SLG_BATCH_HEADER_SIZE:
            raise IllegalArgumentError(
                f"a batch of {len(payload) + SLG_BATCH_HEADER_SIZE} bytes, above the largest of "
                f"{INT32_MAX}")
        if 0 < self._span_bytes < self._parts_size + SLG_BATCH_HEADER_SIZE + len(payload):
            span = self._take_parts()
        slg_encoder_close(&self._encoder, <uint8_t *>PyBytes_AS_STRING(header),
                          <const uint8_t *>PyBytes_AS_STRING(payload), <size_t>len(payload))
        self._parts += (header, payload)
        self._parts_size += SLG_BATCH_HEADER_SIZE + len(payload)
        return span

    cdef bytes _take_parts(self):
        # They are kept until the span is made: without memory for it the next call tries again.
        cdef bytes span = b"".join(self._parts) if self._parts else None
        self._parts, self._parts_size = [], 0
        return span
