"""The metadata of remote segments (KIP-405) in few bytes, and maps of offsets to it."""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyTypeObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cython cimport final
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from seglog._native.capi_index cimport *
from seglog.errors import IllegalArgumentError

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    void PyObject_GC_UnTrack(void *made) noexcept
    object PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t count)

cdef enum:
    CHUNK = 1024

cdef array.array OFFSETS = array.array("q")


# ---- one segment

cdef slg_remote_segment *segment_of(bytes packed) except NULL:
    """Checks that its parts fill the span."""
    cdef slg_remote_segment *segment = <slg_remote_segment *>PyBytes_AS_STRING(packed)
    cdef Py_ssize_t rest = len(packed) - <Py_ssize_t>sizeof(slg_remote_segment)
    if rest < 0 or segment.epoch_count < 1 or rest != max(segment.custom_size, 0) + \
            <Py_ssize_t>segment.epoch_count * <Py_ssize_t>sizeof(slg_segment_epoch):
        raise ValueError("not the packed metadata of a segment")
    return segment


cdef bytes with_tail(slg_remote_segment *head, const slg_segment_epoch *epochs, object custom):
    """The span; fills in the size of the custom metadata."""
    cdef size_t size = <size_t>head.epoch_count * sizeof(slg_segment_epoch)
    cdef size_t custom_size = 0
    cdef bytes tail = custom
    if tail is not None:
        custom_size = <size_t>len(tail)
        head.custom_size = <int32_t>len(tail)
    else:
        head.custom_size = -1
    cdef bytes packed = PyBytes_FromStringAndSize(
        NULL, <Py_ssize_t>(sizeof(head[0]) + size + custom_size))
    cdef char *into = PyBytes_AS_STRING(packed)
    memcpy(into, head, sizeof(head[0]))
    if epochs != NULL:
        memcpy(into + sizeof(head[0]), epochs, size)
    if custom_size:
        memcpy(into + sizeof(head[0]) + size, PyBytes_AS_STRING(tail), custom_size)
    return packed


def pack_segment(metadata):
    """A RemoteLogSegmentMetadata as bytes, the 16 of its id first; without its partition.

    Raises IllegalArgumentError for numbers that do not fit their fields.
    """
    cdef slg_remote_segment head
    cdef slg_segment_epoch *epochs
    cdef bytes packed, segment_id
    cdef Py_ssize_t at
    (one, start, end, max_timestamp, broker_id, event_timestamp, size, starts, custom, state,
     txn_idx_empty) = metadata
    segment_id = one[1]
    if len(segment_id) != SLG_SEGMENT_ID_SIZE:
        raise IllegalArgumentError(f"An id has {SLG_SEGMENT_ID_SIZE} bytes, not {len(segment_id)}")
    memset(&head, 0, sizeof(head))
    memcpy(head.id, PyBytes_AS_STRING(segment_id), SLG_SEGMENT_ID_SIZE)
    try:
        head.start_offset = start
        head.end_offset = end
        head.max_timestamp_ms = max_timestamp
        head.event_timestamp_ms = event_timestamp
        head.broker_id = broker_id
        head.size = size
        head.epoch_count = len(starts)
        head.state = state
        head.txn_idx_empty = txn_idx_empty
        packed = with_tail(&head, NULL, custom)
        epochs = slg_remote_segment_epochs(<slg_remote_segment *>PyBytes_AS_STRING(packed))
        for at, (epoch, offset) in enumerate(starts):
            epochs[at].epoch = epoch
            epochs[at].offset = offset
            epochs[at].unused = 0
    except (OverflowError, TypeError) as error:
        raise IllegalArgumentError(f"{metadata} does not fit its fields: {error}") from None
    return packed


