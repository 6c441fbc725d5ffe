"""The log cleaner's offset map, and the records of a batch against it."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from seglog._native.capi_append cimport *
from seglog._native.validate cimport RecordWalk

from seglog.errors import IllegalArgumentError



@cython.final
cdef class OffsetMap:
    """Keys to offsets in `memory` bytes, 24 for a slot (Kafka: SkimpyOffsetMap).

    The hash is MD5, as in Kafka: a round over a map that is full ends where Kafka's ends, and keys
    made to have the same MD5 are one key, as they are there.
    """

    cdef slg_offset_map _map

    def __cinit__(self, int64_t memory):
        cdef int64_t slots = memory // SLG_OFFSET_SLOT_SIZE
        if not 1 <= slots or memory > INT32_MAX:
            raise IllegalArgumentError(f"an offset map of {memory} bytes: expected "
                                       f"{SLG_OFFSET_SLOT_SIZE} to {INT32_MAX}")
        self._map.slot_count = <int32_t>slots
        self._map.latest_offset = -1
        self._map.slots = <uint8_t *>calloc(<size_t>slots, SLG_OFFSET_SLOT_SIZE)
        if self._map.slots == NULL:
            raise MemoryError(f"no memory for an offset map of {memory} bytes")

    def __dealloc__(self):
        free(self._map.slots)

    @property
    def slots(self):
        return self._map.slot_count

    @property
    def latest_offset(self):
        return self._map.latest_offset

    @latest_offset.setter
    def latest_offset(self, int64_t offset):
        self._map.latest_offset = offset

    def __len__(self):
        return self._map.entries

    def clear(self):
        """Forgets all keys."""
        if self._map.entries:
            memset(self._map.slots, 0, <size_t>self._map.slot_count * SLG_OFFSET_SLOT_SIZE)
        self._map.entries, self._map.latest_offset = 0, -1

    def put(self, key, int64_t offset):
        """Sets the offset of a key."""
        cdef Py_buffer view
        cdef slg_offset_key wanted
        cdef bint is_put
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            self._hash(&view, &wanted)
            wanted.offset = offset
            is_put = slg_offset_map_put(&self._map, &wanted)
        finally:
            PyBuffer_Release(&view)
        if not is_put:
            raise IllegalArgumentError(
                "Attempted to add a new entry to a full offset map, entries: "
                f"{self._map.entries}, slots: {self._map.slot_count}")

    def get(self, key):
        """The offset of a key, -1 for one that is not there."""
        cdef Py_buffer view
        cdef slg_offset_key wanted
        PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
        try:
            self._hash(&view, &wanted)
            return slg_offset_map_get(&self._map, wanted.hash)
        finally:
            PyBuffer_Release(&view)

    cdef int _hash(self, Py_buffer *view, slg_offset_key *wanted) except -1:
        if view.len > INT32_MAX:
            raise IllegalArgumentError(f"a key of {view.len} bytes: expected at most {INT32_MAX}")
        wanted.data, wanted.size = <const uint8_t *>view.buf, <uint32_t>view.len
        slg_offset_map_hash(&self._map, wanted, 1)
        return 0

    def add_records(self, RecordWalk walk, int64_t start_offset, int32_t limit):
        """Puts the keys of a walk's records at or above `start_offset`, as long as there are fewer
        than `limit`: (Refusal, records read, whether the map was full)."""
        cdef slg_mapped found
        cdef slg_refusal refusal
        with nogil:
            refusal = slg_map_records(&self._map, &walk._walk, start_offset, limit, &found)
        return <int>refusal, found.read, found.is_full


@cython.final
cdef class Retained:
    """Which records of a batch stay: `kept` has a byte for each, 0 for one that goes."""

    cdef slg_retained _found
    cdef slg_refusal _refusal
    cdef readonly bytearray kept

    @property
    def refusal(self):
        return <int>self._refusal

    @property
    def read_count(self):
        return self._found.read

    @property
    def kept_count(self):
        return self._found.kept

    @property
    def invalid_count(self):
        return self._found.invalid

    @property
    def max_offset(self):
        return self._found.max_offset

    @property
    def has_tombstone(self):
        return self._found.has_tombstone


def retain(RecordWalk walk, OffsetMap offset_map, *, bint keeps_all=False, bint keeps_none=False,
           bint keeps_tombstones=True):
    """Which records of a walk stay, up to its end or to the record that is refused."""
    cdef Retained found = Retained.__new__(Retained)
    cdef slg_retention retention
    cdef size_t room = slg_records_max(<size_t>walk._view.len)
    cdef uint8_t *kept
    retention.map = &offset_map._map
    retention.keeps_all, retention.keeps_none = keeps_all, keeps_none
    retention.keeps_tombstones = keeps_tombstones
    if walk._walk.count >= 0:
        room = min(room, <size_t>walk._walk.count)
    found.kept = bytearray(room)
    kept = <uint8_t *><char *>found.kept
    with nogil:
        found._refusal = slg_retain_records(&retention, &walk._walk, kept, &found._found)
    return found
