/*
 * Arrow-layout columns that a decoder fills, and the pool that recycles them.
 *
 * One thread fills a set of columns; then it is only read. A set is reference-counted: the
 * decoder's caller holds a reference, and so does every exported ArrowArray. Any thread may drop
 * the last one, which returns the set to its pool (or frees it). A pool outlives its owner while
 * sets are in use.
 */
#ifndef SEGLOG_COLUMNS_H
#define SEGLOG_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum slg_column {
    SLG_COLUMN_OFFSET = 0,             /* int64 */
    SLG_COLUMN_TIMESTAMP = 1,          /* int64, ms since 1970 UTC, -1 if none */
    SLG_COLUMN_TIMESTAMP_TYPE = 2,     /* int8: -1 none, 0 create time, 1 log append time */
    SLG_COLUMN_KEY = 3,                /* binary */
    SLG_COLUMN_VALUE = 4,              /* binary */
    SLG_COLUMN_HEADERS = 5,            /* list of (key utf8, value binary) */
    SLG_COLUMN_PRODUCER_ID = 6,        /* int64 */
    SLG_COLUMN_PRODUCER_EPOCH = 7,     /* int16 */
    SLG_COLUMN_SEQUENCE = 8,           /* int32 */
    SLG_COLUMN_LEADER_EPOCH = 9,       /* int32 */
    SLG_COLUMN_IS_TRANSACTIONAL = 10,  /* bool */
    SLG_COLUMN_IS_CONTROL = 11,        /* bool */
    SLG_COLUMN_POSITION = 12,          /* int64, of the batch in the file */
    SLG_COLUMNS = 13,                  /* decoded; slg_columns_mark fills the others */
    SLG_COLUMN_TOPIC = 13,             /* utf8 */
    SLG_COLUMN_PARTITION = 14,         /* int32 */
    SLG_COLUMNS_ALL = 15
} slg_column;

/*
 * The names and types of columns: the only definition, for decoders and exports.
 */
typedef enum slg_layout {
    SLG_LAYOUT_KAFKA = 0, /* the types above, names in Python's spelling ("timestamp_type") */
    /*
     * The schema of Spark's Kafka source: timestamps in microseconds, the timestamp type an int32
     * ("timestampType"), no headers a null.
     */
    SLG_LAYOUT_SPARK = 1,
    SLG_LAYOUTS = 2
} slg_layout;

const char *slg_column_name(slg_layout layout, slg_column column);

/* The type as a format string of the Arrow C data interface. */
const char *slg_column_format(slg_layout layout, slg_column column);

/* Bytes per value of a decoded column; 0 for bools, which are bits, and for binaries. */
size_t slg_column_width(slg_layout layout, slg_column column);

/* The columns of a set and their layout. The topic is the caller's. */
typedef struct slg_shape {
    uint32_t wanted;     /* 1 << slg_column */
    slg_layout layout;
    int32_t partition;   /* of every row, like `topic`, if those columns are wanted */
    const char *topic;
    size_t topic_size;
} slg_shape;

/* Writable bytes after every buffer's capacity, so that copies move whole words. */
enum { SLG_COLUMNS_SLACK = 64 };

typedef struct slg_buffer {
    uint8_t *data; /* 64 byte aligned, capacity + SLG_COLUMNS_SLACK bytes */
    size_t capacity;
} slg_buffer;

/* Variable-length values: Arrow offsets (rows + 1), bytes, and a bitmap from the first null on. */
typedef struct slg_binary {
    slg_buffer offsets;
    slg_buffer bytes;
    slg_buffer validity;
    int64_t used;       /* bytes */
    int64_t null_count; /* the bitmap is valid if this is above 0 */
} slg_binary;

typedef struct slg_pool slg_pool;