def update_segment(bytes packed not None, update):
    """With broker, time, state and custom metadata of a RemoteLogSegmentMetadataUpdate.

    Raises IllegalArgumentError for numbers that do not fit their fields.
    """
    cdef slg_remote_segment *segment = segment_of(packed)
    cdef slg_remote_segment head = segment[0]
    _, event_timestamp, custom, state, broker_id = update
    try:
        head.event_timestamp_ms = event_timestamp
        head.broker_id = broker_id
        head.state = state
    except (OverflowError, TypeError) as error:
        raise IllegalArgumentError(f"{update} does not fit its fields: {error}") from None
    return with_tail(&head, slg_remote_segment_epochs(segment), custom)


@final
cdef class SegmentUnpacker:
    """Makes the metadata of packed segments of one partition again: a `segment_class` with an
    `id_class`, both named tuples. `states` has the states by their number."""

    cdef object partition
    cdef type segment_class, id_class
    cdef tuple states

    def __cinit__(self, partition, type segment_class not None, type id_class not None,
                  tuple states not None):
        for one in (segment_class, id_class):
            if not issubclass(one, tuple):
                raise TypeError(f"{one.__name__} is no tuple")
        self.partition, self.states = partition, states
        self.segment_class, self.id_class = segment_class, id_class

    def __call__(self, bytes packed not None):
        cdef slg_remote_segment *segment = segment_of(packed)
        cdef const char *tail = PyBytes_AS_STRING(packed) + len(packed)
        if segment.state >= len(self.states):
            raise ValueError(f"state {segment.state} of {len(self.states)}")
        custom = None
        if segment.custom_size >= 0:
            custom = PyBytes_FromStringAndSize(tail - segment.custom_size, segment.custom_size)
        one = named(self.id_class, 2)
        put_item(one, 0, self.partition)
        put_item(one, 1, PyBytes_FromStringAndSize(<const char *>segment.id, SLG_SEGMENT_ID_SIZE))
        made = named(self.segment_class, 11)
        put_item(made, 0, one)
        put_item(made, 1, segment.start_offset)
        put_item(made, 2, segment.end_offset)
        put_item(made, 3, segment.max_timestamp_ms)
        put_item(made, 4, segment.broker_id)
        put_item(made, 5, segment.event_timestamp_ms)
        put_item(made, 6, segment.size)
        put_item(made, 7, segment_epochs(packed))
        put_item(made, 8, custom)
        put_item(made, 9, self.states[segment.state])
        put_item(made, 10, <bint>segment.txn_idx_empty)
        return made


cdef object named(type named_tuple, Py_ssize_t count):
    """A named tuple to fill. Nothing in it can be part of a cycle, so the collector does not visit
    it, as it does not visit plain tuples of numbers."""
    made = PyType_GenericAlloc(<PyTypeObject *>named_tuple, count)
    PyObject_GC_UnTrack(<void *>made)
    return made


cdef inline void put_item(object made, Py_ssize_t at, object item) noexcept:
    Py_INCREF(item)
    PyTuple_SET_ITEM(made, at, item)


def segment_state(bytes packed not None):
    """The number of a segment's state."""
    return segment_of(packed).state


def segment_epochs(bytes packed not None):
    """(epoch, its first offset in the segment), by epoch."""
    cdef slg_remote_segment *segment = segment_of(packed)
    cdef slg_segment_epoch *epochs = slg_remote_segment_epochs(segment)
    cdef int32_t at
    cdef tuple one, found
    if segment.epoch_count == 1:
        one = (epochs[0].epoch, epochs[0].offset)
        found = (one,)
        PyObject_GC_UnTrack(<void *>one)  # the collector would do it, later
        PyObject_GC_UnTrack(<void *>found)
        return found
    return tuple([(epochs[at].epoch, epochs[at].offset) for at in range(segment.epoch_count)])


def segment_epoch_end(bytes packed not None, int32_t epoch):
    """The last offset of an epoch in a segment: before its next epoch, or the segment's end."""
    return slg_remote_segment_epoch_end(segment_of(packed), epoch)


# ---- many segments

