#define _DEFAULT_SOURCE /* madvise */
#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#endif

#include "seglog/offset_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "seglog/wire.h"

enum {
    OFFSET_AT = SLG_MD5_SIZE,
    LAST_WORD_AT = SLG_MD5_SIZE - 4,
    /* Hashing this many keys one by one takes as long as all lanes together. */
    LANES_WORTH = 3
};

enum { HUGE_PAGE = 2 << 20 };

bool slg_offset_map_renew(slg_offset_map *map, int32_t slot_count) {
    const size_t size = (size_t)slot_count * SLG_OFFSET_SLOT_SIZE;
    uint8_t *slots = calloc(size, 1);
    if (slots == NULL) {
        return false;
    }
#ifdef MADV_HUGEPAGE
    /* Advice only: its failure changes nothing. */
    const uintptr_t begin = ((uintptr_t)slots + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    const uintptr_t end = ((uintptr_t)slots + size) & ~(uintptr_t)(HUGE_PAGE - 1);
    if (begin < end) {
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
    }
#endif
    slg_offset_map_free(map);
    map->slots = slots;
    map->slot_count = slot_count;
    map->latest_offset = -1;
    return true;
}

void slg_offset_map_clear(slg_offset_map *map) {
    if (map->entries > 0) {
        memset(map->slots, 0, (size_t)map->slot_count * SLG_OFFSET_SLOT_SIZE);
    }
    map->entries = 0;
    map->latest_offset = -1;
    map->marked = 0;
}

void slg_offset_map_mark_range(slg_offset_map *map, int64_t from, int64_t count) {
    free(map->marks);
    map->marks = calloc((size_t)(count / SLG_OFFSETS_PER_MARK) + 1, 1);
    map->marks_from = from;
    map->marked = map->marks == NULL ? 0 : count;
    map->last_marked = INT64_MIN;
}

void slg_offset_map_free(slg_offset_map *map) {
    free(map->slots);
    free(map->marks);
    memset(map, 0, sizeof *map);
}

/* The number of the slot of probe `attempt`: first by the words of the hash, then consecutive slots
 * (SkimpyOffsetMap.positionOf). */
static uint32_t slot_of(const slg_offset_map *map, const uint8_t *hash, uint32_t attempt) {
    const uint32_t at = attempt < LAST_WORD_AT ? attempt : LAST_WORD_AT;
    const int32_t probe = (int32_t)(slg_load_u32(hash + at) + (attempt - at));
    const uint32_t distance =
        probe == INT32_MIN ? 0 : (uint32_t)(probe < 0 ? -probe : probe); /* as Kafka's abs */
    return distance % (uint32_t)map->slot_count;
}

static inline uint8_t *slot_at(const slg_offset_map *map, uint32_t number) {
    return map->slots + (size_t)number * SLG_OFFSET_SLOT_SIZE;
}

/* A slot may lie in two lines of the cache. */
static inline void prefetch_slot(const uint8_t *slot) {
    __builtin_prefetch(slot, 1);
    __builtin_prefetch(slot + SLG_OFFSET_SLOT_SIZE - 1, 1);
}

static inline bool is_empty(const uint8_t *slot) {
    return (slg_load_u64(slot) | slg_load_u64(slot + 8) | slg_load_u64(slot + OFFSET_AT)) == 0;
}

static inline bool has_hash(const uint8_t *slot, const uint8_t *hash) {
    return slg_load_u64(slot) == slg_load_u64(hash) &&
           slg_load_u64(slot + 8) == slg_load_u64(hash + 8);
}

void slg_offset_keys_hash(slg_offset_key *keys, size_t count) {
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
    const unsigned left = lanes;
    if (left >= LANES_WORTH) {
        for (; lanes < SLG_MD5_LANES; lanes++) {
            data[lanes] = NULL;
            sizes[lanes] = 0;
        }
        slg_md5_lanes(data, sizes, digests);
    }
    for (unsigned lane = 0; lane < left; lane++) {
        if (left >= LANES_WORTH) {
            memcpy(waiting[lane]->hash, digests[lane], SLG_MD5_SIZE);
        } else {
            slg_md5(waiting[lane]->data, waiting[lane]->size, waiting[lane]->hash);
        }
    }
}

void slg_offset_map_place(const slg_offset_map *map, slg_offset_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        keys[i].attempt = 0;
        keys[i].slot = slot_of(map, keys[i].hash, 0);
        prefetch_slot(slot_at(map, keys[i].slot));
    }
}

