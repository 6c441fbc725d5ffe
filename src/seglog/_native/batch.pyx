"""Scans of record batches, in memory or through a descriptor. Bad bytes give a status."""

import numpy as np

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, uintptr_t
from libc.stdlib cimport calloc

from seglog._native.capi cimport *
from seglog._native.capi_index cimport *
from seglog._native.capi_columns cimport (
    ArrowArray, ArrowSchema, slg_export_batch_schema, slg_export_batches,
)
from seglog._native.columns cimport wrap_array, wrap_schema
from seglog._native.status cimport as_exception, check
from seglog._native.window cimport failure_of, source_of

from seglog._native.status import Status

BATCH_DTYPE = np.dtype([
    ("base_offset", np.int64), ("last_offset", np.int64), ("base_timestamp", np.int64),
    ("max_timestamp", np.int64), ("producer_id", np.int64), ("position", np.int64),
    ("size", np.int32), ("partition_leader_epoch", np.int32), ("base_sequence", np.int32),
    ("record_count", np.int32), ("crc", np.uint32), ("attributes", np.int16),
    ("producer_epoch", np.int16), ("magic", np.int8),
], align=True)
assert BATCH_DTYPE.itemsize == sizeof(slg_batch)

ATTRIBUTE_CODEC = SLG_ATTRIBUTE_CODEC
ATTRIBUTE_LOG_APPEND_TIME = SLG_ATTRIBUTE_LOG_APPEND_TIME
ATTRIBUTE_TRANSACTIONAL = SLG_ATTRIBUTE_TRANSACTIONAL
ATTRIBUTE_CONTROL = SLG_ATTRIBUTE_CONTROL
ATTRIBUTE_DELETE_HORIZON = SLG_ATTRIBUTE_DELETE_HORIZON

cdef slg_crc32c_kernel _kernel = slg_crc32c_best()


cdef slg_batch *batches_of(object rows) except? NULL:
    cdef uintptr_t address
    if rows.dtype != BATCH_DTYPE or not rows.flags.c_contiguous:
        raise ValueError("batches are rows of BATCH_DTYPE, one behind the other")
    address = rows.ctypes.data
    return <slg_batch *>address


# A scan of headers skips the payloads. A scan with checksums reads everything, in pieces that stay
# in L2 between the copy out of the page cache and the checksum.
cdef enum:
    WINDOW_BYTES_CHECKED = 1048576
    WINDOW_BYTES_HEADERS = 4096
    WINDOW_BYTES_FIND = 65536
    ROOM_FIRST = 256


@cython.final
cdef class BatchScan:
    """The result of a scan, and where and why it ended."""

    cdef slg_batch_scan _scan
    cdef slg_error _error
    cdef slg_status _status
    cdef readonly object batches, next_position
    cdef readonly int status
    cdef readonly int64_t position, expected, found, batch_count, record_count
    cdef readonly int64_t first_offset, last_offset, max_timestamp, offset_of_max_timestamp

    @property
    def status_name(self):
        return slg_status_name(self._status).decode().lower()

    def raise_for_status(self, file):
        """Raises the typed error of a corruption or a failed read; does nothing for outcomes."""
        if self._status >= SLG_BATCH_LENGTH:
            raise as_exception(self._status, &self._error, file)

    def __repr__(self):
        return (f"<BatchScan {self.status_name} at {self.position}: {self.batch_count} batches, "
                f"offsets {self.first_offset}..{self.last_offset}>")


@cython.final
cdef class BatchColumns:
    """Batch headers: rows of BATCH_DTYPE, and a copy of them as Arrow columns."""

    cdef readonly object batches
    cdef readonly object file

    def __init__(self, batches, file):
        self.batches = np.ascontiguousarray(batches, BATCH_DTYPE)
        self.file = file

    def __len__(self):
        return len(self.batches)

    def __arrow_c_schema__(self):
        cdef ArrowSchema *schema = <ArrowSchema *>calloc(1, sizeof(ArrowSchema))
        return wrap_schema(schema, schema != NULL and slg_export_batch_schema(schema))

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray *array = <ArrowArray *>calloc(1, sizeof(ArrowArray))
        return self.__arrow_c_schema__(), wrap_array(array, array != NULL and slg_export_batches(
            batches_of(self.batches), <size_t>len(self.batches), array))

    def __repr__(self):
        return f"<BatchColumns {len(self.batches)} batches of {self.file}>"


cdef object _begin(int64_t position, int64_t end, bint check_crcs, bint strict):
    cdef BatchScan scan = BatchScan.__new__(BatchScan)
    slg_batch_scan_init(&scan._scan)
    scan._scan.checks = (SLG_SCAN_CRC if check_crcs else 0) | (SLG_SCAN_STRICT if strict else 0)
    scan._scan.kernel = _kernel
    scan._scan.position = position
    scan._scan.end = end
    return scan


cdef class _Source:
    """The source of a scan: bytes in memory, or a file."""

    cdef const uint8_t *data
    cdef size_t size
    cdef int64_t start
    cdef slg_window *window

    cdef slg_status run(self, BatchScan scan) noexcept nogil:
        cdef size_t at
        if self.window != NULL:
            return slg_batch_scan_file(&scan._scan, self.window, &scan._error)
        at = <size_t>(scan._scan.position - self.start)
        if at > self.size:
            return SLG_MORE
        return slg_batch_scan_memory(&scan._scan, self.data + at, self.size - at, &scan._error)


