#include "seglog/offset_map.h"

#include <string.h>

#include "seglog/wire.h"

enum { OFFSET_AT = SLG_MD5_SIZE, LAST_WORD_AT = SLG_MD5_SIZE - 4 };

/* The slot of probe number `attempt`: first by the words of the hash, then consecutive slots
 * (SkimpyOffsetMap.positionOf). */
static uint8_t *slot_of(const slg_offset_map *map, const uint8_t *hash, uint32_t attempt) {
    const uint32_t at = attempt < LAST_WORD_AT ? attempt : LAST_WORD_AT;
    const int32_t probe = (int32_t)(slg_load_u32(hash + at) + (attempt - at));
    const uint32_t distance =
        probe == INT32_MIN ? 0 : (uint32_t)(probe < 0 ? -probe : probe); /* as Kafka's abs */
    return map->slots + (size_t)(distance % (uint32_t)map->slot_count) * SLG_OFFSET_SLOT_SIZE;
}

static bool is_empty(const uint8_t *slot) {
    return (slg_load_u64(slot) | slg_load_u64(slot + 8) | slg_load_u64(slot + OFFSET_AT)) == 0;
}

void slg_offset_map_hash(const slg_offset_map *map, slg_offset_key *keys, size_t count) {
    const uint8_t *data[SLG_MD5_LANES];
    uint32_t sizes[SLG_MD5_LANES];
    uint8_t digests[SLG_MD5_LANES][SLG_MD5_SIZE];
    slg_offset_key *waiting[SLG_MD5_LANES];
    unsigned lanes = 0;
    for (size_t i = 0; i < count; i++) {
        slg_offset_key *key = keys + i;
        if (key->size > SLG_MD5_SHORT_MAX) {
            slg_md5(key->data, key->size, key->hash);
            continue;
        }
        data[lanes] = key->data;
        sizes[lanes] = key->size;
        waiting[lanes++] = key;
        if (lanes == SLG_MD5_LANES) {
            slg_md5_lanes(data, sizes, digests);
            for (lanes = 0; lanes < SLG_MD5_LANES; lanes++) {
                memcpy(waiting[lanes]->hash, digests[lanes], SLG_MD5_SIZE);
            }
            lanes = 0;
        }
    }
    for (unsigned lane = 0; lane < lanes; lane++) {
        slg_md5(waiting[lane]->data, waiting[lane]->size, waiting[lane]->hash);
    }
    for (size_t i = 0; i < count; i++) {
        __builtin_prefetch(slot_of(map, keys[i].hash, 0));
    }
}

int64_t slg_offset_map_get(const slg_offset_map *map, const uint8_t *hash) {
    /* Kafka stops after as many probes as there are slots, plus those within the hash. */
    const uint32_t attempts = (uint32_t)map->slot_count + LAST_WORD_AT;
    for (uint32_t attempt = 0; attempt < attempts; attempt++) {
        const uint8_t *slot = slot_of(map, hash, attempt);
        if (is_empty(slot)) {
            return -1;
        }
        if (memcmp(slot, hash, SLG_MD5_SIZE) == 0) {
            return slg_load_i64(slot + OFFSET_AT);
        }
    }
    return -1;
}

bool slg_offset_map_put(slg_offset_map *map, const slg_offset_key *key) {
    if (map->entries >= map->slot_count) {
        return false;
    }
    uint32_t attempt = 0;
    uint8_t *slot = slot_of(map, key->hash, attempt);
    while (!is_empty(slot)) {
        if (memcmp(slot, key->hash, SLG_MD5_SIZE) == 0) {
            slg_store_i64(slot + OFFSET_AT, key->offset);
            map->latest_offset = key->offset;
            return true;
        }
        slot = slot_of(map, key->hash, ++attempt);
    }
    memcpy(slot, key->hash, SLG_MD5_SIZE);
    slg_store_i64(slot + OFFSET_AT, key->offset);
    map->latest_offset = key->offset;
    map->entries++;
    return true;
}