typedef struct slg_columns {
    uint32_t wanted;            /* 1 << slg_column */
    slg_layout layout;
    int64_t rows;
    int64_t first_offset;       /* of the first and last row; undefined if there are no rows */
    int64_t last_offset;
    slg_buffer fixed[SLG_COLUMNS]; /* values of the fixed-width columns; bools as bitmaps */
    slg_binary key;
    slg_binary value;
    slg_buffer header_lists;    /* Arrow offsets of the lists, rows + 1 */
    slg_buffer header_validity; /* one bit per list, valid if header_nulls is above 0 */
    int64_t header_nulls;
    slg_binary header_key;
    slg_binary header_value;
    int64_t headers;            /* over all rows */
    slg_binary topic;           /* the same value in every row, as in `partition` */
    slg_buffer partition;
    int64_t topic_rows;         /* rows in the buffer, from this use or an earlier one */
    int64_t partition_rows;

    slg_pool *pool;
    struct slg_columns *next;   /* in the pool's free list */
    int64_t references;         /* atomic */
} slg_columns;

static inline bool slg_columns_want(const slg_columns *columns, slg_column column) {
    return (columns->wanted >> column & 1U) != 0;
}

/*
 * A pool keeps up to `keep` sets for reuse: new memory costs a page fault per 4 KiB, more than
 * decoding into it. `live` (may be NULL) is an atomic count of the sets in use; the caller keeps it
 * valid while any set or the pool exists.
 */
slg_pool *slg_pool_new(size_t keep, int64_t *live);

/* Frees the kept sets, at the latest with the last set in use, which its last reference frees. */
void slg_pool_close(slg_pool *pool);

/* An empty set with one reference, or NULL if out of memory. Any thread. */
slg_columns *slg_pool_take(slg_pool *pool, uint32_t wanted, slg_layout layout);

void slg_columns_retain(slg_columns *columns);
void slg_columns_release(slg_columns *columns);

/* Room for `capacity` bytes, of which the first `used` are kept. False without memory. */
bool slg_buffer_reserve(slg_buffer *buffer, size_t used, size_t capacity);

/* Makes room for `rows` rows with up to `key` and `value` bytes. False if out of memory. */
bool slg_columns_reserve(slg_columns *columns, int64_t rows, int64_t key, int64_t value);

/* Makes room for `count` headers with up to `key` and `value` bytes. */
bool slg_columns_reserve_headers(slg_columns *columns, int64_t count, int64_t key, int64_t value);

/*
 * Sets the validity of rows [from, from + count) of a binary: valid[i] is 0 for a null, else 1. The
 * first null creates the bitmap. False if out of memory.
 */
bool slg_binary_validate(slg_binary *binary, int64_t from, int64_t count, const uint8_t *valid);

/*
 * For callers that find nulls one by one. The first call extends the bitmap with valid rows [from,
 * from + count); make it only if there is a null before or in these rows. The second marks a row
 * null. False if out of memory.
 */
bool slg_binary_cover(slg_binary *binary, int64_t from, int64_t count);
static inline void slg_binary_set_null(slg_binary *binary, int64_t row) {
    binary->validity.data[row >> 3] &= (uint8_t)~(1U << (row & 7));
    binary->null_count++;
}

/* Sets bits [from, from + count) of a bitmap to `bit`; its bytes must exist. */
void slg_bits_fill(uint8_t *bits, int64_t from, int64_t count, bool bit);

/*
 * Completes a set after its last row: fills the partition (SLG_COLUMN_TOPIC and
 * SLG_COLUMN_PARTITION, if the shape wants them) and, in Spark's layout, the nulls of empty
 * headers. The caller must be the only holder of the set. False if out of memory, or if the topic
 * names of all rows exceed INT32_MAX bytes.
 */
bool slg_columns_finish(slg_columns *columns, const slg_shape *shape);

/*
 * Keeps the rows with first <= timestamp <= last, in order, without allocating. The set has OFFSET
 * and TIMESTAMP, is not completed yet, and has no other holder.
 */
void slg_columns_keep_times(slg_columns *columns, int64_t first, int64_t last);

static inline void slg_bits_set(uint8_t *bits, int64_t at, bool bit) {
    const uint8_t mask = (uint8_t)(1U << (at & 7));
    bits[at >> 3] = (uint8_t)(bit ? bits[at >> 3] | mask : bits[at >> 3] & ~mask);
}

/* Bytes in use by the columns' values, offsets and bitmaps. */
int64_t slg_columns_nbytes(const slg_columns *columns);

#ifdef __cplusplus
}
#endif
#endif
