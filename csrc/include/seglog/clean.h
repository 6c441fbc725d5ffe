/*
 * The log cleaner's work on batches of magic 2: it puts keys into the offset map, chooses the
 * records to keep, and writes the batches that they become (Kafka:
 * Cleaner.buildOffsetMapForSegment, Cleaner.shouldRetainRecord, MemoryRecords.filterTo).
 *
 * The walk refuses what Kafka's reader refuses; a refused batch changes no output. No state is
 * kept; only slg_clean_output and slg_clean_work own memory.
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

/* Which records of a batch are kept. */
typedef struct slg_retention {
    const slg_offset_map *map;
    bool keeps_all;        /* a control batch */
    bool keeps_none;       /* its records may be removed whatever the map says */
    bool keeps_tombstones; /* records without a value must be kept for now */
    bool uses_marks;       /* the map's marks belong to these records */
} slg_retention;

typedef struct slg_retained {
    int64_t read, kept;
    int64_t invalid;    /* records without a key, which are removed */
    int64_t max_offset; /* of the kept records, -1 if there are none */
    bool has_tombstone; /* among the kept records */
} slg_retained;

/* A kept record: the number of records before it, and the byte at which it begins. */
typedef struct slg_kept {
    uint32_t number, at;
} slg_kept;

/* The largest number of records that fit in `size` bytes. */
static inline size_t slg_records_max(size_t size) { return size / 7 + 1; }

/*
 * Lists the found->kept records that are kept, in order. `kept` has room for the batch's record
 * count or slg_records_max of its uncompressed bytes, whichever is less. SLG_NO_MORE: all were
 * good.
 */
slg_refusal slg_retain_records(const slg_retention *retention, slg_record_walk *walk,
                               slg_kept *kept, slg_retained *found);

/* ---- batches ------------------------------------------------------------------------------- */

typedef struct slg_map_counts {
    int64_t bytes, messages;
} slg_map_counts;

/*
 * Puts the keys of the batches from row *row on, and advances *row up to the first that is not
 * DONE. The rows' positions count from `data` and lie inside it. `ahead` has keys of these rows, or
 * is NULL. Sets map->latest_offset to the last offset of the last batch.
 */
slg_clean_step slg_map_batches(slg_offset_map *map, const uint8_t *data, const slg_batch *batches,
                               size_t count, size_t *row, int64_t start_offset, int32_t limit,
                               slg_batch_keys *ahead, slg_map_counts *counts);

/* The same for one batch, from its uncompressed records. */
slg_clean_step slg_map_batch(slg_offset_map *map, const slg_batch *batch, const uint8_t *records,
                             size_t size, int64_t start_offset, int32_t limit,
                             slg_map_counts *counts);

/* The same for one row whose keys are in `ahead`. */
slg_clean_step slg_map_row(slg_offset_map *map, const slg_batch *batches, size_t row,
                           slg_batch_keys *ahead, int64_t start_offset, int32_t limit,
                           slg_map_counts *counts);

typedef struct slg_clean_rules {
    const slg_offset_map *map;
    bool uses_marks;
    int64_t now;                   /* ms */
    int64_t new_horizon; /* delete horizon of new tombstones; negative if there is none */
    int64_t upper_bound; /* the batch that ends just before this offset is kept */
    const int64_t *producers; /* ids, increasing */
    const int64_t *last_offsets; /* of their last data records, -1 if there are none */
    size_t producer_count;
    slg_crc32c_kernel kernel;
} slg_clean_rules;

typedef struct slg_clean_counts {
    int64_t bytes, read, invalid, kept;
} slg_clean_counts;

/*
 * The kept bytes of a span: `size` bytes at `data`, followed by a range of the span itself. While
 * the kept batches are consecutive, there is only the range and nothing is copied.
 */
typedef struct slg_clean_output {
    const uint8_t *span;
    size_t range_from, range_to;
    uint8_t *data;
    size_t size, capacity;
    int64_t max_offset; /* of the kept records; of a batch kept whole, its last offset */
} slg_clean_output;

/* Begins another span; keeps the memory. */
void slg_clean_output_begin(slg_clean_output *output, const uint8_t *span);
/* Keeps a batch of the span as it is. False if out of memory. */
bool slg_clean_keep(slg_clean_output *output, size_t position, size_t size, int64_t last_offset);
/* Adds the bytes of another batch. False if out of memory. */
bool slg_clean_write(slg_clean_output *output, const uint8_t *data, size_t size,
                     int64_t max_offset);
/* All kept bytes, or NULL if out of memory. */
const uint8_t *slg_clean_output_end(slg_clean_output *output, size_t *size);
void slg_clean_output_free(slg_clean_output *output);

/* Memory for one batch. */
typedef struct slg_clean_work {
    slg_kept *kept;
    size_t kept_room; /* records */
    uint8_t *headers;
    size_t headers_room;
    uint8_t *built; /* the encoded records of a compressed batch */
    size_t built_room;
    slg_encode_batch batch; /* the last one built */
    slg_encode_fields fields;
} slg_clean_work;

void slg_clean_work_free(slg_clean_work *work);

/* As slg_map_batches, but adds the kept records of the batches to the output. */
slg_clean_step slg_clean_batches(const slg_clean_rules *rules, const uint8_t *data,
                                 const slg_batch *batches, size_t count, size_t *row,
                                 slg_clean_output *output, slg_clean_work *work,
                                 slg_clean_counts *counts);

/*
 * The same for one batch, from its uncompressed records. COMPRESS: the kept records are the bytes
 * of work->batch after its header; the caller compresses them and calls slg_clean_seal.
 */
slg_clean_step slg_clean_batch(const slg_clean_rules *rules, const slg_batch *batch,
                               const uint8_t *records, size_t size, slg_clean_output *output,
                               slg_clean_work *work, slg_clean_counts *counts);

/* Writes work->batch with its compressed records. False if out of memory. */
bool slg_clean_seal(const slg_clean_rules *rules, const uint8_t *payload, size_t size,
                    slg_clean_output *output, slg_clean_work *work);

#ifdef __cplusplus
}
#endif
#endif
