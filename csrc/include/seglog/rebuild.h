/*
 * The indexes of a segment made anew from the batches of its log, as recovery makes them
 * (Kafka: LogSegment.recover): an offset entry where more than `interval_bytes` lie between the
 * starts of two batches, a time entry beside it where the largest timestamp grew, and one more at
 * the end.
 *
 * A rebuild is fed the batches of one log in order, in pieces of any size; its state is a plain
 * struct without pointers, so a copy of it is the way back. Nothing here allocates. One thread per
 * rebuild.
 */
#ifndef SEGLOG_REBUILD_H
#define SEGLOG_REBUILD_H

#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/index.h"
#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Offsets are absolute here, positions count from the first byte of the segment's log. */
typedef struct slg_rebuild {
    int64_t base_offset;
    int64_t start;               /* where the log begins in the file that was scanned */
    int64_t interval_bytes;
    int64_t offset_entries_max;  /* what a file of segment.index.bytes holds */
    int64_t time_entries_max;

    int64_t batch_count;
    int64_t record_count;        /* an old wrapper counts as one */
    int64_t last_offset;         /* of the last batch, -1 without one */
    int64_t size;                /* bytes of the batches taken */
    int64_t max_timestamp;       /* ms; with its offset (-1, base offset) without a timestamp */
    int64_t offset_of_max_timestamp; /* last offset of the first batch that has it */

    int64_t offset_entries;
    int64_t last_indexed_offset; /* of the last offset entry */
    int64_t last_entry_position; /* from which the interval counts */
    int64_t time_entries;
    int64_t last_time;           /* of the last time entry, -1 without one */
    int64_t last_time_offset;
    int64_t highest_base_offset; /* of the batches since the last offset entry, its own too */
    slg_index_kind failed;       /* the index that refused an entry */
} slg_rebuild;

/* `index_bytes`: segment.index.bytes, what both indexes may take. */
void slg_rebuild_init(slg_rebuild *rebuild, int64_t base_offset, int64_t start,
                      int64_t interval_bytes, int64_t index_bytes);

/*
 * Takes batches, and writes the entries that become due: `offsets` and `times` have room for one
 * entry per batch; offset_entries and time_entries say how many are there in all. SLG_OK when all
 * were taken. Else *taken says how many were, and the next batch is why (error->position):
 * SLG_BATCH_OFFSET_RANGE (its last offset is no offset of this segment), SLG_INDEX_OFFSET_ORDER (an
 * entry was due that would not grow: expected the last one's offset, found this one's; Kafka's
 * InvalidOffsetException), SLG_INDEX_FULL (expected: how many entries fit), SLG_LIMIT (a position
 * of more than 31 bits). An offset entry may be written before its time entry fails.
 */
slg_status slg_rebuild_feed(slg_rebuild *rebuild, const slg_batch *batches, size_t count,
                            uint8_t *offsets, uint8_t *times, size_t *taken, slg_error *error);

/*
 * The entry that ends the time index, for which no slot need be free but the last: *written is 0
 * or 1. SLG_OK, SLG_INDEX_OFFSET_ORDER, or SLG_INDEX_FULL when not even that slot exists.
 */
slg_status slg_rebuild_finish(slg_rebuild *rebuild, uint8_t *time, size_t *written,
                              slg_error *error);

/*
 * The end offset that Kafka reads through the rebuilt index (LogSegment.readNextOffset): the last
 * batch's, if a batch at or behind the last entry's holds or follows its offset; else the segment
 * counts as empty. Only offsets that go backwards make a difference.
 */
int64_t slg_rebuild_next_offset(const slg_rebuild *rebuild);

#ifdef __cplusplus
}
#endif
#endif
