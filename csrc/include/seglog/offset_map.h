/*
 * The log cleaner's map from keys to offsets: Kafka's SkimpyOffsetMap, slot by slot. A slot is the
 * MD5 of a key and the offset, 24 bytes; one of zeros is empty. Keys with the same MD5 are one key.
 *
 * Beside the slots may be marks: two bits for each of a range of offsets, whether it was put, and
 * whether it is still its key's. They answer for the records that filled the map without a hash.
 *
 * One thread at a time, or any number while no thread writes.
 */
#ifndef SEGLOG_OFFSET_MAP_H
#define SEGLOG_OFFSET_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/md5.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SLG_OFFSET_SLOT_SIZE = SLG_MD5_SIZE + 8, SLG_OFFSET_HASHES = 32 };

typedef struct slg_offset_map {
    uint8_t *slots;
    int32_t slot_count; /* at least 1 */
    int32_t entries;
    int64_t latest_offset; /* the last one put or set, -1 for none */

    uint8_t *marks;      /* of SLG_OFFSETS_PER_MARK offsets each, zeros at first */
    int64_t marks_from;  /* the first offset that has marks */
    int64_t marked;      /* how many have; 0: there are no marks, or they stopped to be true */
    int64_t last_marked; /* the last offset that was marked, below marks_from before the first */
} slg_offset_map;

enum { SLG_OFFSETS_PER_MARK = 4 };

/* Empties the map and gives it memory of `slot_count` slots, without marks. Zeroed when it is first
 * used, in huge pages where the system has them: a lookup is a miss of the cache, and would be one
 * of the address table. False: no memory, and the map is as before. */
bool slg_offset_map_renew(slg_offset_map *map, int32_t slot_count);

/* Empties the map and keeps its memory, without marks. Memory that was used is zeroed at a third of
 * the price of new memory, whose pages the system zeroes when they are first used. */
void slg_offset_map_clear(slg_offset_map *map);

/* Marks `count` offsets from `from` on; an empty map. Without memory there are no marks. */
void slg_offset_map_mark_range(slg_offset_map *map, int64_t from, int64_t count);

void slg_offset_map_free(slg_offset_map *map);

/* A key to look up or to put. */
typedef struct slg_offset_key {
    const uint8_t *data; /* NULL for an empty key */
    uint32_t size;
    uint32_t slot, attempt; /* where its hash may lie, and how many probes lead there */
    uint32_t number;        /* the caller's */
    int64_t offset;
    uint8_t hash[SLG_MD5_SIZE];
} slg_offset_key;

/* Hashes `count` keys; needs no map. */
void slg_offset_keys_hash(slg_offset_key *keys, size_t count);

/* Prefetches the first slots of hashed keys. */
void slg_offset_map_place(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* Both. */
void slg_offset_map_hash(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* For placed keys that will be put, prefetches what lies behind the first slot: the second one of a
 * key that finds another there, the mark of one that finds itself. To no other effect. */
void slg_offset_map_look(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* The offset of a placed key, or -1. */
int64_t slg_offset_map_get(const slg_offset_map *map, const slg_offset_key *key);

/* Puts a placed key, new or known; false if every slot is taken. Marks hold as long as the offsets
 * that are put increase. */
bool slg_offset_map_put(slg_offset_map *map, const slg_offset_key *key);

/* What the marks say of the record at an offset that was put. */
typedef enum slg_mark {
    SLG_MARK_NONE, /* nothing: the map has to be asked */
    SLG_MARK_OLD,  /* a later record has its key */
    SLG_MARK_LATEST,
} slg_mark;

static inline slg_mark slg_offset_map_mark(const slg_offset_map *map, int64_t offset) {
    const uint64_t at = (uint64_t)offset - (uint64_t)map->marks_from;
    if (at >= (uint64_t)map->marked) {
        return SLG_MARK_NONE;
    }
    return (slg_mark)(map->marks[at / SLG_OFFSETS_PER_MARK] >>
                          2 * (unsigned)(at % SLG_OFFSETS_PER_MARK) &
                      3U);
}

#ifdef __cplusplus
}
#endif
#endif
