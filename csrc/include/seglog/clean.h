/*
 * What the log cleaner does with batches of magic 2: keys into the offset map, which records stay,
 * and the bytes that a batch becomes (Kafka: Cleaner.buildOffsetMapForSegment,
 * Cleaner.shouldRetainRecord, MemoryRecords.filterTo).
 *
 * The walk refuses what Kafka's reader refuses, and a batch that is refused changes no output. No
 * state is kept; only slg_clean_output and slg_clean_work own memory.
 */
#ifndef SEGLOG_CLEAN_H
#define SEGLOG_CLEAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/clean_keys.h"
#include "seglog/crc32c.h"
#include "seglog/encode.h"
#include "seglog/offset_map.h"
#include "seglog/validate.h"

#ifdef __cplusplus
extern "C" {
#endif

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
    bool uses_marks;       /* the map's marks are of these records */
} slg_retention;

typedef struct slg_retained {
    int64_t read, kept;
    int64_t invalid;    /* records without a key, which go */
    int64_t max_offset; /* of those kept, -1 without one */
    bool has_tombstone; /* among those kept */
} slg_retained;

/* A record that stays: the number of those before it, and the byte where it begins. */
typedef struct slg_kept {
    uint32_t number, at;
} slg_kept;

/* The most records that `size` bytes can be. */
static inline size_t slg_records_max(size_t size) { return size / 7 + 1; }

/*
 * Lists the found->kept records that stay, in their order; `kept` has room for the batch's record
 * count or slg_records_max of its plain bytes, whichever is less. SLG_NO_MORE: all were good.
 */
slg_refusal slg_retain_records(const slg_retention *retention, slg_record_walk *walk,
                               slg_kept *kept, slg_retained *found);

/* ---- batches ------------------------------------------------------------------------------- */

typedef struct slg_map_counts {
    int64_t bytes, messages;
} slg_map_counts;

/*
 * Puts the keys of the batches from row *row on and moves *row on, up to the first that is not
 * DONE. `data` is the span that the rows count their positions from, and they lie inside of it.
 * `ahead` has keys of these rows, or is NULL. map->latest_offset follows the batches.
 */
slg_clean_step slg_map_batches(slg_offset_map *map, const uint8_t *data, const slg_batch *batches,
                               size_t count, size_t *row, int64_t start_offset, int32_t limit,
                               slg_batch_keys *ahead, slg_map_counts *counts);

/* The same of one batch, whose plain records are given. */
slg_clean_step slg_map_batch(slg_offset_map *map, const slg_batch *batch, const uint8_t *records,
                             size_t size, int64_t start_offset, int32_t limit,
                             slg_map_counts *counts);

/* The same of one row whose keys `ahead` has. */
slg_clean_step slg_map_row(slg_offset_map *map, const slg_batch *batches, size_t row,
                           slg_batch_keys *ahead, int64_t start_offset, int32_t limit,
                           slg_map_counts *counts);

typedef struct slg_clean_rules {
    const slg_offset_map *map;
    bool uses_marks;
    int64_t now;                   /* ms */
    int64_t new_horizon;           /* that a batch gets now; negative: none can be written */
    int64_t upper_bound;           /* a batch that ends before it stays */
    const int64_t *producers;      /* ids, increasing */
    const int64_t *last_offsets;   /* of their last data records, -1 without one */
    size_t producer_count;
    slg_crc32c_kernel kernel;
} slg_clean_rules;

typedef struct slg_clean_counts {
    int64_t bytes, read, invalid, kept;
} slg_clean_counts;

/*
 * The bytes that stay of a span. As long as nothing in between went they are the range of the span
 * itself, and nothing is copied; then `size` bytes at `data`, followed by that range.
 */
typedef struct slg_clean_output {
    const uint8_t *span;
    size_t range_from, range_to;
    uint8_t *data;
    size_t size, capacity;
    int64_t max_offset; /* of the retained records; a batch that is kept whole has its last */
} slg_clean_output;

/* Begins with another span; the memory stays. */
void slg_clean_output_begin(slg_clean_output *output, const uint8_t *span);
/* A batch of the span stays as it is. False: no memory. */
bool slg_clean_keep(slg_clean_output *output, size_t position, size_t size, int64_t last_offset);
/* Bytes of another batch. False: no memory. */
bool slg_clean_write(slg_clean_output *output, const uint8_t *data, size_t size,
                     int64_t max_offset);
/* All bytes; NULL: no memory. */
const uint8_t *slg_clean_output_end(slg_clean_output *output, size_t *size);
void slg_clean_output_free(slg_clean_output *output);

/* Memory for one batch. */
typedef struct slg_clean_work {
    slg_kept *kept;
    size_t kept_room; /* records */
    uint8_t *headers;
    size_t headers_room;
    uint8_t *built; /* room of the encoded records of a compressed batch */
    size_t built_room;
    slg_encode_batch batch; /* the last one built */
    slg_encode_fields fields;
} slg_clean_work;

void slg_clean_work_free(slg_clean_work *work);

/* As slg_map_batches: what stays of the batches goes to the output. */
slg_clean_step slg_clean_batches(const slg_clean_rules *rules, const uint8_t *data,
                                 const slg_batch *batches, size_t count, size_t *row,
                                 slg_clean_output *output, slg_clean_work *work,
                                 slg_clean_counts *counts);

/*
 * The same of one batch, whose plain records are given. COMPRESS: the records that stay are the
 * bytes of work->batch behind its header, and slg_clean_seal takes them when they are compressed.
 */
slg_clean_step slg_clean_batch(const slg_clean_rules *rules, const slg_batch *batch,
                               const uint8_t *records, size_t size, slg_clean_output *output,
                               slg_clean_work *work, slg_clean_counts *counts);

/* Writes work->batch with its compressed records. False: no memory. */
bool slg_clean_seal(const slg_clean_rules *rules, const uint8_t *payload, size_t size,
                    slg_clean_output *output, slg_clean_work *work);

#ifdef __cplusplus
}
#endif
#endif
