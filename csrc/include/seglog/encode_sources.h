/*
 * The columns of records that are to be encoded: key, value, timestamp and headers, in the layouts
 * of Arrow (the C data interface of arrow.h).
 *
 * An input borrows the memory that it describes. Its producer is trusted about addresses, as the C
 * data interface knows no sizes; offsets, lengths and indexes are checked against each other before
 * a byte is read through them.
 */
#ifndef SEGLOG_ENCODE_SOURCES_H
#define SEGLOG_ENCODE_SOURCES_H

#include "seglog/arrow.h"
#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum slg_input_kind {
    SLG_INPUT_NULLS = 0,  /* every value is null; no memory is read */
    SLG_INPUT_BINARY = 1, /* Arrow's binary and utf8: 32-bit offsets */
    SLG_INPUT_LARGE = 2,  /* large_binary and large_utf8: 64-bit offsets */
    SLG_INPUT_VIEW = 3,   /* binary_view and utf8_view */
    SLG_INPUT_FIXED = 4   /* fixed-size binary, and rows of numpy */
} slg_input_kind;

/* A column of byte strings. Row `i` of the input is value `first + i`, bit `first + i`. */
typedef struct slg_input_binary {
    slg_input_kind kind;
    const uint8_t *validity; /* NULL: no value is null */
    const void *offsets;     /* BINARY: int32, LARGE: int64, VIEW: views of 16 bytes */
    const uint8_t *data;
    int64_t first;
    int64_t end;             /* BINARY and LARGE: the last offset, which none exceeds */
    int64_t width;           /* FIXED: bytes of a value */
    const void *const *blocks; /* VIEW */
    const int64_t *block_sizes;
    int64_t block_count;
} slg_input_binary;

/* Timestamps: 64-bit integers, which are converted to milliseconds since 1970. */
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
    /* NULL: row n of the input is row n of the columns, else their row selection[n]. */
    const int32_t *selection;
    int64_t selectable; /* rows of the columns of a selection */
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

/* The column of a name: "key", "value", "timestamp", "headers". */
slg_input_column slg_input_named(const char *name);

/*
 * Puts rows [first, first + n) of an Arrow array into a column of the input, which borrows the
 * array. n is input->rows, or input->selectable of a selection. SLG_OK, SLG_ARROW_TYPE (a type
 * that the column does not take) or SLG_ARROW_LAYOUT (an array shorter than it says, or offsets out
 * of order: expected, found).
 */
slg_status slg_input_arrow(slg_input *input, slg_input_column column,
                           const struct ArrowSchema *schema, const struct ArrowArray *array,
                           int64_t first, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
