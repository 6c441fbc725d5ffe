#include "seglog/clean.h"

#include <string.h>

/* The next records whose keys are wanted, up to SLG_OFFSET_HASHES: hashing many at once hides the
 * time that the map's memory takes. */
typedef struct key_block {
    slg_offset_key keys[SLG_OFFSET_HASHES];
    uint32_t numbers[SLG_OFFSET_HASHES]; /* of the records in the batch */
    bool has_value[SLG_OFFSET_HASHES];
    size_t count;
} key_block;

static void add_key(key_block *block, const slg_record_walk *walk) {
    const slg_record *record = &walk->record;
    slg_offset_key *key = &block->keys[block->count];
    key->data = record->key;
    key->size = (uint32_t)record->key_size;
    key->offset = record->offset;
    block->numbers[block->count] = (uint32_t)walk->index - 1;
    block->has_value[block->count] = record->value_size >= 0;
    block->count++;
}

/* Whether all of the block went into the map; *number is the first record that did not. */
static bool put_block(slg_offset_map *map, key_block *block, int32_t limit, uint32_t *number) {
    slg_offset_map_hash(map, block->keys, block->count);
    for (size_t i = 0; i < block->count; i++) {
        if (map->entries >= limit || !slg_offset_map_put(map, &block->keys[i])) {
            *number = block->numbers[i];
            return false;
        }
    }
    block->count = 0;
    return true;
}

slg_refusal slg_map_records(slg_offset_map *map, slg_record_walk *walk, int64_t start_offset,
                            int32_t limit, slg_mapped *found) {
    key_block block;
    block.count = 0;
    slg_refusal refusal;
    uint32_t number;
    found->is_full = false;
    do {
        refusal = slg_record_next(walk);
        if (refusal == SLG_ACCEPTED && walk->record.key_size >= 0 &&
            walk->record.offset >= start_offset) {
            add_key(&block, walk);
        }
        /* Also before what is refused: a full map never gets there. */
        if ((block.count == SLG_OFFSET_HASHES || refusal != SLG_ACCEPTED) &&
            !put_block(map, &block, limit, &number)) {
            found->is_full = true;
            found->read = number;
            return SLG_NO_MORE;
        }
    } while (refusal == SLG_ACCEPTED);
    found->read = walk->index;
    return refusal;
}

static void keep(slg_retained *found, uint8_t *kept, uint32_t number, int64_t offset,
                 bool has_value) {
    kept[number] = 1;
    found->kept++;
    found->has_tombstone = found->has_tombstone || !has_value;
    if (offset > found->max_offset) {
        found->max_offset = offset;
    }
}

static void keep_latest(const slg_retention *retention, key_block *block, uint8_t *kept,
                        slg_retained *found) {
    slg_offset_map_hash(retention->map, block->keys, block->count);
    for (size_t i = 0; i < block->count; i++) {
        const slg_offset_key *key = &block->keys[i];
        if (key->offset >= slg_offset_map_get(retention->map, key->hash)) {
            keep(found, kept, block->numbers[i], key->offset, block->has_value[i]);
        }
    }
    block->count = 0;
}

slg_refusal slg_retain_records(const slg_retention *retention, slg_record_walk *walk, uint8_t *kept,
                               slg_retained *found) {
    const int64_t latest = retention->map->latest_offset;
    key_block block;
    block.count = 0;
    slg_refusal refusal;
    memset(found, 0, sizeof *found);
    found->max_offset = -1;
    while ((refusal = slg_record_next(walk)) == SLG_ACCEPTED) {
        const slg_record *record = &walk->record;
        const uint32_t number = (uint32_t)walk->index - 1;
        const bool has_value = record->value_size >= 0;
        found->read++;
        kept[number] = 0;
        if (retention->keeps_none) {
            continue;
        }
        if (retention->keeps_all || record->offset > latest) {
            keep(found, kept, number, record->offset, has_value);
        } else if (record->key_size < 0) {
            found->invalid++;
        } else if (has_value || retention->keeps_tombstones) {
            add_key(&block, walk);
            if (block.count == SLG_OFFSET_HASHES) {
                keep_latest(retention, &block, kept, found);
            }
        }
    }
    keep_latest(retention, &block, kept, found);
    return refusal;
}
