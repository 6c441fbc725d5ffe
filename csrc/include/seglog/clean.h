/*
 * What the log cleaner does with the records of one batch of magic 2: keys into the offset map, and
 * which records stay (Kafka: Cleaner.buildOffsetMapForSegment, Cleaner.shouldRetainRecord).
 *
 * The walk refuses what Kafka's reader refuses; nothing is allocated, no state is kept.
 */
#ifndef SEGLOG_CLEAN_H
#define SEGLOG_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/offset_map.h"
#include "seglog/validate.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct slg_mapped {
    int64_t read; /* records before the one that the map had no room for, or all */
    bool is_full;
} slg_mapped;

/*
 * Puts the keys of the records at or above `start_offset` while the map has fewer than `limit`
 * entries. SLG_NO_MORE: all were good, or the map is full.
 */
slg_refusal slg_map_records(slg_offset_map *map, slg_record_walk *walk, int64_t start_offset,
                            int32_t limit, slg_mapped *found);

/* Which records of a batch stay. */
typedef struct slg_retention {
    const slg_offset_map *map;
    bool keeps_all;        /* a control batch */
    bool keeps_none;       /* its records may go whatever the map says */
    bool keeps_tombstones; /* records without a value may not go yet */
} slg_retention;

typedef struct slg_retained {
    int64_t read, kept;
    int64_t invalid;    /* records without a key, which go */
    int64_t max_offset; /* of those kept, -1 without one */
    bool has_tombstone; /* among those kept */
} slg_retained;

/* The most records that `size` bytes can be. */
static inline size_t slg_records_max(size_t size) { return size / 7 + 1; }

/*
 * Sets kept[i] to whether record i stays; room for the batch's record count or slg_records_max of
 * its plain bytes, whichever is less. SLG_NO_MORE: all were good.
 */
slg_refusal slg_retain_records(const slg_retention *retention, slg_record_walk *walk, uint8_t *kept,
                               slg_retained *found);

#ifdef __cplusplus
}
#endif
#endif
