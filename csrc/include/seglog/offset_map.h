/*
 * The log cleaner's map from keys to offsets: Kafka's SkimpyOffsetMap, slot by slot. A slot is the
 * MD5 of a key and the offset, 24 bytes; one of zeros is empty. Keys with the same MD5 are one key.
 *
 * The caller owns the slots. One thread at a time, or any number while no thread writes.
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
    int64_t latest_offset; /* the last one put or set, or -1 */
} slg_offset_map;

/* A key to look up or to put. */
typedef struct slg_offset_key {
    const uint8_t *data; /* NULL for an empty key */
    uint32_t size;
    int64_t offset;
    uint8_t hash[SLG_MD5_SIZE];
} slg_offset_key;

/* Hashes `count` keys, at most SLG_OFFSET_HASHES, and prefetches their slots. */
void slg_offset_map_hash(const slg_offset_map *map, slg_offset_key *keys, size_t count);

/* The offset of a hashed key, or -1. */
int64_t slg_offset_map_get(const slg_offset_map *map, const uint8_t *hash);

/* Puts a hashed key, new or existing. False if every slot is taken. */
bool slg_offset_map_put(slg_offset_map *map, const slg_offset_key *key);

#ifdef __cplusplus
}
#endif
#endif
