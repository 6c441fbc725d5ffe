#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "producers_internal.h"
#include "record_fields.h"
#include "seglog/file.h"

/* A marker's batch has 78 bytes. */
enum { SLOTS_MIN = 64, ENDED_MIN = 16, UNSORTED_MAX = 512, MARKER_BATCH_MAX = 256 };

/* ---- producers by id ----------------------------------------------------------------------- */

void slg_producer_map_free(slg_producer_map *map) {
    free(map->all);
    free(map->slots);
    *map = (slg_producer_map){0};
}

static size_t slot_of(const slg_producer_map *map, int64_t id) {
    /* Fibonacci hashing; ids come in runs, and the upper half spreads them. */
    const uint64_t hash = ((uint64_t)id ^ map->seed) * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(hash >> 32) & (map->slot_count - 1);
    while (map->slots[slot] != 0 && map->all[map->slots[slot] - 1].id != id) {
        slot = (slot + 1) & (map->slot_count - 1);
    }
    return slot;
}

void slg_producer_map_fill(slg_producer_map *map) {
    if (map->slot_count > 0) {
        memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    }
    for (size_t i = 0; i < map->count; i++) {
        map->slots[slot_of(map, map->all[i].id)] = (uint32_t)(i + 1);
    }
}

void slg_producer_map_clear(slg_producer_map *map) {
    /* A large append may have grown the span's table, in which a small one has one producer. */
    if (map->count == 1) {
        map->slots[slot_of(map, map->all[0].id)] = 0;
        map->count = 0;
    } else if (map->count > 0) {
        map->count = 0;
        slg_producer_map_fill(map);
    }
}

slg_status slg_producer_map_reserve(slg_producer_map *map, size_t more, slg_error *error) {
    /* At most half of the slots are taken. */
    size_t wanted = map->slot_count > 0 ? map->slot_count : SLOTS_MIN;
    while (wanted / 2 < map->count + more && wanted <= UINT32_MAX / 2) {
        wanted *= 2;
    }
    if (wanted != map->slot_count) {
        uint32_t *grown =
            wanted / 2 < map->count + more ? NULL : realloc(map->slots, wanted * sizeof *grown);
        if (grown == NULL) {
            return slg_fail(error, SLG_NO_MEMORY, 0, (int64_t)wanted, 0);
        }
        if (map->slots == NULL) {
            map->seed = (uintptr_t)grown; /* so that no ids are known to share a slot */
        }
        map->slots = grown;
        map->slot_count = wanted;
        slg_producer_map_fill(map);
    }
    return SLG_MAKE_ROOM(map->all, map->capacity, map->count, more, error);
}

slg_producer *slg_producer_map_find(const slg_producer_map *map, int64_t id) {
    if (map->slot_count == 0) {
        return NULL;
    }
    const uint32_t slot = map->slots[slot_of(map, id)];
    return slot == 0 ? NULL : map->all + (slot - 1);
}

slg_status slg_producer_map_get(slg_producer_map *map, int64_t id, slg_producer **found,
                                slg_error *error) {
    *found = slg_producer_map_find(map, id);
    if (*found != NULL) {
        return SLG_OK;
    }
    const slg_status status = slg_producer_map_reserve(map, 1, error);
    if (status == SLG_OK) {
        *found = map->all + map->count;
        **found =
            (slg_producer){.id = id, .last_timestamp = -1, .coordinator_epoch = -1, .epoch = -1};
        map->slots[slot_of(map, id)] = (uint32_t)++map->count;
    }
    return status;
}

void slg_producer_take_epoch(slg_producer *producer, int16_t epoch) {
    if (producer->epoch != epoch) {
        producer->epoch = epoch;
        producer->batch_count = 0;
    }
}

void slg_producer_add_batch(slg_producer *producer, const slg_producer_batch *batch) {
    if (producer->batch_count == SLG_PRODUCER_BATCHES) {
        memmove(producer->batches, producer->batches + 1,
                (SLG_PRODUCER_BATCHES - 1) * sizeof *batch);
        producer->batch_count--;
    }
    producer->batches[producer->batch_count++] = *batch;
}

