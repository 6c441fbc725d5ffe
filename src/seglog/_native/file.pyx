"""Bounded system calls. Every failure is a typed error that names the file."""

import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from posix.fcntl cimport AT_FDCWD
from posix.unistd cimport close

from seglog._native.capi cimport *
from seglog._native.status cimport check

cdef enum:
    LOOK_FILES = 8        # at once
    LOOK_BYTES = 1 << 14  # of each


cdef bytes encoded(path):
    """The bytes of a path for C, which would end it at a null byte."""
    cdef bytes name = os.fsencode(path)
    if b"\0" in name:
        raise ValueError("embedded null byte")
    return name


def open_read(path, *, bint follow_links=False):
    """Opens a regular file for reading and returns `(fd, size)`; the caller closes `fd`.

    A fifo, a device, a directory or (without `follow_links`) a symbolic link raises
    KafkaStorageError without waiting.
    """
    cdef bytes name = encoded(path)
    cdef const char *c_name = name
    cdef int fd = -1
    cdef int64_t size = 0
    cdef slg_error error
    cdef slg_status status
    with nogil:
        status = slg_open_read(AT_FDCWD, c_name, follow_links, &fd, &size, &error)
    check(status, &error, path)
    return fd, size


def file_size(int fd, *, file=None):
    """Size in bytes of an open regular file."""
    cdef int64_t size = 0
    cdef slg_error error
    check(slg_file_size(fd, &size, &error), &error, fd if file is None else file)
    return size


def read_at(int fd, size_t size, int64_t position, *, file=None):
    """Exactly `size` bytes at `position`; KafkaStorageError if the file ends before."""
    cdef bytes into
    cdef char *data
    cdef slg_error error
    cdef slg_status status
    # A wrong size must not cause an allocation of that size.
    cdef int64_t available = file_size(fd, file=file)
    if position < 0 or position > available or size > <uint64_t>(available - position):
        found = 0 if position < 0 else max(0, available - position)
        status = slg_fail(&error, SLG_FILE_SHRANK, position, <int64_t>size, found)
        check(status, &error, fd if file is None else file)
    into = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
    data = PyBytes_AS_STRING(into)
    with nogil:
        status = slg_pread_exact(fd, data, size, position, &error)
    check(status, &error, fd if file is None else file)
    return into


def preallocate(int fd, int64_t size, *, file=None):
    """Extends the file with zeros to `size` bytes and reserves their blocks (KIP-20).

    Never shrinks it or changes existing bytes. On failure the old length is restored.
    """
    cdef slg_error error
    cdef slg_status status
    with nogil:
        status = slg_preallocate(fd, size, &error)
    check(status, &error, fd if file is None else file)


def trim(int fd, int64_t size, *, file=None):
    """Truncates the file to its logical `size`; KafkaStorageError if it is shorter."""
    cdef slg_error error
    cdef slg_status status
    with nogil:
        status = slg_trim(fd, size, &error)
    check(status, &error, fd if file is None else file)


def sync(int fd, *, bint metadata=False, file=None):
    """Makes data and length durable; with `metadata` times and modes as well.

    Also takes the descriptor of a directory. A failure is final: the kernel may have dropped the
    pages, and a second call can still succeed.
    """
    cdef slg_error error
    cdef slg_status status
    with nogil:
        status = slg_sync(fd, metadata, &error)
    check(status, &error, fd if file is None else file)


def start_writeback(int fd, int64_t position, int64_t size):
    """Starts writing these bytes to disk where the system can (Linux), without waiting.

    Guarantees nothing: `sync` must follow, and has less to do.
    """
    with nogil:
        slg_start_writeback(fd, position, size)


def set_size(path, int64_t size):
    """Truncates the regular file `path`, or extends it with zeros. Raises for a link."""
    cdef bytes name = encoded(path)
    cdef const char *c_name = name
    cdef slg_error error
    cdef slg_status status
    with nogil:
        status = slg_set_size(c_name, size, &error)
    check(status, &error, path)


def look(directory, read, measure=()):
    """{name: (size, content)} of files in a directory, in one call without the GIL.

    Reads the content of files in `read` of up to LOOK_BYTES. (None, None) is a missing file. Omits
    files that are not regular or cannot be read.
    """
    cdef slg_seen seen[LOOK_FILES]
    cdef uint8_t room[LOOK_FILES * LOOK_BYTES]
    cdef bytes home = encoded(directory)
    cdef const char *c_home = home
    cdef Py_ssize_t count, i, read_count = len(read)
    cdef bytes packed
    cdef const char *c_names
    names = [*read, *measure]
    count = len(names)
    packed = os.fsencode("\0".join(names)) + b"\0"
    if count > LOOK_FILES or not count or packed.count(b"\0") != count:
        raise ValueError(f"1 to {LOOK_FILES} names without a null byte, not {count}")
    c_names = packed
    with nogil:
        slg_look(c_home, c_names, <size_t>count, <size_t>read_count, LOOK_BYTES, room, seen)
    found = {}
    for i in range(count):
        if seen[i].size == SLG_SEEN_MISSING:
            found[names[i]] = (None, None)
        elif seen[i].size >= 0:
            found[names[i]] = (seen[i].size, None if seen[i].content < 0 else
                               (<const char *>room + i * LOOK_BYTES)[:seen[i].content])
    return found
