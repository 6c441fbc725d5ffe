#include "seglog/clean.h"

#include <string.h>

#include "clean_internal.h"

/* The next records whose keys are wanted, up to SLG_OFFSET_HASHES. */
typedef struct key_block {
    slg_offset_key keys[SLG_OFFSET_HASHES];
    bool has_value[SLG_OFFSET_HASHES];
    size_t count;
} key_block;

static void add_key(key_block *block, const slg_seen *seen, int32_t index) {
    slg_seen_key(seen, index, &block->keys[block->count]);
    block->has_value[block->count] = seen->has_value;
    block->count++;
}

/* Puts a hashed block into the map. False if it is full; *number is the first record left out. */
static bool put_block(slg_offset_map *map, key_block *block, int32_t limit, int64_t *number) {
    for (size_t i = 0; i < block->count; i++) {
        if (map->entries >= limit || !slg_offset_map_put(map, &block->keys[i])) {
            *number = block->keys[i].number;
            return false;
        }
    }
    block->count = 0;
    return true;
}

/* A block is hashed, then looked up, then put, while memory of the next blocks is prefetched. */
typedef struct key_queue {
    key_block blocks[3];
    unsigned last; /* the block that is being filled */
} key_queue;

static bool advance(slg_offset_map *map, key_queue *queue, int32_t limit, int64_t *number) {
    key_block *filled = &queue->blocks[queue->last];
    key_block *hashed = &queue->blocks[(queue->last + 2) % 3];
    slg_offset_map_hash(map, filled->keys, filled->count);
    slg_offset_map_look(map, hashed->keys, hashed->count);
    queue->last = (queue->last + 1) % 3;
    return put_block(map, &queue->blocks[queue->last], limit, number);
}

slg_refusal slg_map_records(slg_offset_map *map, slg_record_walk *walk, int64_t start_offset,
                            int32_t limit, slg_mapped *found) {
    key_queue queue;
    queue.last = 0;
    queue.blocks[0].count = queue.blocks[1].count = queue.blocks[2].count = 0;
    slg_refusal refusal;
    slg_seen seen;
    found->is_full = true;
    while ((refusal = slg_next_seen(walk, &seen)) == SLG_ACCEPTED) {
        key_block *block = &queue.blocks[queue.last];
        if (seen.key_size < 0 || seen.offset < start_offset) {
            continue;
        }
        add_key(block, &seen, walk->index);
        if (block->count == SLG_OFFSET_HASHES && !advance(map, &queue, limit, &found->read)) {
            return SLG_NO_MORE;
        }
    }
    /* Also the keys before a refused record: if they fill the map, the refusal does not count. */
    for (int left = 0; left < 3; left++) {
        if (!advance(map, &queue, limit, &found->read)) {
            return SLG_NO_MORE;
        }
    }
    found->is_full = false;
    found->read = walk->index;
    return refusal;
}

/* Lists a record if it is kept. No branches, because they could not be predicted. */
static inline void keep(slg_retained *found, slg_kept *kept, slg_kept record, int64_t offset,
                        bool has_value, bool stays) {
    const int64_t max_offset = offset > found->max_offset ? offset : found->max_offset;
    kept[found->kept] = record;
    found->kept += stays;
    found->has_tombstone |= stays & !has_value;
    found->max_offset = stays ? max_offset : found->max_offset;
}

/* Records whose keys must be looked up. */
typedef struct lookups {
    key_block block;
    uint32_t at[SLG_OFFSET_HASHES];
} lookups;

static void keep_latest(const slg_retention *retention, lookups *waiting, slg_kept *kept,
                        slg_retained *found) {
    key_block *block = &waiting->block;
    slg_offset_map_hash(retention->map, block->keys, block->count);
    for (size_t i = 0; i < block->count; i++) {
        const slg_offset_key *key = &block->keys[i];
        const slg_kept record = {.number = key->number, .at = waiting->at[i]};
        keep(found, kept, record, key->offset, block->has_value[i],
             key->offset >= slg_offset_map_get(retention->map, key));
    }
    block->count = 0;
}

slg_refusal slg_retain_records(const slg_retention *retention, slg_record_walk *walk,
                               slg_kept *kept, slg_retained *found) {
    const int64_t latest = retention->map->latest_offset;
    lookups waiting;
    key_block *block = &waiting.block;
    block->count = 0;
    slg_seen seen;
    memset(found, 0, sizeof *found);
    found->max_offset = -1;
    for (;;) {
        const slg_kept record = {.number = (uint32_t)walk->index,
                                 .at = (uint32_t)slg_cursor_read(&walk->bytes)};
        const slg_refusal refusal = slg_next_seen(walk, &seen);
        if (refusal != SLG_ACCEPTED) {
            keep_latest(retention, &waiting, kept, found);
            return refusal;
        }
        found->read++;
        if (retention->keeps_none) {
            continue;
        }
        const bool stays = retention->keeps_all || seen.offset > latest;
        if (!stays && seen.key_size < 0) {
            found->invalid++;
        } else if (stays || seen.has_value || retention->keeps_tombstones) {
            const slg_mark mark = stays ? SLG_MARK_LATEST
                                  : retention->uses_marks
                                      ? slg_offset_map_mark(retention->map, seen.offset)
                                      : SLG_MARK_NONE;
            if (mark == SLG_MARK_NONE) {
                waiting.at[block->count] = record.at;
                add_key(block, &seen, walk->index);
            }
            if (block->count == SLG_OFFSET_HASHES || (mark != SLG_MARK_NONE && block->count > 0)) {
                keep_latest(retention, &waiting, kept, found);
            }
            if (mark != SLG_MARK_NONE) {
                keep(found, kept, record, seen.offset, seen.has_value, mark == SLG_MARK_LATEST);
            }
        }
    }
}