slg_producer_batch slg_producer_batch_of(const slg_batch *batch) {
    return (slg_producer_batch){.last_offset = batch->last_offset,
                                .timestamp = batch->max_timestamp,
                                .last_sequence = slg_last_sequence(batch),
                                .offset_delta = slg_last_offset_delta(batch)};
}

void slg_producer_take_marker(slg_producer *producer, const slg_marker *marker) {
    slg_producer_take_epoch(producer, marker->producer_epoch);
    producer->coordinator_epoch = marker->coordinator_epoch;
    producer->last_timestamp = marker->timestamp;
    producer->in_txn = false;
}

/* ---- transactions -------------------------------------------------------------------------- */

/* The first of the sorted transactions whose first offset is not below the given one. */
static size_t lower_bound(const slg_txns *txns, int64_t first_offset) {
    size_t lo = txns->first;
    size_t hi = txns->sorted;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (txns->all[mid].first_offset < first_offset) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* The transaction with this first offset, ended or not, or the number of all. */
static size_t place_of(const slg_txns *txns, int64_t first_offset) {
    size_t at = lower_bound(txns, first_offset);
    if (at == txns->sorted || txns->all[at].first_offset != first_offset) {
        at = txns->sorted;
        while (at < txns->count && txns->all[at].first_offset != first_offset) {
            at++;
        }
    }
    return at;
}

static int by_first_offset(const void *left, const void *right) {
    const int64_t a = ((const slg_txn *)left)->first_offset;
    const int64_t b = ((const slg_txn *)right)->first_offset;
    return (a > b) - (a < b);
}

/* Merges from the end, so that a transaction moves once for many that were out of order. */
void slg_txns_sort(slg_txns *txns) {
    slg_txn rest[UNSORTED_MAX];
    size_t left = txns->sorted;
    size_t rest_left = txns->count - left;
    if (rest_left == 0) {
        return;
    }
    memcpy(rest, txns->all + left, rest_left * sizeof *rest);
    qsort(rest, rest_left, sizeof *rest, by_first_offset);
    for (size_t at = txns->count; rest_left > 0; at--) {
        const bool is_rest = left == txns->first ||
                             txns->all[left - 1].first_offset < rest[rest_left - 1].first_offset;
        txns->all[at - 1] = is_rest ? rest[--rest_left] : txns->all[--left];
    }
    txns->sorted = txns->count;
}

/* Removes the ended ones once they are the majority, so that each entry moves only a few times. */
static void compact(slg_txns *txns) {
    if (txns->ended < ENDED_MIN || txns->ended <= txns->count / 2) {
        return;
    }
    size_t kept = 0;
    slg_txns_sort(txns);
    for (size_t i = txns->first; i < txns->count; i++) {
        if (!txns->all[i].ended) {
            txns->all[kept++] = txns->all[i];
        }
    }
    txns->first = txns->ended = 0;
    txns->count = txns->sorted = kept;
}

slg_status slg_txns_reserve(slg_txns *txns, size_t more, slg_error *error) {
    return SLG_MAKE_ROOM(txns->all, txns->capacity, txns->count, more, error);
}

slg_status slg_txns_append(slg_txns *txns, const slg_txn *txn, slg_error *error) {
    const slg_status status = slg_txns_reserve(txns, 1, error);
    if (status == SLG_OK) {
        txns->all[txns->count++] = *txn;
    }
    return status;
}

slg_status slg_txns_put(slg_txns *txns, const slg_txn *txn, slg_error *error) {
    const size_t at = place_of(txns, txn->first_offset);
    if (at < txns->count) {
        txns->ended -= txns->all[at].ended;
        txns->all[at] = *txn;
        return SLG_OK;
    }
    const bool is_last = txns->sorted == txns->count &&
                         (at == txns->first || txns->all[at - 1].first_offset < txn->first_offset);
    const slg_status status = slg_txns_append(txns, txn, error);
    if (status == SLG_OK && is_last) {
        txns->sorted = txns->count;
    } else if (txns->count - txns->sorted == UNSORTED_MAX) {
        slg_txns_sort(txns);
    }
    return status;
}

slg_txn *slg_txns_find(const slg_txns *txns, int64_t first_offset) {
    const size_t at = place_of(txns, first_offset);
    return at < txns->count && !txns->all[at].ended ? txns->all + at : NULL;
}

static bool is_open(const slg_txn *txn, const int64_t *but) {
    return !txn->ended && (but == NULL || txn->producer_id != *but);
}

/* Of all producers but one, or of all. */
static const slg_txn *lowest(const slg_txns *txns, const int64_t *but) {
    const slg_txn *found = NULL;
    for (size_t i = txns->first; i < txns->sorted && found == NULL; i++) {
        found = is_open(txns->all + i, but) ? txns->all + i : NULL;
    }
    for (size_t i = txns->sorted; i < txns->count; i++) {
        if (is_open(txns->all + i, but) &&
            (found == NULL || txns->all[i].first_offset < found->first_offset)) {
            found = txns->all + i;
        }
    }
    return found;
}

const slg_txn *slg_txns_lowest(const slg_txns *txns) { return lowest(txns, NULL); }

const slg_txn *slg_txns_lowest_of_others(const slg_txns *txns, int64_t producer_id) {
    return lowest(txns, &producer_id);
}

void slg_txns_close(slg_txns *txns, int64_t first_offset) {
    txns->all[place_of(txns, first_offset)].ended = true;
    txns->ended++;
    while (txns->first < txns->sorted && txns->all[txns->first].ended) {
        txns->first++;
    }
    compact(txns);
}

/* ---- markers ------------------------------------------------------------------------------- */

bool slg_marker_parse(const slg_batch *batch, const uint8_t *data, slg_marker *marker) {
    slg_cursor c =
        slg_cursor_of(data + SLG_BATCH_HEADER_SIZE, (size_t)batch->size - SLG_BATCH_HEADER_SIZE);
    slg_record_fields record;
    int32_t length;
    if (batch->record_count != 1 || (batch->attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE ||
        !slg_read_varint(&c, &length) || length != (int64_t)slg_cursor_left(&c) ||
        slg_record_read(&c, &record) != SLG_FIELD_NONE || record.key_size != SLG_CONTROL_KEY_SIZE ||
        record.value_size < SLG_MARKER_SIZE || record.header_count != 0 ||
        slg_cursor_left(&c) != 0) {
        return false;
    }
    const int16_t kind = slg_load_i16(record.key + SLG_CONTROL_TYPE_AT);
    if (slg_load_i16(record.key + SLG_CONTROL_VERSION_AT) < 0 ||
        slg_load_i16(record.value + SLG_MARKER_VERSION_AT) < 0 ||
        (kind != SLG_CONTROL_ABORT && kind != SLG_CONTROL_COMMIT)) {
        return false;
    }
    *marker = (slg_marker){
        .offset = batch->base_offset,
        .position = batch->position,
        .producer_id = batch->producer_id,
        .timestamp = slg_record_timestamp(batch, record.timestamp_delta),
        .coordinator_epoch = slg_load_i32(record.value + SLG_MARKER_COORDINATOR_EPOCH_AT),
        .producer_epoch = batch->producer_epoch,
        .is_abort = kind == SLG_CONTROL_ABORT,
    };
    return true;
}

bool slg_marker_read(const slg_batch *batch, int fd, slg_marker *marker) {
    uint8_t data[MARKER_BATCH_MAX];
    return fd >= 0 && batch->size >= SLG_BATCH_HEADER_SIZE && batch->size <= MARKER_BATCH_MAX &&
           slg_pread_exact(fd, data, (size_t)batch->size, batch->position, NULL) == SLG_OK &&
           slg_marker_parse(batch, data, marker);
}
