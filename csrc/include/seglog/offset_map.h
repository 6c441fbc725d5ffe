/*
 * The log cleaner's map from keys to offsets: Kafka's SkimpyOffsetMap, slot by slot. A slot has 24
 * bytes, the MD5 of a key and its offset; a slot of zeros is empty. Keys with the same MD5 are one
 * key.
 *
 * The map may also have marks: two bits for each offset of a range say whether the offset was put,
 * and whether it is still the latest of its key. For the records that filled the map, the marks
 * replace a lookup by hash.
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

    uint8_t *marks;      /* each byte has those of SLG_OFFSETS_PER_MARK offsets; zeros at first */
    int64_t marks_from;  /* the first offset with marks */
    int64_t marked; /* number of offsets with marks; 0 if there are none, or no longer valid */
    int64_t last_marked; /* the last marked offset; below marks_from if there is none */
} slg_offset_map;

enum { SLG_OFFSETS_PER_MARK = 4 };

/*
 * Empties the map and allocates `slot_count` slots, without marks. The system zeroes the memory at
 * its first use, in huge pages if it has them: each lookup is a cache miss, and with small pages
 * would be a TLB miss too. False if out of memory; the map is then unchanged.
 */
bool slg_offset_map_renew(slg_offset_map *map, int32_t slot_count);

/* Empties the map and keeps its memory, without marks. Zeroing used memory takes a third of the
 * time that the page faults of new memory take. */
void slg_offset_map_clear(slg_offset_map *map);

/* Gives an empty map marks for `count` offsets from `from` on. No marks if out of memory. */
void slg_offset_map_mark_range(slg_offset_map *map, int64_t from, int64_t count);

void slg_offset_map_free(slg_offset_map *map);

/* A key to look up or to put. */
typedef struct slg_offset_key {
    const uint8_t *data; /* NULL for an empty key */
    uint32_t size;
    uint32_t slot, attempt; /* the slot to probe next, and the number of probes before it */
    uint32_t number; /* the caller's */
    int64_t offset;
    uint8_t hash[SLG_MD5_SIZE];
} slg_offset_key;

/* Hashes `count` keys. */
void slg_offset_keys_hash(slg_offset_key *keys, size_t count);

/* Sets the first slots of hashed keys and prefetches them. */
void slg_offset_map_place(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* Hashes and places keys. */
void slg_offset_map_hash(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* Prefetches what a put of placed keys reads after the first slot: the second slot if the first has
 * another key, the mark if it has the same key. */
void slg_offset_map_look(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* The offset of a placed key, or -1. */
int64_t slg_offset_map_get(const slg_offset_map *map, const slg_offset_key *key);

/* Puts a placed key, new or known; false if every slot is taken. An offset that is not above the
 * one before ends the marks. */
bool slg_offset_map_put(slg_offset_map *map, const slg_offset_key *key);

/* What the marks say about the record at an offset that was put. */
typedef enum slg_mark {
    SLG_MARK_NONE, /* nothing: look the key up */
    SLG_MARK_OLD, /* a later record has its key */
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
