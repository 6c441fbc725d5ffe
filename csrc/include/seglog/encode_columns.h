/*
 * Encodes batches from columns: key, value, timestamp and headers of many records at once, in Arrow
 * layouts (the C data interface of arrow.h).
 *
 * An input borrows the memory that it describes. Addresses are trusted, because the C data
 * interface has no sizes; offsets, lengths and indexes are checked against each other before a byte
 * is read through them.
 */
#ifndef SEGLOG_ENCODE_COLUMNS_H
#define SEGLOG_ENCODE_COLUMNS_H

#include "seglog/arrow.h"
#include "seglog/encode.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum slg_input_kind {
    SLG_INPUT_NULLS = 0,  /* every value is null; no memory is read */
    SLG_INPUT_BINARY = 1, /* Arrow's binary and utf8: 32-bit offsets */
    SLG_INPUT_LARGE = 2,  /* large_binary and large_utf8: 64-bit offsets */
    SLG_INPUT_VIEW = 3,   /* binary_view and utf8_view */
    SLG_INPUT_FIXED = 4   /* fixed-size binary, and numpy rows */
} slg_input_kind;

/* A column of byte strings. Row `i` of the input is value `first + i`, bit `first + i`. */
typedef struct slg_input_binary {
    slg_input_kind kind;
    const uint8_t *validity; /* NULL: nothing is null */
    const void *offsets;     /* BINARY: int32, LARGE: int64, VIEW: views of 16 bytes */
    const uint8_t *data;
    int64_t first;
    int64_t end;             /* BINARY and LARGE: the last and largest offset */
    int64_t width;           /* FIXED: bytes of a value */
    const void *const *blocks; /* VIEW */
    const int64_t *block_sizes;
    int64_t block_count;
} slg_input_binary;

/* Milliseconds since 1970, from 64-bit integers in any unit. */
typedef struct slg_input_times {
    const int64_t *data; /* NULL: every row has the default */
    const uint8_t *validity;
    int64_t first;
    int64_t multiply; /* seconds: 1000, else 1 */
    int64_t divide;   /* microseconds 1000, nanoseconds 1000000, else 1; rounds down */
} slg_input_times;

/* Lists of (key, value). */
typedef struct slg_input_headers {
    const void *offsets; /* NULL: no row has headers */
    const uint8_t *validity;
    int64_t first;
    int64_t end;
    bool is_large;
    const uint8_t *item_validity; /* of the pairs, at `item_first` + n */
    int64_t item_first;
    slg_input_binary key;
    slg_input_binary value;
} slg_input_headers;

typedef struct slg_input {
    int64_t rows;
    int64_t row; /* the next to encode */
    slg_input_binary key;
    slg_input_binary value;
    slg_input_times timestamp;
    slg_input_headers headers;
} slg_input;

typedef enum slg_input_column {
    SLG_INPUT_KEY,
    SLG_INPUT_VALUE,
    SLG_INPUT_TIMESTAMP,
    SLG_INPUT_HEADERS,
    SLG_INPUT_OTHER
} slg_input_column;

/* The column with a name: "key", "value", "timestamp" or "headers". */
slg_input_column slg_input_named(const char *name);

/*
 * Sets a column of the input to rows [first, first + input->rows) of an Arrow array, which the
 * input borrows. SLG_OK, SLG_ARROW_TYPE (a type that the column does not accept) or
 * SLG_ARROW_LAYOUT (the array is shorter than declared, or offsets are out of order: expected,
 * found).
 */
slg_status slg_input_arrow(slg_input *input, slg_input_column column,
                           const struct ArrowSchema *schema, const struct ArrowArray *array,
                           int64_t first, slg_error *error);

/* ---- batches ------------------------------------------------------------------------------- */

/*
 * Writes a stream of batches. Offset and sequence continue from batch to batch; `fields` has those
 * of the open batch.
 */
typedef struct slg_encoder {
    slg_encode_batch
        batch; /* the open one, after `used` in the output; its limits are those of all */
    slg_encode_fields fields; /* max_timestamp: the append time with LOG_APPEND_TIME */
    int64_t default_timestamp;
    bool is_sent; /* every batch begins at offset 0, as producers send them */
    slg_crc32c_kernel kernel;
    uint8_t *out;
    size_t capacity;
    size_t limit; /* the end of whole batches; only a single first batch may exceed it */
    size_t used; /* bytes of whole batches at the start of the output */
    int64_t batches; /* since the beginning */
    int64_t records; /* in whole batches, since the beginning */
} slg_encoder;

void slg_encoder_init(slg_encoder *encoder, const slg_encode_fields *fields, int64_t base_offset,
                      slg_crc32c_kernel kernel);

/*
 * Gives the encoder new memory and moves the open batch there. `capacity` is at least the size of
 * that batch. The caller gets the old memory back, with `used` bytes of whole batches.
 */
void slg_encoder_move(slg_encoder *encoder, uint8_t *out, size_t capacity);

/* The caller has moved or enlarged the output, including whole batches. */
void slg_encoder_grow(slg_encoder *encoder, uint8_t *out, size_t capacity);

/*
 * Encodes rows from input->row on. SLG_OK: all rows are encoded; the last batch stays open.
 * SLG_MORE: the output is too small; error->expected is the capacity that the open batch and its
 * next record need in new memory. SLG_CODEC (only with a codec in fields.attributes): the open
 * batch is full; the caller compresses its records and calls slg_encoder_close. SLG_ENCODE_* and
 * SLG_ARROW_LAYOUT: row error->position is invalid; all rows before it are encoded.
 */
slg_status slg_encoder_feed(slg_encoder *encoder, slg_input *input, slg_error *error);

/*
 * Ends the open batch. Without a codec, fills its header and adds it to the whole batches. With a
 * codec, writes SLG_BATCH_HEADER_SIZE bytes to `header` for the payload, which the caller keeps;
 * the next batch begins where this one did. False, with no effect, if the batch has no record.
 */
bool slg_encoder_close(slg_encoder *encoder, uint8_t *header, const uint8_t *payload,
                       size_t payload_size);

#ifdef __cplusplus
}
#endif
#endif
