/*
 * Arrow-layout columns that a decoder fills, and the pool that they come from and go back to.
 *
 * A set of columns is filled by one thread, then only read. It is counted by references: the
 * decoder's caller holds one, every exported ArrowArray another, and any thread may drop the last,
 * whereupon the set returns to its pool (or is freed). Pools outlive their owner while sets are
 * out.
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
    SLG_COLUMN_TIMESTAMP = 1,          /* int64, ms since 1970 UTC, -1 without one */
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
    SLG_COLUMNS = 13,                  /* decoded; the others come by slg_columns_mark */
    SLG_COLUMN_TOPIC = 13,             /* utf8 */
    SLG_COLUMN_PARTITION = 14,         /* int32 */
    SLG_COLUMNS_ALL = 15
} slg_column;

/*
 * How columns are named and what their values are: the one definition of it, which decoders write
 * by and exports declare.
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

/* The type in the words of the Arrow C data interface. */
const char *slg_column_format(slg_layout layout, slg_column column);

/* Bytes of a value of a decoded column; 0 for bools, which are bits, and for the binary ones. */
size_t slg_column_width(slg_layout layout, slg_column column);

/* What a set of columns is to hold, and how. The topic is the caller's. */
typedef struct slg_shape {
    uint32_t wanted;     /* 1 << slg_column */
    slg_layout layout;
    int32_t partition;   /* of every row, as `topic`, where those columns are wanted */
    const char *topic;
    size_t topic_size;
} slg_shape;

/* Bytes that may be written behind every buffer's capacity, so that copies move whole words. */
enum { SLG_COLUMNS_SLACK = 64 };

typedef struct slg_buffer {
    uint8_t *data; /* 64 byte aligned, capacity + SLG_COLUMNS_SLACK bytes */
    size_t capacity;
} slg_buffer;

/* Variable-length values: Arrow offsets (rows + 1), bytes, and a bitmap once a null has come. */
typedef struct slg_binary {
    slg_buffer offsets;
    slg_buffer bytes;
    slg_buffer validity;
    int64_t used;       /* bytes */
    int64_t null_count; /* the bitmap is meaningful when above 0 */
} slg_binary;

typedef struct slg_pool slg_pool;

typedef struct slg_columns {
    uint32_t wanted;            /* 1 << slg_column */
    slg_layout layout;
    int64_t rows;
    int64_t first_offset;       /* of the first and last row; meaningless without rows */
    int64_t last_offset;
    slg_buffer fixed[SLG_COLUMNS]; /* values of the fixed-width columns; bools as bitmaps */
    slg_binary key;
    slg_binary value;
    slg_buffer header_lists;    /* Arrow offsets of the lists, rows + 1 */
    slg_buffer header_validity; /* a bit a list, meaningful when header_nulls is above 0 */
    int64_t header_nulls;
    slg_binary header_key;
    slg_binary header_value;
    int64_t headers;            /* over all rows */
    slg_binary topic;           /* the same value in every row, as in `partition` */
    slg_buffer partition;
    int64_t topic_rows;         /* rows that the buffer holds, from this use or one before */
    int64_t partition_rows;

    slg_pool *pool;
    struct slg_columns *next;   /* in the pool's free list */
    int64_t references;         /* atomic */
} slg_columns;

static inline bool slg_columns_want(const slg_columns *columns, slg_column column) {
    return (columns->wanted >> column & 1U) != 0;
}

/*
 * A pool keeps up to `keep` sets for reuse: fresh memory costs a page fault per 4 KiB, which is
 * more than decoding into it does. `live` (may be NULL) is counted up and down atomically with each
 * set that is out; the caller keeps it valid for as long as any set or pool lives.
 */
slg_pool *slg_pool_new(size_t keep, int64_t *live);

/* Frees the kept sets; those that are out free themselves when they come back. */
void slg_pool_close(slg_pool *pool);

/* An empty set with one reference, or NULL without memory. Any thread. */
slg_columns *slg_pool_take(slg_pool *pool, uint32_t wanted, slg_layout layout);

void slg_columns_retain(slg_columns *columns);
void slg_columns_release(slg_columns *columns);

/* Room for `capacity` bytes, of which the first `used` are kept. False without memory. */
bool slg_buffer_reserve(slg_buffer *buffer, size_t used, size_t capacity);

/* Room for `rows` more rows with up to `key` and `value` more bytes. False without memory. */
bool slg_columns_reserve(slg_columns *columns, int64_t rows, int64_t key, int64_t value);

/* Room for `count` more headers with up to `key` and `value` more bytes. */
bool slg_columns_reserve_headers(slg_columns *columns, int64_t count, int64_t key, int64_t value);

/*
 * Declares validity of rows [from, from + count) of a binary: valid[i] is 0 for null, 1 for not.
 * The bitmap comes to life with the first null. False without memory.
 */
bool slg_binary_validate(slg_binary *binary, int64_t from, int64_t count, const uint8_t *valid);

/*
 * For callers that meet nulls one by one: makes the bitmap cover rows [from, from + count), valid,
 * then marks a row null. Call the first only when a null follows or one has been. False without
 * memory.
 */
bool slg_binary_cover(slg_binary *binary, int64_t from, int64_t count);
static inline void slg_binary_set_null(slg_binary *binary, int64_t row) {
    binary->validity.data[row >> 3] &= (uint8_t)~(1U << (row & 7));
    binary->null_count++;
}

/* Sets bits [from, from + count) of a bitmap to `bit`; the bytes exist. */
void slg_bits_fill(uint8_t *bits, int64_t from, int64_t count, bool bit);

/*
 * Completes a set whose rows are all there: the partition that they come from (SLG_COLUMN_TOPIC and
 * SLG_COLUMN_PARTITION, as far as the shape wants them) and, in Spark's layout, the nulls of empty
 * headers. The caller is the only holder of the set, and adds no rows after it. False without
 * memory, or when the names of all rows pass INT32_MAX bytes.
 */
bool slg_columns_finish(slg_columns *columns, const slg_shape *shape);

/*
 * Keeps the rows with first <= timestamp <= last, in their order, and needs no memory for it. The
 * set holds OFFSET and TIMESTAMP, is not finished yet, and has no other holder.
 */
void slg_columns_keep_times(slg_columns *columns, int64_t first, int64_t last);

static inline void slg_bits_set(uint8_t *bits, int64_t at, bool bit) {
    const uint8_t mask = (uint8_t)(1U << (at & 7));
    bits[at >> 3] = (uint8_t)(bit ? bits[at >> 3] | mask : bits[at >> 3] & ~mask);
}

/* Bytes in use: what the columns' values take, offsets and bitmaps included. */
int64_t slg_columns_nbytes(const slg_columns *columns);

#ifdef __cplusplus
}
#endif
#endif
