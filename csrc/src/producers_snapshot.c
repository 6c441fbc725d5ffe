#include <stdlib.h>

#include "java.h"
#include "producers_internal.h"
#include "seglog/crc32c.h"
#include "seglog/format.h"
#include "seglog/wire.h"

enum { BUCKETS_MIN = 16, TREE_BUCKETS_MIN = 64, BUCKET_KEYS_MAX = 8 };

/* ---- the order ------------------------------------------------------------------------------ */

/*
 * Kafka writes a snapshot in the order of a HashMap with Long keys. The number of buckets is a
 * power of two, at least 16 and more than 4/3 of the keys. A key's bucket is the low bits of its
 * hash; within a bucket keys stay in insertion order. A bucket of more than eight keys doubles a
 * map of fewer than 64 buckets. (In larger maps Java turns it into a tree and may move one key to
 * the front. This order does not: it takes nine keys in one bucket of a map that is at most three
 * quarters full.)
 */
static size_t buckets_of(const slg_producer_map *map) {
    size_t buckets = BUCKETS_MIN;
    for (size_t i = 0; i < map->count && buckets < TREE_BUCKETS_MIN; i++) {
        size_t held = 0;
        for (size_t j = 0; j < i; j++) {
            held += ((slg_java_hash(map->all[i].id) ^ slg_java_hash(map->all[j].id)) &
                     (buckets - 1)) == 0;
        }
        if (held >= BUCKET_KEYS_MAX) {
            buckets *= 2;
        }
        if (i + 1 > buckets / 4 * 3) {
            buckets *= 2;
        }
    }
    while (map->count > buckets / 4 * 3) {
        buckets *= 2;
    }
    return buckets;
}

/* ---- the bytes ------------------------------------------------------------------------------ */

static void write_entry(uint8_t *at, const slg_producer *producer) {
    const slg_producer_batch none = {.last_offset = -1, .last_sequence = -1};
    const slg_producer_batch *last =
        producer->batch_count > 0 ? producer->batches + (producer->batch_count - 1) : &none;
    slg_store_i64(at + SLG_PRODUCER_ID_AT, producer->id);
    slg_store_i16(at + SLG_PRODUCER_EPOCH_AT, producer->epoch);
    slg_store_i32(at + SLG_PRODUCER_LAST_SEQUENCE_AT, last->last_sequence);
    slg_store_i64(at + SLG_PRODUCER_LAST_OFFSET_AT, last->last_offset);
    slg_store_i32(at + SLG_PRODUCER_OFFSET_DELTA_AT, last->offset_delta);
    slg_store_i64(at + SLG_PRODUCER_TIMESTAMP_AT, producer->last_timestamp);
    slg_store_i32(at + SLG_PRODUCER_COORDINATOR_EPOCH_AT, producer->coordinator_epoch);
    slg_store_i64(at + SLG_PRODUCER_TXN_OFFSET_AT,
                  producer->in_txn ? producer->txn_first_offset : -1);
}

size_t slg_snapshot_size(const slg_producers *producers) {
    return SLG_SNAPSHOT_HEADER_SIZE + producers->producers.count * SLG_PRODUCER_ENTRY_SIZE;
}

slg_status slg_snapshot_write(const slg_producers *producers, uint8_t *data, slg_error *error) {
    const slg_producer_map *map = &producers->producers;
    const size_t buckets = buckets_of(map);
    uint64_t *order = malloc((map->count + 1) * sizeof *order);
    if (order == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, (int64_t)map->count, 0);
    }
    for (size_t i = 0; i < map->count; i++) {
        order[i] = (uint64_t)(slg_java_hash(map->all[i].id) & (buckets - 1)) << 32 | i;
    }
    qsort(order, map->count, sizeof *order, slg_by_number);
    for (size_t i = 0; i < map->count; i++) {
        write_entry(data + SLG_SNAPSHOT_HEADER_SIZE + i * SLG_PRODUCER_ENTRY_SIZE,
                    map->all + (order[i] & UINT32_MAX));
    }
    free(order);
    slg_store_u16(data, SLG_SNAPSHOT_VERSION);
    slg_store_u32(data + SLG_SNAPSHOT_COUNT_AT, (uint32_t)map->count);
    slg_store_u32(data + SLG_SNAPSHOT_CRC_AT,
                  slg_crc32c(slg_crc32c_best(), 0, data + SLG_SNAPSHOT_CRC_FROM,
                             slg_snapshot_size(producers) - SLG_SNAPSHOT_CRC_FROM));
    return SLG_OK;
}

bool slg_snapshot_is_sound(const uint8_t *data, size_t size, size_t *count) {
    if (size < SLG_SNAPSHOT_HEADER_SIZE || slg_load_u16(data) != SLG_SNAPSHOT_VERSION) {
        return false;
    }
    *count = slg_load_u32(data + SLG_SNAPSHOT_COUNT_AT);
    return *count == (size - SLG_SNAPSHOT_HEADER_SIZE) / SLG_PRODUCER_ENTRY_SIZE &&
           *count * SLG_PRODUCER_ENTRY_SIZE + SLG_SNAPSHOT_HEADER_SIZE == size &&
           slg_load_u32(data + SLG_SNAPSHOT_CRC_AT) == slg_crc32c(slg_crc32c_best(), 0,
                                                                  data + SLG_SNAPSHOT_CRC_FROM,
                                                                  size - SLG_SNAPSHOT_CRC_FROM);
}

slg_producer slg_snapshot_entry(const uint8_t *data, size_t number) {
    const uint8_t *at = data + SLG_SNAPSHOT_HEADER_SIZE + number * SLG_PRODUCER_ENTRY_SIZE;
    const int64_t last_offset = slg_load_i64(at + SLG_PRODUCER_LAST_OFFSET_AT);
    const int64_t first_offset = slg_load_i64(at + SLG_PRODUCER_TXN_OFFSET_AT);
    slg_producer producer = {
        .id = slg_load_i64(at + SLG_PRODUCER_ID_AT),
        .last_timestamp = slg_load_i64(at + SLG_PRODUCER_TIMESTAMP_AT),
        .coordinator_epoch = slg_load_i32(at + SLG_PRODUCER_COORDINATOR_EPOCH_AT),
        .epoch = slg_load_i16(at + SLG_PRODUCER_EPOCH_AT),
        .in_txn = first_offset >= 0,
        .txn_first_offset = first_offset >= 0 ? first_offset : 0};
    if (last_offset >= 0) {
        producer.batches[producer.batch_count++] =
            (slg_producer_batch){.last_offset = last_offset,
                                 .timestamp = producer.last_timestamp,
                                 .last_sequence = slg_load_i32(at + SLG_PRODUCER_LAST_SEQUENCE_AT),
                                 .offset_delta = slg_load_i32(at + SLG_PRODUCER_OFFSET_DELTA_AT)};
    }
    return producer;
}