void slg_offset_map_hash(const slg_offset_map *map, slg_offset_key *keys, size_t count) {
    slg_offset_keys_hash(keys, count);
    slg_offset_map_place(map, keys, count);
}

void slg_offset_map_look(const slg_offset_map *map, slg_offset_key *keys, size_t count) {
    for (size_t i = 0; i < count; i++) {
        slg_offset_key *key = &keys[i];
        const uint8_t *slot = slot_at(map, key->slot);
        if (is_empty(slot)) {
            continue;
        }
        if (has_hash(slot, key->hash)) {
            const uint64_t at = (uint64_t)slg_load_i64(slot + OFFSET_AT) -
                                (uint64_t)map->marks_from;
            if (at < (uint64_t)map->marked) {
                __builtin_prefetch(map->marks + at / SLG_OFFSETS_PER_MARK, 1);
            }
        } else { /* another key, and no key is ever removed */
            key->slot = slot_of(map, key->hash, ++key->attempt);
            prefetch_slot(slot_at(map, key->slot));
        }
    }
}

int64_t slg_offset_map_get(const slg_offset_map *map, const slg_offset_key *key) {
    /* Kafka stops after as many probes as there are slots, plus those within the hash. */
    const uint32_t attempts = (uint32_t)map->slot_count + LAST_WORD_AT;
    const uint8_t *slot = slot_at(map, key->slot);
    for (uint32_t attempt = key->attempt; !is_empty(slot);
         slot = slot_at(map, slot_of(map, key->hash, attempt))) {
        if (has_hash(slot, key->hash)) {
            return slg_load_i64(slot + OFFSET_AT);
        }
        if (++attempt == attempts) {
            return -1;
        }
    }
    return -1;
}

static void set_mark(slg_offset_map *map, int64_t offset, slg_mark mark) {
    const uint64_t at = (uint64_t)offset - (uint64_t)map->marks_from;
    if (at < (uint64_t)map->marked) {
        const unsigned shift = 2 * (unsigned)(at % SLG_OFFSETS_PER_MARK);
        uint8_t *const marks = map->marks + at / SLG_OFFSETS_PER_MARK;
        *marks = (uint8_t)((*marks & ~(3U << shift)) | (unsigned)mark << shift);
    }
}

/* The key's offset becomes `offset`; it was `before`, -1 for a new key. */
static void note_put(slg_offset_map *map, int64_t offset, int64_t before) {
    if (map->marked == 0) {
        return;
    }
    if (offset <= map->last_marked) {
        map->marked = 0; /* an offset no longer identifies one record */
        return;
    }
    map->last_marked = offset;
    set_mark(map, before, SLG_MARK_OLD);
    set_mark(map, offset, SLG_MARK_LATEST);
}

bool slg_offset_map_put(slg_offset_map *map, const slg_offset_key *key) {
    if (map->entries >= map->slot_count) {
        return false;
    }
    uint32_t attempt = key->attempt;
    uint8_t *slot = slot_at(map, key->slot);
    while (!is_empty(slot)) {
        if (has_hash(slot, key->hash)) {
            note_put(map, key->offset, slg_load_i64(slot + OFFSET_AT));
            slg_store_i64(slot + OFFSET_AT, key->offset);
            map->latest_offset = key->offset;
            return true;
        }
        slot = slot_at(map, slot_of(map, key->hash, ++attempt));
    }
    note_put(map, key->offset, -1);
    memcpy(slot, key->hash, SLG_MD5_SIZE);
    slg_store_i64(slot + OFFSET_AT, key->offset);
    map->latest_offset = key->offset;
    map->entries++;
    return true;
}
