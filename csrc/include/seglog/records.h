/*
 * Decodes the records of a span of a log file into columns, in order, as Kafka's consumer sees
 * them.
 *
 * A decoder reads through its own window (window.h), checks each entry as Kafka's consumer does
 * (but not the CRCs of messages inside of a wrapper, whose own CRC covers them), and decodes v2
 * batches and messages of magic 0 and 1. Given a room it decompresses lz4 and snappy
 * in the usual framing (framing.h). It returns any other compressed payload with SLG_CODEC, and the
 * caller decompresses it. One thread per decoder.
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
 * Bytes that must be readable after a payload from the caller; their content is ignored.
 */
enum { SLG_RECORDS_SLACK = 64 };

/* Records of (producer_id, [first_offset, last_offset]) were aborted. */
typedef struct slg_aborted {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the marker */
} slg_aborted;

/*
 * Conditions on rows besides their offsets; all must hold. A filter skips rows, and with
 * SLG_RECORDS_HEADERS whole batches by their headers, without checking their CRC.
 */
typedef struct slg_row_filter {
    int64_t first_timestamp; /* ms, inclusive */
    int64_t last_timestamp;
    unsigned timestamp_types; /* 1 << (type + 1) for each accepted type of -1, 0, 1 */
    bool by_key;              /* the key is one of `keys`, or null if null_key is set */
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
    SLG_RECORDS_HEADERS = 4, /* trusts the header of a batch that the filter skips */
};

typedef struct slg_records_options {
    unsigned flags;          /* SLG_RECORDS_* */
    slg_crc32c_kernel kernel;
    int64_t start_offset;    /* records below it are skipped */
    int64_t end_offset;      /* exclusive */
    int64_t base_offset;     /* of the segment: no entry may lie below; INT64_MIN if unknown */
    int64_t max_rows;        /* of one set of columns, 1 .. 2^30 */
    int64_t max_bytes; /* of its keys, values, headers, 1 .. 2^30; one record may exceed it */
    const slg_aborted *aborted; /* the caller's, sorted by producer id, then first offset */
    size_t aborted_count;
    const slg_row_filter *filter; /* the caller's, NULL for none */
} slg_records_options;

/* The payload of an SLG_CODEC: inside the decoder's window, valid until its next call. */
typedef struct slg_payload {
    const uint8_t *data;
    size_t size;
    int codec; /* 1..4, SLG_CODEC_* of format.h */
    int magic;
} slg_payload;

typedef struct slg_records slg_records;

/*
 * A decoder of [start, end) of `source`; an entry begins at `start`. The caller owns the source and
 * the aborted list, which must outlive it. NULL if out of memory.
 */
slg_records *slg_records_new(slg_source source, int64_t start, int64_t end,
                             const slg_records_options *options);
void slg_records_free(slg_records *records);

/* Reuses the decoder, with its memory, for other bytes of this or another file. */
void slg_records_restart(slg_records *records, slg_source source, int64_t start, int64_t end,
                         const slg_records_options *options);

/*
 * Memory of the caller for decompressed payloads of `size` bytes, with SLG_RECORDS_SLACK readable
 * bytes after them; NULL and 0 for none, as at first.
 */
void slg_records_set_room(slg_records *records, uint8_t *room, size_t size);

/* The position of the first entry that is not fully decoded. */
int64_t slg_records_position(const slg_records *records);

/*
 * Appends rows to `columns`.
 *   SLG_FULL      max_rows or max_bytes is reached: pass empty columns next time
 *   SLG_CODEC     decompress slg_records_payload, pass it to slg_records_resume, call again
 *   SLG_END, SLG_TORN_TAIL, SLG_ZERO_TAIL  nothing follows
 *   anything else is an error at error->position; the rows before it are in `columns`
 */
slg_status slg_records_next(slg_records *records, slg_columns *columns, slg_error *error);

/*
 * A queue of column sets: the full ones, oldest first and linked by `next`, and the one being
 * filled (or NULL). The caller owns it, zero-initialised except for the shape.
 */
typedef struct slg_record_sets {
    slg_columns *first;
    slg_columns *last;
    slg_columns *filling;
    int64_t nbytes; /* slg_columns_nbytes of the full ones */
    slg_shape shape; /* of them all; the caller sets it */
} slg_record_sets;

/*
 * Calls slg_records_next with one set after the other from `pool`, until the full ones hold
 * `nbytes`. Statuses are those of slg_records_next; after any but SLG_CODEC all decoded rows are in
 * full sets.
 */
slg_status slg_records_fill(slg_records *records, slg_pool *pool, int64_t nbytes,
                            slg_record_sets *sets, slg_error *error);

/*
 * Ends the queue: the set being filled becomes full, if it has a row. SLG_NO_MEMORY if it cannot be
 * completed.
 */
slg_status slg_record_sets_end(slg_record_sets *sets, slg_error *error);

/* Removes the oldest full set and returns it with its reference, or NULL. */
slg_columns *slg_record_sets_pop(slg_record_sets *sets);

/* Releases all sets. */
void slg_record_sets_clear(slg_record_sets *sets);

slg_payload slg_records_payload(const slg_records *records);

/*
 * Passes the decompressed bytes of the payload, which the caller keeps until the next SLG_CODEC or
 * the end, with SLG_RECORDS_SLACK readable bytes after them.
 */
void slg_records_resume(slg_records *records, const uint8_t *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
