/*
 * The lines that kafka-dump-log (DumpLogSegments of Kafka 4.3.1) prints for a log or a Raft
 * snapshot.
 *
 * Text goes to a buffer of the caller, who empties it and calls again; a line may be split between
 * two buffers. Only the walk's window allocates. One thread per dump.
 */
#ifndef SEGLOG_DUMP_H
#define SEGLOG_DUMP_H

#include <stddef.h>
#include <stdint.h>

#include "seglog/status.h"
#include "seglog/walk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What to print besides the line of each batch. */
enum {
    SLG_DUMP_RECORDS = 1,  /* iterate over the records (--deep-iteration) */
    SLG_DUMP_METADATA = 2, /* their offsets, sizes, headers, control records */
    SLG_DUMP_STRINGS = 4,  /* their keys and values as Java strings */
    SLG_DUMP_CALLER = 8 /* the caller prints their keys and values: see slg_dump_text */
};

/* A record with an unexpected offset (`previous` is -1 before the first record). */
typedef struct slg_dump_gap {
    int64_t previous;
    int64_t next;
} slg_dump_gap;

enum { SLG_DUMP_BUFFER_MIN = 1024 };

typedef struct slg_dump {
    slg_walk walk;
    unsigned what;
    slg_dump_gap *gaps; /* the caller's, with room for gap_room >= 1 */
    size_t gap_room;
    size_t gap_count; /* the caller reads them and sets 0 */
    size_t wanted; /* after SLG_FULL: the smallest buffer with which the dump can continue */

    slg_walk_record record; /* the one being printed */
    int32_t control; /* its control type, -1 for data and unknown types */
    int64_t last_offset;
    int phase;
    size_t text_done;
} slg_dump;

/* The caller sets up the walk (slg_walk_init). */
void slg_dump_init(slg_dump *dump, unsigned what, slg_dump_gap *gaps, size_t gap_room);

/*
 * Appends text to `out`, which has room for `capacity` >= SLG_DUMP_BUFFER_MIN bytes, and adds its
 * size to *used.
 *
 * SLG_END    all is printed; dump->walk.position is the end of the last whole batch
 * SLG_FULL   the buffer or the gaps are full: empty both, then call again
 * SLG_CODEC  pass the decompressed dump->walk.payload to slg_walk_payload, then call again
 * SLG_OK     dump->record is a KRaft control record (of type dump->control), or data that the
 *            caller prints: append its text and the line end, then call again
 *
 * Anything else ends the dump: print the text, then the error.
 */
slg_status slg_dump_text(slg_dump *dump, uint8_t *out, size_t capacity, size_t *used,
                         slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
