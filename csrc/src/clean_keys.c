#include "seglog/clean_keys.h"

#include <stdlib.h>
#include <string.h>

#include "clean_internal.h"
#include "room.h"

static bool reserve_keys(slg_batch_keys *keys) {
    return SLG_MAKE_ROOM(keys->keys, keys->room, keys->count, 1, NULL) == SLG_OK;
}

bool slg_batch_keys_begin(slg_batch_keys *keys, size_t rows, size_t most) {
    if (SLG_MAKE_ROOM(keys->rows, keys->row_room, 0, rows, NULL) != SLG_OK) {
        return false;
    }
    if (rows > 0) {
        memset(keys->rows, 0, rows * sizeof *keys->rows);
    }
    keys->most = most;
    slg_batch_keys_next(keys);
    return true;
}

void slg_batch_keys_next(slg_batch_keys *keys) {
    keys->count = keys->hashed = keys->placed = keys->looked = 0;
}

void slg_batch_keys_free(slg_batch_keys *keys) {
    free(keys->keys);
    free(keys->rows);
}

/* The keys of one batch, which are hashed later. */
static slg_clean_step add_batch(slg_batch_keys *keys, size_t row, const slg_batch *batch,
                                const uint8_t *records, size_t size, int64_t start_offset) {
    slg_record_walk walk = slg_clean_walk(batch, records, size);
    const size_t first = keys->count;
    slg_refusal refusal;
    slg_seen seen;
    while ((refusal = slg_next_seen(&walk, &seen)) == SLG_ACCEPTED) {
        if (seen.key_size < 0 || seen.offset < start_offset) {
            continue;
        }
        if (keys->count == keys->most || !reserve_keys(keys)) {
            keys->count = first;
            return SLG_CLEAN_FULL;
        }
        slg_seen_key(&seen, walk.index, &keys->keys[keys->count++]);
    }
    if (refusal != SLG_NO_MORE) {
        keys->count = first; /* the thread that puts the keys finds the fault again, in order */
        return SLG_CLEAN_OTHER;
    }
    keys->rows[row] =
        (slg_row_keys){.first = first, .end = keys->count, .read = walk.index, .is_read = true};
    return SLG_CLEAN_DONE;
}

/* Hashes the new keys of several batches at once. */
static void hash(slg_batch_keys *keys) {
    if (keys->count > keys->hashed) {
        slg_offset_keys_hash(keys->keys + keys->hashed, keys->count - keys->hashed);
        keys->hashed = keys->count;
    }
}

slg_clean_step slg_batch_keys_add(slg_batch_keys *keys, size_t row, const slg_batch *batch,
                                  const uint8_t *records, size_t size, int64_t start_offset) {
    const slg_clean_step step = add_batch(keys, row, batch, records, size, start_offset);
    hash(keys); /* while the uncompressed bytes exist */
    return step;
}

slg_clean_step slg_batch_keys_read(slg_batch_keys *keys, const uint8_t *data,
                                   const slg_batch *batches, size_t count, size_t *row,
                                   int64_t start_offset) {
    slg_clean_step step = SLG_CLEAN_DONE;
    for (; *row < count; ++*row) {
        const slg_batch *batch = &batches[*row];
        step = slg_clean_kind(batch);
        if (step == SLG_CLEAN_OTHER) {
            continue;
        }
        step = (batch->attributes & SLG_ATTRIBUTE_CODEC) != 0
                   ? SLG_CLEAN_CODEC
                   : add_batch(keys, *row, batch, data + batch->position + SLG_BATCH_HEADER_SIZE,
                               (size_t)batch->size - SLG_BATCH_HEADER_SIZE, start_offset);
        if (step == SLG_CLEAN_CODEC || step == SLG_CLEAN_FULL) {
            break;
        }
    }
    hash(keys);
    return *row < count ? step : SLG_CLEAN_DONE;
}

static size_t at_most(size_t a, size_t b) { return a < b ? a : b; }

/* Prefetches the map's memory for the keys from `at` on, as slg_map_records does: places and looks
 * up each block before it is needed. */
static void fetch(slg_batch_keys *keys, const slg_offset_map *map, size_t at) {
    const size_t placed = at_most(at + (size_t)3 * SLG_OFFSET_HASHES, keys->count);
    const size_t looked = at_most(at + (size_t)2 * SLG_OFFSET_HASHES, keys->count);
    if (keys->placed < placed) {
        slg_offset_map_place(map, keys->keys + keys->placed, placed - keys->placed);
        keys->placed = placed;
    }
    if (keys->looked < looked) {
        slg_offset_map_look(map, keys->keys + keys->looked, looked - keys->looked);
        keys->looked = looked;
    }
}

void slg_batch_keys_put(slg_batch_keys *keys, size_t row, slg_offset_map *map, int32_t limit,
                        slg_mapped *found) {
    const slg_row_keys *of_row = &keys->rows[row];
    found->is_full = false;
    found->read = of_row->read;
    for (size_t at = of_row->first; at < of_row->end; at++) {
        if (at + SLG_OFFSET_HASHES >= keys->looked) {
            fetch(keys, map, at);
        }
        if (map->entries >= limit || !slg_offset_map_put(map, &keys->keys[at])) {
            found->read = keys->keys[at].number;
            found->is_full = true;
            return;
        }
    }
}
