/* What the three sources of the records stem share: the driver, v2 batches, old messages. */
#ifndef SEGLOG_RECORDS_INTERNAL_H
#define SEGLOG_RECORDS_INTERNAL_H

#include <stdbool.h>

#include "seglog/records.h"

enum { SPAN_ROWS = 1024, SPAN_BYTES = 64 << 10 };

/*
 * Spark's timestamps are microseconds. Its Kafka source fails a query at what is no int64 of them
 * (DateTimeUtils.fromJavaTimestamp: Math.multiplyExact), and so does SLG_LAYOUT_SPARK.
 */
#define SLG_RECORDS_MICROS_MS_MAX (INT64_MAX / 1000)

/* How far the entry at hand has come. */
typedef enum records_state {
    BETWEEN_ENTRIES,
    NEEDS_PAYLOAD, /* SLG_CODEC was or will be returned */
    IN_BATCH,      /* v2 */
    OPENS_WRAPPER, /* magic 0 or 1: the payload is there, its messages are not yet counted */
    IN_WRAPPER,    /* inner messages, or the one uncompressed message */
} records_state;

struct slg_records {
    slg_window window;
    slg_records_options options;
    records_state state;
    bool done;          /* end_offset is reached */
    bool passed;        /* the entry before was left out by its header */
    int64_t position;   /* of the entry at hand */
    slg_batch batch;    /* the entry at hand */
    int64_t next_offset; /* no entry from here on may begin below */
    slg_payload payload;
    const uint8_t *at;  /* next record or message, in the window or in the caller's bytes */
    const uint8_t *end; /* of the payload */
    int32_t left;       /* records of the batch that are to come */
    int64_t base;       /* what relative offsets of inner messages count from */

    /*
     * One span as the hot loop leaves it, beside the columns that it writes itself (bytes and ends
     * of keys and values): numbers as they stood in the bytes (zig-zag and all), one base register
     * for all of it. Loops without a branch then make columns of them.
     */
    struct {
        uint64_t time_deltas[SPAN_ROWS];
        uint32_t offset_deltas[SPAN_ROWS];
        uint8_t key_nulls[SPAN_ROWS];
        uint8_t value_nulls[SPAN_ROWS];
        int32_t list_ends[SPAN_ROWS];
        int64_t offsets[SPAN_ROWS]; /* absolute, when the column is not wanted */
    } span;
};

/* Bytes that count against max_bytes. A header costs 8, so that empty ones are bounded too. */
static inline int64_t records_used(const slg_columns *columns) {
    return columns->key.used + columns->value.used + columns->header_key.used +
           columns->header_value.used + 8 * columns->headers;
}

/* What the filter says of a record, where there is a filter; a key of size -1 is null. */
bool slg_records_is_kept(const slg_row_filter *filter, int64_t timestamp, const uint8_t *key,
                         int64_t key_size);

/*
 * Fills the columns that the batch alone decides for rows [row, row + count), and counts them in.
 */
void slg_records_add_rows(slg_columns *columns, const slg_batch *batch, int64_t row, int64_t count,
                          int8_t timestamp_type, const int64_t *offsets);

/* The error of the v2 record at hand: the cause that Kafka's consumer would meet first. */
slg_status slg_records_explain(const slg_records *records, slg_error *error);

/* Decodes records of the v2 batch at hand. SLG_OK: all done; SLG_FULL; an error. */
slg_status slg_records_decode_batch(slg_records *records, slg_columns *columns, slg_error *error);

/* An uncompressed message becomes a row; of a wrapper, finds the compressed value. */
slg_status slg_records_begin_message(slg_records *records, const uint8_t *entry, slg_error *error);

/* After the wrapper's value is decompressed: finds what its relative offsets count from. */
slg_status slg_records_open_wrapper(slg_records *records, slg_error *error);

/* Decodes messages at hand. SLG_OK: all done; SLG_FULL; an error. */
slg_status slg_records_decode_messages(slg_records *records, slg_columns *columns,
                                       slg_error *error);

#endif
