"""Builds record batches of magic 2 record by record."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cython cimport critical_section, final
from libc.stdint cimport INT64_MAX, int32_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from seglog._native.capi cimport *
from seglog._native.capi_columns cimport *
from seglog._native.status cimport check

from seglog.errors import IllegalArgumentError

cdef enum:
    CAPACITY_FIRST = 1024

BATCH_OVERHEAD = <int>SLG_BATCH_HEADER_SIZE
cdef slg_crc32c_kernel _kernel = slg_crc32c_best()


@final
cdef class _Bytes:
    """Holds the bytes of a key, a value or a header field."""

    cdef Py_buffer view
    cdef bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef _Bytes _take(object source, const uint8_t **data, int64_t *size):
    """Borrows `source`; None is null. The result keeps the bytes alive if necessary."""
    cdef _Bytes owner
    if source is None:
        data[0], size[0] = NULL, -1
        return None
    if PyBytes_CheckExact(source):
        data[0], size[0] = <const uint8_t *>PyBytes_AS_STRING(source), PyBytes_GET_SIZE(source)
        return None
    if not PyObject_CheckBuffer(source):
        raise TypeError(f"keys and values are bytes or None, not {type(source).__name__}")
    owner = _Bytes.__new__(_Bytes)
    PyObject_GetBuffer(source, &owner.view, PyBUF_SIMPLE)
    owner.held = True
    data[0], size[0] = <const uint8_t *>owner.view.buf, owner.view.len
    return owner


cdef bytes _varint(int64_t value):
    out = bytearray()
    cdef uint64_t rest = (<uint64_t>value << 1) ^ (~<uint64_t>0 if value < 0 else <uint64_t>0)
    while rest >= 0x80:
        out.append(<uint8_t>(rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(<uint8_t>rest)
    return bytes(out)


cdef tuple _encode_headers(object headers):
    """(encoded headers, their count) of pairs of text (or bytes) and bytes or None."""
    cdef list parts = []
    cdef int32_t count = 0
    for key, value in headers:
        if key is None:
            check(SLG_ENCODE_HEADER_KEY, NULL, None)
        name = key.encode() if isinstance(key, str) else bytes(memoryview(key))
        parts += (_varint(len(name)), name)
        if value is None:
            parts.append(_varint(-1))
        else:
            content = value if PyBytes_CheckExact(value) else bytes(memoryview(value))
            parts += (_varint(len(content)), content)
        count += 1
    return b"".join(parts), count


@final
cdef class BatchEncoder:
    """One open batch: `append` adds records, `seal` returns the bytes of the batch.

    A batch that is `rewritten` keeps its base offset, also a negative one of a damaged batch."""

    def __cinit__(self, int64_t base_offset=0, *, delete_horizon=None, bint rewritten=False):
        if base_offset < 0 and not rewritten:
            raise IllegalArgumentError(f"base offset {base_offset} is negative")
        slg_encode_open(&self._batch, NULL, 0, base_offset)
        if delete_horizon is not None:
            self._batch.base_timestamp = delete_horizon
            self._batch.has_base_timestamp = True

    def __dealloc__(self):
        free(self._batch.data)

    cdef tuple _record(self, slg_encode_record *record, int64_t offset, int64_t timestamp, key,
                       value, headers):
        """Fills `record`; the result keeps its memory alive."""
        cdef bytes encoded = b""
        record.offset, record.timestamp = offset, timestamp
        key_owner = _take(key, &record.key, &record.key_size)
        value_owner = _take(value, &record.value, &record.value_size)
        record.header_count = 0
        if headers:
            encoded, record.header_count = _encode_headers(headers)
        record.headers_size = PyBytes_GET_SIZE(encoded)
        return key_owner, value_owner, encoded

    cdef int _grow(self, size_t wanted) except -1:
        cdef size_t capacity = max(wanted, 2 * self._batch.capacity, <size_t>CAPACITY_FIRST)
        cdef uint8_t *data = <uint8_t *>realloc(self._batch.data, capacity)
        if data == NULL:
            raise MemoryError("no memory for a batch")
        self._batch.data, self._batch.capacity = data, capacity
        return 0

    def append(self, int64_t offset, int64_t timestamp, key, value, headers=(),
               int64_t max_size=INT64_MAX):
        """Adds a record and returns its size in the batch. Adds nothing if it raises.

        Returns 0 and adds nothing if a record other than the first would make the batch larger
        than `max_size` bytes.
        """
        cdef slg_encode_record record
        cdef slg_status status
        cdef uint8_t *at
        cdef size_t before
        with critical_section(self):
            # First, because an iterator of headers may run other threads, and append itself.
            owners = self._record(&record, offset, timestamp, key, value, headers)
            before = self._batch.size
            self._batch.max_size = max_size
            status = slg_encode_add(&self._batch, &record, &at, &self._error)
            if status == SLG_MORE:
                self._grow(<size_t>self._error.expected)
                status = slg_encode_add(&self._batch, &record, &at, &self._error)
            check(status, &self._error, None)
            if status == SLG_FULL:
                return 0
            if record.headers_size > 0:
                memcpy(at, PyBytes_AS_STRING(owners[2]), <size_t>record.headers_size)
            return <int64_t>(self._batch.size - before)

    def size_of(self, int64_t offset, int64_t timestamp, key, value, headers=()):
        """The number of bytes that `append` would add."""
        cdef slg_encode_record record
        with critical_section(self):
            owners = self._record(&record, offset, timestamp, key, value, headers)
            return slg_encode_size(&self._batch, &record)

    def records(self):
        """The bytes of the records so far, without a header, uncompressed."""
        with critical_section(self):
            if self._batch.record_count == 0:
                return b""
            return PyBytes_FromStringAndSize(
                <const char *>self._batch.data + SLG_BATCH_HEADER_SIZE,
                <Py_ssize_t>self._batch.size - SLG_BATCH_HEADER_SIZE)

    cdef int32_t _last_offset_delta(self, int64_t last_offset) except? -1:
        # As Java's cast: a batch may say that it ends before it begins, and be written again.
        return <int32_t><uint32_t>(<uint64_t>last_offset - <uint64_t>self._batch.base_offset)

    def seal(self, *, int attributes=0, max_timestamp=None, last_offset=None,
             int64_t producer_id=-1, int16_t producer_epoch=-1, int32_t base_sequence=-1,
             int32_t partition_leader_epoch=-1, payload=None):
        """The bytes of the batch with the appended records or the compressed `payload`.

        The encoder does not change, so the same records may be sealed again with other fields.
        """
        cdef slg_encode_fields fields
        cdef const uint8_t *data
        cdef int64_t size
        cdef bytes out
        with critical_section(self):
            if self._batch.record_count == 0:
                raise ValueError("a batch without records is not written")
            fields.attributes = <int16_t>attributes
            fields.max_timestamp = (self._batch.max_timestamp if max_timestamp is None
                                    else max_timestamp)
            fields.last_offset_delta = self._last_offset_delta(
                self._batch.last_offset if last_offset is None else last_offset)
            fields.producer_id, fields.producer_epoch = producer_id, producer_epoch
            fields.base_sequence = base_sequence
            fields.partition_leader_epoch = partition_leader_epoch
            owner = _take(payload, &data, &size)
            if payload is None:
                data = self._batch.data + SLG_BATCH_HEADER_SIZE
                size = <int64_t>self._batch.size - SLG_BATCH_HEADER_SIZE
            if size > 0x7FFFFFFF - SLG_BATCH_HEADER_SIZE:
                self._error.expected, self._error.found = 0x7FFFFFFF, size + SLG_BATCH_HEADER_SIZE
                check(SLG_ENCODE_SIZE, &self._error, None)
            out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size + SLG_BATCH_HEADER_SIZE)
            memcpy(PyBytes_AS_STRING(out) + SLG_BATCH_HEADER_SIZE, data, <size_t>size)
            slg_encode_seal(<uint8_t *>PyBytes_AS_STRING(out), &self._batch, &fields,
                            <const uint8_t *>PyBytes_AS_STRING(out) + SLG_BATCH_HEADER_SIZE,
                            <size_t>size, _kernel)
            return out

    @property
    def base_offset(self):
        return self._batch.base_offset

    @property
    def last_offset(self):
        return self._batch.last_offset if self._batch.record_count else None

    @property
    def base_timestamp(self):
        return self._batch.base_timestamp if self._batch.has_base_timestamp else None

    @property
    def max_timestamp(self):
        return self._batch.max_timestamp

    @property
    def offset_of_max_timestamp(self):
        return self._batch.offset_of_max_timestamp

    @property
    def record_count(self):
        return self._batch.record_count

    @property
    def records_size(self):
        return <int64_t>self._batch.size - SLG_BATCH_HEADER_SIZE
