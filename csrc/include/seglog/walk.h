/*
 * A log file entry by entry and record by record, as Kafka's file iteration reads it: nothing is
 * judged that Kafka does not judge. A wrong CRC, a magic above 2, offsets that jump and counts
 * that disagree pass; only what Kafka throws at ends the walk. (Readers use batch.h and records.h,
 * which are stricter.)
 *
 * One thread per walk. Spans that it hands out point into the window or into the payload that the
 * caller gave, and are good until the next slg_walk_next.
 */
#ifndef SEGLOG_WALK_H
#define SEGLOG_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/crc32c.h"
#include "seglog/status.h"
#include "seglog/window.h"
#include "seglog/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which codec bits make a compressed payload is decided by slg_walk_enter. */
typedef struct slg_walk {
    slg_window *window;
    int64_t position;         /* of the next entry */
    int64_t end;              /* the walk stops here, at most window->end */
    slg_crc32c_kernel kernel;

    slg_batch batch; /* the last entry; of a negative magic only offset, size, position */
    bool valid; /* its size and CRC, after slg_walk_load */
    const uint8_t *payload; /* compressed bytes, after SLG_CODEC */
    size_t payload_size;

    slg_cursor records; /* what is not read yet of the entry's records */
    int64_t records_left;
    int64_t inner_base; /* what to add to the offsets of a wrapper's messages */
    bool single; /* the entry is itself the one record */
} slg_walk;

/*
 * Sizes are as stored: -1 for null, and any other negative number of a message of magic 0 or 1. A
 * value of such a message that its bytes do not hold is NULL with a size of 0 or more.
 */
typedef struct slg_walk_record {
    int64_t offset;
    int64_t timestamp; /* ms */
    const uint8_t *key; /* NULL without one */
    const uint8_t *value;
    slg_cursor headers; /* keys and values of all headers, checked */
    int32_t key_size;
    int32_t value_size;
    int32_t sequence;
    int32_t header_count;
    uint32_t crc; /* messages of magic 0 and 1: stored, and whether it is right */
    bool valid;
} slg_walk_record;

void slg_walk_init(slg_walk *walk, slg_window *window, int64_t position, int64_t end);

/*
 * The header of the next entry into walk->batch. SLG_OK; SLG_END at the end, which a torn tail is
 * too; SLG_BATCH_LENGTH; SLG_BATCH_SIZE for an entry below 61 bytes whose header would reach past
 * the file (the walk can go on behind it); SLG_IO and the other results of slg_window_need.
 */
slg_status slg_walk_next(slg_walk *walk, slg_error *error);

/* Reads the entry whole and sets walk->valid. */
slg_status slg_walk_load(slg_walk *walk, slg_error *error);

/*
 * Begins with the records of a loaded entry. SLG_OK; SLG_CODEC: walk->payload is compressed, and
 * slg_walk_payload comes next; or what is wrong with the entry.
 */
slg_status slg_walk_enter(slg_walk *walk, slg_error *error);

/*
 * The decompressed payload, the caller's until the next slg_walk_next. Everything in it is checked
 * here, because Kafka reads a compressed batch to its end before it hands out the first record.
 */
slg_status slg_walk_payload(slg_walk *walk, const uint8_t *data, size_t size, slg_error *error);

/* SLG_OK and a record, SLG_END behind the last, or what is wrong with the next one. */
slg_status slg_walk_record_next(slg_walk *walk, slg_walk_record *record, slg_error *error);

/* One header of a record, from a cursor over its headers. A negative size is null. */
typedef struct slg_header {
    const uint8_t *key, *value;
    int32_t key_size, value_size;
} slg_header;

/* False behind the last one. */
bool slg_header_next(slg_cursor *headers, slg_header *header);

#ifdef __cplusplus
}
#endif
#endif
