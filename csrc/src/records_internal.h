/* Shared by the sources of the records stem: the driver, v2 batches, old messages. */
#ifndef SEGLOG_RECORDS_INTERNAL_H
#define SEGLOG_RECORDS_INTERNAL_H

#include <stdbool.h>

#include "seglog/records.h"

enum { SPAN_ROWS = 1024, SPAN_BYTES = 64 << 10 };

/*
 * Spark's timestamps are int64 microseconds. Its Kafka source fails a query at a larger one
 * (DateTimeUtils.fromJavaTimestamp: Math.multiplyExact), and so does SLG_LAYOUT_SPARK.
 */
#define SLG_RECORDS_MICROS_MS_MAX (INT64_MAX / 1000)

/* The state of the current entry. */
typedef enum records_state {
    BETWEEN_ENTRIES,
    NEEDS_PAYLOAD, /* compressed */
    IN_BATCH,      /* v2 */
    OPENS_WRAPPER, /* magic 0 or 1: the payload is available, its messages are not yet counted */
    IN_WRAPPER,    /* inner messages, or the one uncompressed message */
} records_state;

struct slg_records {
    slg_window window;
    slg_records_options options;
    records_state state;
    bool done;          /* end_offset is reached */
    bool passed;        /* the previous entry was skipped by its header */
    int64_t position;   /* of the current entry */
    slg_batch batch;    /* the current entry */
    int64_t next_offset; /* no entry from here on may begin below */
    slg_payload payload;
    uint8_t *room; /* the caller's, for decompressed payloads */
    size_t room_size;
    const uint8_t *at;  /* next record or message, in the window or in the caller's bytes */
    const uint8_t *end; /* of the payload */
    int32_t left;       /* remaining records of the batch */
    int64_t base;       /* the base of the relative offsets of inner messages */

    /*
     * The hot loop's output for one span, besides the columns that it writes itself (bytes and ends
     * of keys and values): numbers as stored (zig-zag), behind one base register. Loops without
     * branches then turn them into columns.
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

/* Whether the filter accepts a record, if there is a filter; a key of size -1 is null. */
bool slg_records_is_kept(const slg_row_filter *filter, int64_t timestamp, const uint8_t *key,
                         int64_t key_size);

/*
 * Fills the columns that the batch alone determines for rows [row, row + count), and adds the rows.
 */
void slg_records_add_rows(slg_columns *columns, const slg_batch *batch, int64_t row, int64_t count,
                          int8_t timestamp_type, const int64_t *offsets);

/* The error of the current v2 record: the cause that Kafka's consumer would find first. */
slg_status slg_records_explain(const slg_records *records, slg_error *error);

/* Decodes records of the current v2 batch. SLG_OK: all done; SLG_FULL; an error. */
slg_status slg_records_decode_batch(slg_records *records, slg_columns *columns, slg_error *error);

/* Makes a row of an uncompressed message; finds the compressed value of a wrapper. */
slg_status slg_records_begin_message(slg_records *records, const uint8_t *entry, slg_error *error);

/* Finds the base of relative offsets, once the wrapper's value is decompressed. */
slg_status slg_records_open_wrapper(slg_records *records, slg_error *error);

/* Decodes the current messages. SLG_OK: all done; SLG_FULL; an error. */
slg_status slg_records_decode_messages(slg_records *records, slg_columns *columns,
                                       slg_error *error);

#endif
