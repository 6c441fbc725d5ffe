#include <stdlib.h>
#include <string.h>

#include "java.h"
#include "producers_internal.h"
#include "seglog/format.h"

void slg_producers_init(slg_producers *producers) {
    *producers = (slg_producers){.oldest_txn_timestamp = -1};
}

void slg_producers_free(slg_producers *producers) {
    slg_producer_map_free(&producers->producers);
    free(producers->ongoing.all);
    free(producers->unreplicated.all);
    free(producers->verifications);
    slg_producers_init(producers);
}

/* ---- the fold ------------------------------------------------------------------------------ */

/* The position at which the transaction begins is unknown. */
static slg_txn txn_of(int64_t producer_id, int64_t first_offset) {
    return (slg_txn){.first_offset = first_offset,
                     .producer_id = producer_id,
                     .last_offset = -1,
                     .segment_base = -1,
                     .position = -1};
}

slg_status slg_producers_load(slg_producers *producers, const slg_producer *producer,
                              slg_error *error) {
    slg_producer *known;
    const slg_status status =
        slg_producer_map_get(&producers->producers, producer->id, &known, error);
    if (status != SLG_OK) {
        return status;
    }
    *known = *producer;
    const slg_txn txn = txn_of(producer->id, producer->txn_first_offset);
    const slg_status put = producer->in_txn ? slg_txns_put(&producers->ongoing, &txn, error)
                                            : SLG_OK;
    slg_producers_note_oldest(producers);
    return put;
}

static slg_status apply_data(slg_producers *producers, const slg_batch *batch, slg_error *error) {
    const bool transactional = (batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) != 0;
    slg_producer *producer;
    if (!transactional) {
        /* Checked before a producer is created: a refused batch leaves no trace. */
        const slg_producer *known = slg_producers_find(producers, batch->producer_id);
        if (known != NULL && known->in_txn) {
            return slg_fail(error, SLG_TXN_STATE, batch->position, 1, 0);
        }
    }
    slg_status status =
        slg_producer_map_get(&producers->producers, batch->producer_id, &producer, error);
    if (status != SLG_OK) {
        return status;
    }
    const slg_producer_batch made = slg_producer_batch_of(batch);
    slg_producer_take_epoch(producer, batch->producer_epoch);
    slg_producer_add_batch(producer, &made);
    producer->last_timestamp = batch->max_timestamp;
    if (transactional && !producer->in_txn) {
        const slg_txn txn = txn_of(producer->id, batch->base_offset);
        producer->in_txn = true;
        producer->txn_first_offset = batch->base_offset;
        status = slg_txns_put(&producers->ongoing, &txn, error);
    }
    return status;
}

static slg_status fold(slg_producers *producers, int fd, const slg_batch *batches, size_t count,
                       size_t *taken, slg_marker *aborted, size_t room, size_t *aborted_count,
                       slg_error *error) {
    *aborted_count = 0;
    for (*taken = 0; *taken < count; ++*taken) {
        const slg_batch *batch = batches + *taken;
        slg_status status;
        slg_marker marker;
        if (batch->producer_id < 0 || slg_batch_is_legacy(batch)) {
            continue;
        }
        if ((batch->attributes & SLG_ATTRIBUTE_CONTROL) == 0) {
            status = apply_data(producers, batch, error);
        } else if (*aborted_count == room) {
            return SLG_FULL;
        } else if (!slg_marker_read(batch, fd, &marker)) {
            return SLG_MORE;
        } else {
            status = slg_producers_end(producers, &marker, error);
            if (status == SLG_TXN_NOT_STARTED) {
                return SLG_MORE; /* nothing has changed: the caller reads more of the batch */
            }
            if (status == SLG_OK && marker.ended && marker.is_abort) {
                aborted[(*aborted_count)++] = marker;
            }
        }
        if (status != SLG_OK) {
            return status;
        }
    }
    return SLG_OK;
}

slg_status slg_producers_apply(slg_producers *producers, int fd, const slg_batch *batches,
                               size_t count, size_t *taken, slg_marker *aborted, size_t room,
                               size_t *aborted_count, slg_error *error) {
    const slg_status status =
        fold(producers, fd, batches, count, taken, aborted, room, aborted_count, error);
    slg_producers_note_oldest(producers);
    return status;
}

slg_status slg_producers_complete_txn(slg_producers *producers, int64_t first_offset,
                                      int64_t last_offset, slg_error *error) {
    const slg_txn *open = slg_txns_find(&producers->ongoing, first_offset);
    if (open == NULL) {
        return slg_fail(error, SLG_TXN_NOT_STARTED, 0, 0, first_offset);
    }
    slg_txn ended = *open;
    ended.last_offset = last_offset;
    const slg_status status = slg_txns_put(&producers->unreplicated, &ended, error);
    if (status == SLG_OK) {
        slg_txns_close(&producers->ongoing, first_offset);
        slg_producers_note_oldest(producers);
    }
    return status;
}

slg_status slg_producers_end(slg_producers *producers, slg_marker *marker, slg_error *error) {
    const slg_producer *known = slg_producers_find(producers, marker->producer_id);
    marker->ended = known != NULL && known->in_txn;
    slg_status status = SLG_OK;
    if (marker->ended) {
        marker->first_offset = known->txn_first_offset;
        marker->last_stable_offset =
            slg_producers_last_stable(producers, marker->producer_id, marker->offset);
        status = slg_producers_complete_txn(producers, marker->first_offset, marker->offset, error);
    }
    slg_producer *producer;
    if (status == SLG_OK) {
        status = slg_producer_map_get(&producers->producers, marker->producer_id, &producer, error);
    }
    if (status == SLG_OK) {
        slg_producer_take_marker(producer, marker);
        slg_producers_note_oldest(producers);
    }
    return status;
}

slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id, slg_error *error) {
    slg_producer *producer;
    return slg_producer_map_get(&producers->producers, producer_id, &producer, error);
}

/* ---- queries and removals ------------------------------------------------------------------ */

const slg_producer *slg_producers_find(const slg_producers *producers, int64_t producer_id) {
    return slg_producer_map_find(&producers->producers, producer_id);
}

const slg_txn *slg_producers_first_unstable(const slg_producers *producers) {
    const slg_txn *undecided = slg_txns_lowest(&producers->ongoing);
    const slg_txn *ended = slg_txns_lowest(&producers->unreplicated);
    if (ended == NULL || (undecided != NULL && undecided->first_offset < ended->first_offset)) {
        return undecided;
    }
    return ended;
}

void slg_producers_note_oldest(slg_producers *producers) {
    const slg_txn *open = slg_txns_lowest(&producers->ongoing);
    const slg_producer *producer = open == NULL ? NULL
                                                : slg_producers_find(producers, open->producer_id);
    __atomic_store_n(&producers->oldest_txn_timestamp,
                     producer == NULL ? -1 : producer->last_timestamp, __ATOMIC_RELAXED);
}

int64_t slg_producers_oldest_txn_timestamp(const slg_producers *producers) {
    return __atomic_load_n(&producers->oldest_txn_timestamp, __ATOMIC_RELAXED);
}

int64_t slg_producers_last_stable(const slg_producers *producers, int64_t producer_id,
                                  int64_t marker_offset) {
    const slg_txn *other = slg_txns_lowest_of_others(&producers->ongoing, producer_id);
    return other != NULL ? other->first_offset : slg_java_add(marker_offset, 1);
}

void slg_producers_replicated(slg_producers *producers, int64_t high_watermark) {
    slg_txns *ended = &producers->unreplicated;
    size_t kept = 0;
    slg_txns_sort(ended);
    for (size_t i = 0; i < ended->count; i++) {
        if (ended->all[i].last_offset >= high_watermark) {
            ended->all[kept++] = ended->all[i];
        }
    }
    ended->count = ended->sorted = kept;
}

static bool is_idle(int64_t timestamp, int64_t now, int64_t idle) {
    return slg_java_subtract(now, timestamp) >= idle;
}

void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle) {
    slg_producer_map *map = &producers->producers;
    size_t kept = 0;
    for (size_t i = 0; i < map->count; i++) {
        if (map->all[i].in_txn || !is_idle(map->all[i].last_timestamp, now, idle)) {
            map->all[kept++] = map->all[i];
        }
    }
    map->count = kept;
    slg_producer_map_fill(map);
    kept = 0;
    for (size_t i = 0; i < producers->verification_count; i++) {
        if (!is_idle(producers->verifications[i].timestamp, now, idle)) {
            producers->verifications[kept++] = producers->verifications[i];
        }
    }
    producers->verification_count = kept;
}

void slg_producers_clear(slg_producers *producers) {
    slg_producer_map_clear(&producers->producers);
    slg_txns_clear(&producers->ongoing);
    slg_txns_clear(&producers->unreplicated);
    slg_producers_note_oldest(producers);
}

/* ---- verification of transactions ---------------------------------------------------------- */

static size_t place_of(const slg_producers *producers, int64_t producer_id) {
    size_t lo = 0;
    size_t hi = producers->verification_count;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (producers->verifications[mid].producer_id < producer_id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

const slg_verification *slg_producers_verification(const slg_producers *producers,
                                                   int64_t producer_id) {
    const size_t at = place_of(producers, producer_id);
    return at < producers->verification_count &&
                   producers->verifications[at].producer_id == producer_id
               ? producers->verifications + at
               : NULL;
}

slg_status slg_producers_verify(slg_producers *producers, const slg_verification *wanted,
                                const slg_verification **found, slg_error *error) {
    const size_t at = place_of(producers, wanted->producer_id);
    if (slg_producers_verification(producers, wanted->producer_id) == NULL) {
        const slg_status status = SLG_MAKE_ROOM(producers->verifications,
                                                producers->verification_capacity,
                                                producers->verification_count, 1, error);
        if (status != SLG_OK) {
            return status;
        }
        memmove(producers->verifications + at + 1, producers->verifications + at,
                (producers->verification_count - at) * sizeof *wanted);
        producers->verifications[at] = *wanted;
        producers->verification_count++;
    }
    slg_verification *entry = producers->verifications + at;
    if (wanted->epoch > entry->epoch ||
        (wanted->epoch == entry->epoch && wanted->lowest_sequence < entry->lowest_sequence)) {
        entry->epoch = wanted->epoch;
        entry->lowest_sequence = wanted->lowest_sequence;
    }
    *found = entry;
    return SLG_OK;
}

void slg_producers_drop_verification(slg_producers *producers, int64_t producer_id) {
    const slg_verification *found = slg_producers_verification(producers, producer_id);
    if (found != NULL) {
        const size_t at = (size_t)(found - producers->verifications);
        memmove(producers->verifications + at, found + 1,
                (--producers->verification_count - at) * sizeof *found);
    }
}