cdef object _run(BatchScan scan, _Source source, bint collect, max_batches):
    """Runs to the end or to max_batches; the array of batches grows as needed."""
    cdef int64_t most = INT64_MAX if max_batches is None else max_batches
    cdef int64_t room
    cdef uintptr_t address
    if most < 0:
        raise ValueError("max_batches is negative")
    batches = np.empty(min(most, ROOM_FIRST) if collect else 0, BATCH_DTYPE)
    while True:
        room = most - scan._scan.batch_count
        if collect:
            room = len(batches) - scan._scan.batch_count
            address = batches.ctypes.data
            scan._scan.batches = <slg_batch *>address + scan._scan.batch_count
        scan._scan.batches_left = room
        with nogil:
            scan._status = source.run(scan)
        if (scan._status != SLG_FULL or scan._scan.batch_count >= most
                or scan._scan.position >= scan._scan.until):
            break
        grown = np.empty(min(most, 4 * len(batches)), BATCH_DTYPE)
        grown[:len(batches)] = batches
        batches = grown
    scan.batches = batches[:scan._scan.batch_count] if collect else batches
    scan.status, scan.position = <int>scan._status, scan._scan.position
    scan.next_position = None if scan._scan.next_position < 0 else scan._scan.next_position
    if scan._status not in (SLG_END, SLG_FULL, SLG_MORE):
        scan.expected, scan.found = scan._error.expected, scan._error.found
    scan.batch_count, scan.record_count = scan._scan.batch_count, scan._scan.record_count
    scan.first_offset, scan.last_offset = scan._scan.first_offset, scan._scan.last_offset
    scan.max_timestamp = scan._scan.max_timestamp
    scan.offset_of_max_timestamp = scan._scan.offset_of_max_timestamp
    return scan


def scan(data, *, int64_t position=0, end=None, bint check_crcs=True, bint strict=False,
         max_batches=None):
    """Scans batches in bytes that begin at `position` of a file that ends at `end`."""
    cdef Py_buffer view
    cdef _Source source = _Source.__new__(_Source)
    cdef BatchScan found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or (end is not None and end < position):
            raise ValueError("a position lies before the file or after its end")
        source.data = <const uint8_t *>view.buf
        source.size = <size_t>view.len
        source.start = position
        found = _begin(position, position + view.len if end is None else end, check_crcs, strict)
        if found._scan.end < position + view.len:
            source.size = <size_t>(found._scan.end - position)
        return _run(found, source, True, max_batches)
    finally:
        PyBuffer_Release(&view)


def scan_file(source, int64_t start, int64_t end, *, bint check_crcs=True, bint strict=False,
              bint collect=True, max_batches=None, until=None, window_bytes=None):
    """Scans batches of bytes [start, end) of a file by pread, without the GIL.

    `source` is a descriptor or a WindowSource, whose exceptions propagate.
    """
    cdef slg_window window
    cdef _Source bytes_of = _Source.__new__(_Source)
    cdef BatchScan found
    if start < 0 or end < start:
        raise ValueError("a position lies before the file or after its end")
    if window_bytes is not None:
        if not WINDOW_BYTES_HEADERS <= window_bytes <= WINDOW_BYTES_CHECKED:
            raise ValueError(f"a window of {window_bytes} bytes")
        slg_window_init(&window, source_of(source), end, window_bytes)
    else:
        slg_window_init(&window, source_of(source), end,
                        WINDOW_BYTES_CHECKED if check_crcs else WINDOW_BYTES_HEADERS)
    bytes_of.window = &window
    try:
        found = _begin(start, end, check_crcs, strict)
        if until is not None:
            found._scan.until = until
        _run(found, bytes_of, collect, max_batches)
    finally:
        slg_window_free(&window)
    _raise_failure(source)
    return found


cdef int _raise_failure(object source) except -1:
    failure = failure_of(source)
    if failure is not None:
        raise failure
    return 0


def find_batch(source, int64_t start, int64_t until, int64_t end):
    """A position in [start, until) of a file ending at `end` where a scan may begin, or None."""
    cdef slg_window window
    cdef slg_error error
    cdef slg_status status
    cdef int64_t found = -1
    if start < 0 or end < start:
        raise ValueError("a position lies before the file or after its end")
    slg_window_init(&window, source_of(source), end, WINDOW_BYTES_FIND)
    with nogil:
        status = slg_batch_find(&window, start, until, _kernel, &found, &error)
        slg_window_free(&window)
    _raise_failure(source)
    return found if status == SLG_OK else None


def resync(source, int64_t start, int64_t until, int64_t end, *, int64_t budget, file=None):
    """(position in [start, until) where a scan may begin after damage or None, remaining budget).

    The budget limits the bytes checksummed for false candidates; below 0 it is used up.
    """
    cdef slg_window window
    cdef slg_error error
    cdef slg_status status
    cdef int64_t found = -1
    if start < 0 or end < start:
        raise ValueError("a position lies before the file or after its end")
    slg_window_init(&window, source_of(source), end, WINDOW_BYTES_FIND)
    with nogil:
        status = slg_batch_resync(&window, start, until, _kernel, &budget, &found, &error)
        slg_window_free(&window)
    _raise_failure(source)
    if status == SLG_LIMIT:
        return None, -1
    check(status, &error, source if file is None else file)
    return (found if status == SLG_OK else None), budget
