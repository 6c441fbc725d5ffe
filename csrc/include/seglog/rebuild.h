/*
 * Rebuilds the indexes of a segment from the batches of its log, as recovery does (Kafka:
 * LogSegment.recover): an offset entry if more than `interval_bytes` lie between the starts of two
 * batches, with a time entry if the largest timestamp has grown, and a last time entry at the end.
 *
 * The caller passes the batches of one log in order, in pieces of any size. The state is a plain
 * struct without pointers, so a copy of it can restore it. Nothing here allocates. One thread per
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

/* Offsets are absolute; positions count from the first byte of the segment's log. */
typedef struct slg_rebuild {
    int64_t base_offset;
    int64_t start;               /* where the log begins in the file that was scanned */
    int64_t interval_bytes;
    int64_t offset_entries_max;  /* capacity of a file of segment.index.bytes */
    int64_t time_entries_max;

    int64_t batch_count;
    int64_t record_count;        /* an old wrapper counts as one */
    int64_t last_offset;         /* of the last batch, or -1 */
    int64_t size;                /* bytes of the batches taken */
    int64_t max_timestamp; /* ms; without a timestamp this is -1, and its offset the base offset */
    int64_t offset_of_max_timestamp; /* last offset of the first batch that has it */

    int64_t offset_entries;
    int64_t last_indexed_offset; /* of the last offset entry */
    int64_t last_entry_position; /* from which the interval counts */
    int64_t time_entries;
    int64_t last_time; /* of the last time entry, or -1 */
    int64_t last_time_offset;
    int64_t highest_base_offset; /* of the batches from the last offset entry's on */
    slg_index_kind failed; /* the index that refused an entry */
} slg_rebuild;

/* `index_bytes`: segment.index.bytes, the limit of each index. */
void slg_rebuild_init(slg_rebuild *rebuild, int64_t base_offset, int64_t start,
                      int64_t interval_bytes, int64_t index_bytes);

/*
 * Takes batches and writes the entries that become due. `offsets` and `times` have room for one
 * entry per batch; offset_entries and time_entries are the totals. SLG_OK if all batches were
 * taken; else *taken batches were, and the next one failed (error->position):
 * SLG_BATCH_OFFSET_RANGE (its last offset is outside this segment), SLG_INDEX_OFFSET_ORDER (the due
 * entry would not increase: expected the last one's offset, found this one's; Kafka's
 * InvalidOffsetException), SLG_INDEX_FULL (expected: the number of entries that fit), SLG_LIMIT (a
 * position of more than 31 bits). An offset entry may be written before its time entry fails.
 */
slg_status slg_rebuild_feed(slg_rebuild *rebuild, const slg_batch *batches, size_t count,
                            uint8_t *offsets, uint8_t *times, size_t *taken, slg_error *error);

/*
 * The final entry of the time index, for which the last slot is reserved: *written is 0 or 1.
 * SLG_OK, SLG_INDEX_OFFSET_ORDER, or SLG_INDEX_FULL if even that slot does not exist.
 */
slg_status slg_rebuild_finish(slg_rebuild *rebuild, uint8_t *time, size_t *written,
                              slg_error *error);

/*
 * The end offset that Kafka reads through the rebuilt index (LogSegment.readNextOffset): that of
 * the last batch, if a batch at or after the last entry's position contains or follows the entry's
 * offset; else the segment counts as empty. Matters only if offsets decrease.
 */
int64_t slg_rebuild_next_offset(const slg_rebuild *rebuild);

#ifdef __cplusplus
}
#endif
#endif