@final
cdef class SegmentsByOffset:
    """A sorted map of offsets to packed segments: chunks, so that no change moves a long array.

    Needs 16 bytes an entry when offsets arrive in order, the segments apart. Not thread-safe.
    """

    cdef array.array firsts  # the first offset of each chunk
    cdef list offsets        # arrays
    cdef list segments       # lists

    def __cinit__(self):
        self.firsts = array.clone(OFFSETS, 0, False)
        self.offsets = []
        self.segments = []

    def find(self, int32_t epoch, offset):
        """The segment at the greatest key up to `offset`; empty if this epoch does not hold the
        offset there, None without such a key."""
        cdef int overflow = 0
        cdef int64_t wanted = PyLong_AsLongLongAndOverflow(offset, &overflow)
        cdef Py_ssize_t at = count_up_to(self.firsts, wanted) - 1
        cdef bytes packed
        if overflow or at < 0:
            return None
        packed = (<list>self.segments[at])[
            count_up_to(<array.array>self.offsets[at], wanted) - 1]
        return packed if wanted <= slg_remote_segment_epoch_end(segment_of(packed), epoch) else b""

    def put_last(self, int64_t offset, bytes packed not None):
        """Adds an entry, and removes those at its offset or after it; their segments, from the
        end."""
        cdef Py_ssize_t at = len(self.offsets) - 1
        cdef array.array offsets
        removed = []
        while at >= 0:
            offsets = self.offsets[at]
            while len(offsets) and offsets.data.as_longlongs[len(offsets) - 1] >= offset:
                offsets.pop()
                removed.append((<list>self.segments[at]).pop())
            if len(offsets):
                break
            del self.firsts[at], self.offsets[at], self.segments[at]
            at -= 1
        self.put(offset, packed)
        return removed

    def put(self, int64_t offset, bytes packed not None):
        """Adds an entry, or replaces that of the same offset."""
        cdef Py_ssize_t at = max(count_up_to(self.firsts, offset) - 1, 0)
        cdef Py_ssize_t row, half
        cdef array.array offsets
        cdef list segments
        segment_of(packed)
        if not self.offsets or (at == len(self.offsets) - 1 and len(self.offsets[at]) >= CHUNK
                                and offset > self.offsets[at][CHUNK - 1]):
            self.firsts.append(offset)
            self.offsets.append(array.array("q", (offset,)))
            self.segments.append([packed])
            return
        offsets, segments = self.offsets[at], self.segments[at]
        row = count_up_to(offsets, offset)
        if row > 0 and offsets.data.as_longlongs[row - 1] == offset:
            segments[row - 1] = packed
            return
        offsets.insert(row, offset)
        segments.insert(row, packed)
        self.firsts[at] = offsets[0]
        if len(offsets) > CHUNK:
            half = len(offsets) // 2
            self.firsts.insert(at + 1, offsets[half])
            self.offsets.insert(at + 1, offsets[half:])
            self.segments.insert(at + 1, segments[half:])
            del offsets[half:], segments[half:]

    def remove(self, int64_t offset, bytes segment_id not None):
        """Removes the entry of an offset if its segment has this id."""
        cdef Py_ssize_t at = count_up_to(self.firsts, offset) - 1
        cdef Py_ssize_t row
        cdef array.array offsets
        cdef list segments
        if at < 0:
            return
        offsets, segments = self.offsets[at], self.segments[at]
        row = count_up_to(offsets, offset) - 1
        if offsets.data.as_longlongs[row] != offset or not (<bytes>segments[row]).startswith(
                segment_id):
            return
        del offsets[row], segments[row]
        if len(offsets):
            self.firsts[at] = offsets[0]
        else:
            del self.firsts[at], self.offsets[at], self.segments[at]

    def __len__(self):
        return sum(map(len, self.segments))

    def __iter__(self):
        """The segments by offset."""
        return (packed for segments in self.segments for packed in segments)


cdef Py_ssize_t count_up_to(array.array offsets, int64_t offset) noexcept:
    return <Py_ssize_t>slg_offsets_up_to(<const int64_t *>offsets.data.as_longlongs,
                                         <size_t>len(offsets), offset)
