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

/* The result for a batch, or what it needs next. */
typedef enum slg_clean_step {
    SLG_CLEAN_DONE,
    SLG_CLEAN_OTHER,       /* the reference path decides; nothing has changed */
    SLG_CLEAN_CODEC,       /* compressed: the caller decompresses it */
    SLG_CLEAN_TRANSACTION, /* the caller knows whether its transaction was aborted */
    SLG_CLEAN_FULL,        /* the map has no room for the next record */
    SLG_CLEAN_REFUSED,     /* a record does not parse; keys before it are in the map */
    SLG_CLEAN_COMPRESS,    /* the caller compresses work->built, for slg_clean_seal */
    SLG_CLEAN_NO_MEMORY
} slg_clean_step;

/* What a batch needs: DONE if the functions below take it as it is. */
slg_clean_step slg_clean_kind(const slg_batch *batch);

typedef struct slg_mapped {
    int64_t read; /* all records, or those before the one for which the map had no room */
    bool is_full;
} slg_mapped;

/*
 * Keys of a span's batches, hashed before they are put into the map. Any thread may read them, one
 * at a time. A span is read in one or several parts, in order, each of at most `most` keys. Leaves
 * out batches that slg_map_batches does not take or refuses, and a batch with more than `most`
 * keys.
 */
enum {
    SLG_BATCH_KEYS_MAX = 1 << 15, /* if another thread puts them */
    SLG_BATCH_KEYS_PART = 1 << 10 /* 56 KiB, which stay in the L2 cache */
};

typedef struct slg_row_keys {
    size_t first, end; /* its keys */
    int64_t read;      /* records */
    bool is_read;      /* false if it was left out */
} slg_row_keys;

typedef struct slg_batch_keys {
    slg_offset_key *keys;
    size_t count, room, most;
    size_t hashed, placed, looked; /* keys after slg_offset_keys_hash, _map_place, _map_look */
    slg_row_keys *rows;
    size_t row_room;
} slg_batch_keys;

/* Begins a span of `rows` batches; keeps the memory. False if out of memory. */
bool slg_batch_keys_begin(slg_batch_keys *keys, size_t rows, size_t most);
/* Begins the next part: drops the keys of the previous one. */
void slg_batch_keys_next(slg_batch_keys *keys);
void slg_batch_keys_free(slg_batch_keys *keys);

/* Reads batches from row *row on, and advances *row. CODEC: the caller decompresses that row. FULL:
 * there is no room for it. */
slg_clean_step slg_batch_keys_read(slg_batch_keys *keys, const uint8_t *data,
                                   const slg_batch *batches, size_t count, size_t *row,
                                   int64_t start_offset);
/* Reads one batch from its uncompressed records. OTHER: it is left out. */
slg_clean_step slg_batch_keys_add(slg_batch_keys *keys, size_t row, const slg_batch *batch,
                                  const uint8_t *records, size_t size, int64_t start_offset);
/* As slg_map_records, for a row that was read. Rows come in order. */
void slg_batch_keys_put(slg_batch_keys *keys, size_t row, slg_offset_map *map, int32_t limit,
                        slg_mapped *found);

#ifdef __cplusplus
}
#endif
#endif
