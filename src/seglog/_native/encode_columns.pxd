"""C of columns that are encoded; `murmur2` reads them too. Arrow's structs are declared whole."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from seglog._native.capi cimport slg_crc32c_kernel, slg_error, slg_status
from seglog._native.encode cimport slg_encode_batch, slg_encode_fields

cdef extern from "seglog/arrow.h" nogil:
    struct ArrowSchema:
        const char *format
        const char *name
        int64_t n_children
        ArrowSchema **children
        ArrowSchema *dictionary
        void (*release)(ArrowSchema *) noexcept nogil

    struct ArrowArray:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        ArrowArray **children
        void (*release)(ArrowArray *) noexcept nogil

    struct ArrowArrayStream:
        int (*get_schema)(ArrowArrayStream *, ArrowSchema *out) noexcept nogil
        int (*get_next)(ArrowArrayStream *, ArrowArray *out) noexcept nogil
        const char *(*get_last_error)(ArrowArrayStream *) noexcept nogil
        void (*release)(ArrowArrayStream *) noexcept nogil

cdef extern from "seglog/encode_columns.h" nogil:
    ctypedef enum slg_input_column:
        SLG_INPUT_KEY
        SLG_INPUT_OTHER

    ctypedef struct slg_input_binary:
        pass

    ctypedef struct slg_input:
        int64_t rows
        int64_t row
        slg_input_binary key

    slg_input_column slg_input_named(const char *name) noexcept
    slg_status slg_input_arrow(slg_input *input, slg_input_column column,
                               const ArrowSchema *schema, const ArrowArray *array, int64_t first,
                               slg_error *error) noexcept

    ctypedef struct slg_encoder:
        slg_encode_batch batch
        slg_encode_fields fields
        int64_t default_timestamp
        bint is_sent
        size_t capacity
        size_t limit
        size_t used
        int64_t batches
        int64_t records

    void slg_encoder_init(slg_encoder *encoder, const slg_encode_fields *fields,
                          int64_t base_offset, slg_crc32c_kernel kernel) noexcept
    void slg_encoder_move(slg_encoder *encoder, uint8_t *out, size_t capacity) noexcept
    void slg_encoder_grow(slg_encoder *encoder, uint8_t *out, size_t capacity) noexcept
    slg_status slg_encoder_feed(slg_encoder *encoder, slg_input *input, slg_error *error) noexcept
    bint slg_encoder_close(slg_encoder *encoder, uint8_t *header, const uint8_t *payload,
                           size_t payload_size) noexcept
