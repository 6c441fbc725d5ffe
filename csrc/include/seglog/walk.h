/*
 * Reads a log file entry by entry and record by record, with only the checks of Kafka's file
 * iteration. A wrong CRC, a magic above 2, offset gaps and wrong counts pass; only an exception in
 * Kafka ends the walk. (Readers use batch.h and records.h, which are stricter.)
 *
 * One thread per walk. Returned spans point into the window or the caller's payload, and are valid
 * until the next slg_walk_next.
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

/* slg_walk_enter decides which codec bits mean a compressed payload. */
typedef struct slg_walk {
    slg_window *window;
    int64_t position;         /* of the next entry */
    int64_t end;              /* the walk stops here, at most window->end */
    slg_crc32c_kernel kernel;

    slg_batch batch; /* the last entry; for a negative magic only offset, size, position */
    bool valid; /* its size and CRC, after slg_walk_load */
    const uint8_t *payload; /* compressed bytes, after SLG_CODEC */
    size_t payload_size;

    slg_cursor records; /* the entry's records that are not read yet */
    int64_t records_left;
    int64_t inner_base; /* added to the offsets of a wrapper's messages */
    bool single; /* the entry is itself a record */
} slg_walk;

/*
 * Sizes are as stored: -1 for null; in a message of magic 0 or 1 any negative number. A value that
 * exceeds the bytes of such a message is NULL with a size of 0 or more.
 */
typedef struct slg_walk_record {
    int64_t offset;
    int64_t timestamp; /* ms */
    const uint8_t *key; /* NULL if none */
    const uint8_t *value;
    slg_cursor headers; /* keys and values of all headers, checked */
    int32_t key_size;
    int32_t value_size;
    int32_t sequence;
    int32_t header_count;
    uint32_t crc; /* messages of magic 0 and 1: stored, and whether it is valid */
    bool valid;
} slg_walk_record;

void slg_walk_init(slg_walk *walk, slg_window *window, int64_t position, int64_t end);

/*
 * Reads the header of the next entry into walk->batch. SLG_OK; SLG_END at the end or at a torn
 * tail; SLG_BATCH_LENGTH; SLG_BATCH_SIZE for an entry below 61 bytes whose header would extend past
 * the file (the walk can continue after it); SLG_IO and the other results of slg_window_need.
 */
slg_status slg_walk_next(slg_walk *walk, slg_error *error);

/* Reads the whole entry and sets walk->valid. */
slg_status slg_walk_load(slg_walk *walk, slg_error *error);

/*
 * Begins the records of a loaded entry. SLG_OK; SLG_CODEC: walk->payload is compressed, call
 * slg_walk_payload next; or the error of the entry.
 */
slg_status slg_walk_enter(slg_walk *walk, slg_error *error);

/*
 * Passes the decompressed payload, which the caller keeps until the next slg_walk_next. Checks all
 * records at once, because Kafka reads a whole compressed batch before it returns a record.
 */
slg_status slg_walk_payload(slg_walk *walk, const uint8_t *data, size_t size, slg_error *error);

/* SLG_OK and a record, SLG_END after the last, or the error of the next one. */
slg_status slg_walk_record_next(slg_walk *walk, slg_walk_record *record, slg_error *error);

/* One header of a record, from a cursor over its headers. A negative size is null. */
typedef struct slg_header {
    const uint8_t *key, *value;
    int32_t key_size, value_size;
} slg_header;

/* False after the last one. */
bool slg_header_next(slg_cursor *headers, slg_header *header);

#ifdef __cplusplus
}
#endif
#endif
