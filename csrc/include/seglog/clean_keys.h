/*
 * Keys of batches for the log cleaner, hashed by one thread before another puts them into the
 * offset map. Only slg_batch_keys owns memory.
 */
#ifndef SEGLOG_CLEAN_KEYS_H
#define SEGLOG_CLEAN_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/offset_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of a batch, or who has to see it next. */
typedef enum slg_clean_step {
    SLG_CLEAN_DONE,
    SLG_CLEAN_OTHER,       /* the reference path decides; nothing has changed */
    SLG_CLEAN_CODEC,       /* compressed: the caller brings its plain bytes */
    SLG_CLEAN_TRANSACTION, /* the caller knows whether its transaction was aborted */
    SLG_CLEAN_FULL,        /* the map has no room for the next record */
    SLG_CLEAN_REFUSED,     /* a record does not parse; keys before it are in the map */
    SLG_CLEAN_COMPRESS,    /* work->built holds what is left, for slg_clean_seal */
    SLG_CLEAN_NO_MEMORY
} slg_clean_step;

/* Who decides about a batch: DONE for one that the functions below take as it is. */
slg_clean_step slg_clean_kind(const slg_batch *batch);

typedef struct slg_mapped {
    int64_t read; /* records before the one that the map had no room for, or all */
    bool is_full;
} slg_mapped;

/*
 * Keys of a span's batches, hashed before their turn to be put: any thread reads them, one thread
 * at a time. A span is read in one part, or in several, one after another, each of at most `most`
 * keys. Batches that it leaves out are those that slg_map_batches does not take or refuses, and
 * one with more than `most` keys.
 */
enum {
    SLG_BATCH_KEYS_MAX = 1 << 15, /* of a span that another thread puts */
    SLG_BATCH_KEYS_PART = 1 << 10 /* 56 KiB, which stay in the L2 cache */
};

typedef struct slg_row_keys {
    size_t first, end; /* its keys */
    int64_t read;      /* records */
    bool is_read;      /* else it was left out */
} slg_row_keys;

typedef struct slg_batch_keys {
    slg_offset_key *keys;
    size_t count, room, most;
    size_t hashed, placed, looked; /* the last two: keys whose memory of the map was fetched */
    slg_row_keys *rows;
    size_t row_room;
} slg_batch_keys;

/* Begins with a span of so many batches; the memory stays. False: no memory. */
bool slg_batch_keys_begin(slg_batch_keys *keys, size_t rows, size_t most);
/* Forgets the keys of the part before. */
void slg_batch_keys_next(slg_batch_keys *keys);
void slg_batch_keys_free(slg_batch_keys *keys);

/* Reads batches from row *row on and moves *row on. CODEC: the caller brings the plain bytes of
 * that row. FULL: there is no room for it. */
slg_clean_step slg_batch_keys_read(slg_batch_keys *keys, const uint8_t *data,
                                   const slg_batch *batches, size_t count, size_t *row,
                                   int64_t start_offset);
/* The same of one batch, whose plain records are given; OTHER: it is left out. */
slg_clean_step slg_batch_keys_add(slg_batch_keys *keys, size_t row, const slg_batch *batch,
                                  const uint8_t *records, size_t size, int64_t start_offset);
/* As slg_map_records, of a row that was read. Rows come in their order. */
void slg_batch_keys_put(slg_batch_keys *keys, size_t row, slg_offset_map *map, int32_t limit,
                        slg_mapped *found);

#ifdef __cplusplus
}
#endif
#endif
