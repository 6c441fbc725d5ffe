/*
 * Records of a span of a log file, in order, as columns: what Kafka's consumer would see.
 *
 * A decoder reads through its own window (csrc/window), checks each entry as Kafka's consumer does,
 * and decodes v2 batches and messages of magic 0 and 1 alike. It never calls a codec: a compressed
 * payload is handed out with SLG_CODEC and comes back decompressed. One thread per decoder.
 */
#ifndef SEGLOG_RECORDS_H
#define SEGLOG_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/columns.h"
#include "seglog/crc32c.h"
#include "seglog/status.h"
#include "seglog/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Bytes that must be readable behind a payload that the caller hands in; their content means
 * nothing.
 */
enum { SLG_RECORDS_SLACK = 64 };

/* Records of (producer_id, [first_offset, last_offset]) were aborted. */
typedef struct slg_aborted {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the marker */
} slg_aborted;

/*
 * What rows have to be beside inside of the offsets: every part at once. A filter leaves out rows,
 * and with SLG_RECORDS_HEADERS whole batches by their headers, whose CRC is not checked then.
 */
typedef struct slg_row_filter {
    int64_t first_timestamp; /* ms, inclusive */
    int64_t last_timestamp;
    unsigned timestamp_types; /* 1 << (type + 1) for each of -1, 0, 1 that counts */
    bool by_key;              /* the key is one of `keys`, or null where null_key says so */
    bool null_key;
    const struct slg_key *keys; /* the caller's */
    size_t key_count;
} slg_row_filter;

typedef struct slg_key {
    const uint8_t *data;
    size_t size;
} slg_key;

enum {
    SLG_RECORDS_CRC = 1,
    SLG_RECORDS_CONTROL = 2,
    SLG_RECORDS_HEADERS = 4, /* believes the header of a batch that the filter leaves out */
};

typedef struct slg_records_options {
    unsigned flags;          /* SLG_RECORDS_* */
    slg_crc32c_kernel kernel;
    int64_t start_offset;    /* records below are left out */
    int64_t end_offset;      /* exclusive */
    int64_t base_offset;     /* of the segment: no entry may lie below; INT64_MIN without one */
    int64_t max_rows;        /* of one set of columns, 1 .. 2^30 */
    int64_t max_bytes; /* of its keys, values, headers, 1 .. 2^30; one record may exceed it */
    const slg_aborted *aborted; /* the caller's, sorted by producer id, then first offset */
    size_t aborted_count;
    const slg_row_filter *filter; /* the caller's, NULL for none */
} slg_records_options;

/* The payload that SLG_CODEC hands out: inside the decoder's window, valid until its next call. */
typedef struct slg_payload {
    const uint8_t *data;
    size_t size;
    int codec; /* 1..4, SLG_CODEC_* of format.h */
    int magic;
} slg_payload;

typedef struct slg_records slg_records;

/*
 * A decoder of [start, end) of `source`; `start` is where an entry begins. The source and the
 * aborted list stay the caller's and must outlive it. NULL without memory.
 */
slg_records *slg_records_new(slg_source source, int64_t start, int64_t end,
                             const slg_records_options *options);
void slg_records_free(slg_records *records);

/* The same decoder for other bytes, of this file or another: what it has allocated stays. */
void slg_records_restart(slg_records *records, slg_source source, int64_t start, int64_t end,
                         const slg_records_options *options);

/* First byte of the first entry that is not wholly decoded. */
int64_t slg_records_position(const slg_records *records);

/*
 * Appends rows to `columns`.
 *   SLG_FULL      max_rows or max_bytes is reached: pass empty columns next time
 *   SLG_CODEC     decompress slg_records_payload, give it to slg_records_resume, call again
 *   SLG_END, SLG_TORN_TAIL, SLG_ZERO_TAIL  nothing follows
 *   anything else is an error at error->position; the rows before it are in `columns`
 */
slg_status slg_records_next(slg_records *records, slg_columns *columns, slg_error *error);

/*
 * Sets of columns on their way to a caller, who owns them: the full ones, oldest first and linked
 * by `next`, and the one that is being filled (or NULL). Zero-initialised but for the shape.
 */
typedef struct slg_record_sets {
    slg_columns *first;
    slg_columns *last;
    slg_columns *filling;
    int64_t nbytes; /* slg_columns_nbytes of the full ones */
    slg_shape shape; /* of them all; the caller sets it */
} slg_record_sets;

/*
 * slg_records_next into one set after the other, taken from `pool`, until the full ones hold
 * `nbytes`. Statuses are those of slg_records_next; at any but SLG_CODEC the rows that were decoded
 * are among the full sets.
 */
slg_status slg_records_fill(slg_records *records, slg_pool *pool, int64_t nbytes,
                            slg_record_sets *sets, slg_error *error);

/*
 * The set being filled counts as full, if it has a row: nothing more will come. SLG_NO_MEMORY when
 * it cannot be finished.
 */
slg_status slg_record_sets_end(slg_record_sets *sets, slg_error *error);

/* The oldest full set with its reference, or NULL. */
slg_columns *slg_record_sets_pop(slg_record_sets *sets);

/* Lets go of all. */
void slg_record_sets_clear(slg_record_sets *sets);

slg_payload slg_records_payload(const slg_records *records);

/*
 * The decompressed bytes of the payload: the caller's until the next SLG_CODEC or the end, with
 * SLG_RECORDS_SLACK readable bytes behind them.
 */
void slg_records_resume(slg_records *records, const uint8_t *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
