"""Raw snappy blocks, byte for byte as Kafka's library writes them."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from seglog._native.capi cimport (
    SLG_SNAPPY_BLOCK_MAX, slg_snappy_bound, slg_snappy_compress,
)

BLOCK_MAX = SLG_SNAPPY_BLOCK_MAX


def compress_block(const uint8_t[::1] data not None):
    """One block of at most BLOCK_MAX bytes; ValueError for more."""
    cdef size_t size = <size_t>data.shape[0], written
    cdef const uint8_t *begin = &data[0] if size else NULL
    if size > SLG_SNAPPY_BLOCK_MAX:
        raise ValueError(f"a snappy block of {size} bytes, at most {SLG_SNAPPY_BLOCK_MAX}")
    cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>slg_snappy_bound(size))
    cdef uint8_t *into = <uint8_t *>PyBytes_AS_STRING(out)
    with nogil:
        written = slg_snappy_compress(begin, size, into)
    return out[:written]
