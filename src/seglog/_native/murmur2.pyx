"""The hash of Kafka's producers over keys in memory: one, or an Arrow column of them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from seglog._native.capi cimport SLG_OK, slg_error, slg_status
from seglog._native.capi_columns cimport (
    SLG_INPUT_KEY, ArrowArray, ArrowSchema, slg_input, slg_input_arrow, slg_murmur2,
    slg_murmur2_column,
)
from seglog._native.encode_sources cimport array_of, schema_of
from seglog._native.status cimport check

import numpy as np


def murmur2(data):
    """The signed 32-bit hash of bytes (Kafka: Utils.murmur2)."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return slg_murmur2(<const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)


def hashes(column, int32_t null=0):
    """`murmur2` of every value of an Arrow array, int32; `null` for a null."""
    return numbers_of(column, "keys", np.int32, hash_column, 0, null)


def partitions(column, int32_t count):
    """The partition among `count` of every key of an Arrow array, int32; -1 for a null key.

    Kafka: BuiltInPartitioner.partitionForKey; producers choose any partition for a null key.
    `column` is any binary or text array with `__arrow_c_array__`; text is hashed as UTF-8. Raises
    IllegalArgumentError for other types, ValueError for less than one partition.
    """
    if count < 1:
        raise ValueError(f"{count} partitions, at least 1 is needed")
    return numbers_of(column, "keys", np.int32, hash_column, count, -1)


cdef slg_status hash_column(const slg_input *rows, int32_t how, int32_t null, void *out,
                            slg_error *error) noexcept nogil:
    return slg_murmur2_column(&rows.key, rows.rows, how, null, <int32_t *>out, error)


cdef object numbers_of(object column, str what, type dtype, column_function function, int32_t how,
                       int32_t null):
    """Applies `function` to a whole binary or text array with `__arrow_c_array__`.

    Returns one `dtype` per row. Raises IllegalArgumentError for other types, naming the values
    `what`.
    """
    cdef slg_input rows
    cdef slg_error error
    cdef slg_status status = SLG_OK
    cdef uint8_t[::1] into
    if not hasattr(column, "__arrow_c_array__"):
        raise TypeError(f"{type(column).__name__} has no __arrow_c_array__")
    owner = column.__arrow_c_array__()
    cdef ArrowSchema *schema = schema_of(owner[0])
    cdef ArrowArray *array = array_of(owner[1])
    memset(&rows, 0, sizeof(rows))
    rows.rows = array.length
    status = slg_input_arrow(&rows, SLG_INPUT_KEY, schema, array, 0, &error)
    if status != SLG_OK:
        format = schema.format.decode("utf-8", "replace")
        check(status, &error, f"{what} of Arrow type {format!r}")
    result = np.empty(rows.rows, dtype)
    if rows.rows > 0:
        into = result.view(np.uint8)
        with nogil:
            status = function(&rows, how, null, &into[0], &error)
        if status != SLG_OK:
            check(status, &error, f"{what} of an Arrow array")
    return result
