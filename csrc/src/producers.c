#include "seglog/producers.h"

#include <stdlib.h>
#include <string.h>

#include "seglog/file.h"
#include "seglog/format.h"
#include "seglog/wire.h"

/* A marker's batch has 78 bytes. */
enum { SLOTS_MIN = 64, ROOM_MIN = 16, MARKER_BATCH_MAX = 256 };

void slg_producers_init(slg_producers *producers) { *producers = (slg_producers){0}; }

void slg_producers_free(slg_producers *producers) {
    free(producers->all);
    free(producers->slots);
    free(producers->ongoing.all);
    free(producers->unreplicated.all);
    free(producers->deferred.all);
    slg_producers_init(producers);
}

/* Room for one more; a capacity doubles. */
static slg_status make_room(void **data, size_t *capacity, size_t count, size_t width,
                            slg_error *error) {
    if (count < *capacity) {
        return SLG_OK;
    }
    const size_t wanted = *capacity > 0 ? 2 * *capacity : ROOM_MIN;
    void *grown = wanted > SIZE_MAX / width ? NULL : realloc(*data, wanted * width);
    if (grown == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, (int64_t)wanted, 0);
    }
    *data = grown;
    *capacity = wanted;
    return SLG_OK;
}

/* ---- producers by id ----------------------------------------------------------------------- */

static size_t slot_of(const slg_producers *producers, int64_t id) {
    /* Fibonacci hashing; ids come in runs, and the upper half spreads them. */
    const uint64_t hash = (uint64_t)id * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(hash >> 32) & (producers->slot_count - 1);
    while (producers->slots[slot] != 0 && producers->all[producers->slots[slot] - 1].id != id) {
        slot = (slot + 1) & (producers->slot_count - 1);
    }
    return slot;
}

static void fill_slots(slg_producers *producers) {
    memset(producers->slots, 0, producers->slot_count * sizeof *producers->slots);
    for (size_t i = 0; i < producers->count; i++) {
        producers->slots[slot_of(producers, producers->all[i].id)] = (uint32_t)(i + 1);
    }
}

/* At most half of the slots are taken. */
static slg_status make_slots(slg_producers *producers, slg_error *error) {
    if (2 * (producers->count + 1) <= producers->slot_count) {
        return SLG_OK;
    }
    const size_t wanted = producers->slot_count > 0 ? 2 * producers->slot_count : SLOTS_MIN;
    uint32_t *grown = producers->count >= UINT32_MAX / 2
                          ? NULL : realloc(producers->slots, wanted * sizeof *grown);
    if (grown == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, (int64_t)wanted, 0);
    }
    producers->slots = grown;
    producers->slot_count = wanted;
    fill_slots(producers);
    return SLG_OK;
}

/* The producer of an id, made where there is none; good until the next one is made. */
static slg_status producer_of(slg_producers *producers, int64_t id, slg_producer **found,
                              slg_error *error) {
    slg_status status = make_slots(producers, error);
    if (status != SLG_OK) {
        return status;
    }
    const size_t slot = slot_of(producers, id);
    if (producers->slots[slot] == 0) {
        void *all = producers->all;
        status = make_room(&all, &producers->capacity, producers->count, sizeof **found, error);
        if (status != SLG_OK) {
            return status;
        }
        producers->all = all;
        producers->all[producers->count] = (slg_producer){
            .id = id, .last_timestamp = -1, .coordinator_epoch = -1, .epoch = -1};
        producers->slots[slot] = (uint32_t)++producers->count;
    }
    *found = producers->all + (producers->slots[slot] - 1);
    return SLG_OK;
}

static const slg_producer *known_producer(const slg_producers *producers, int64_t id) {
    if (producers->slot_count == 0) {
        return NULL;
    }
    const uint32_t slot = producers->slots[slot_of(producers, id)];
    return slot == 0 ? NULL : producers->all + (slot - 1);
}

static void take_epoch(slg_producer *producer, int16_t epoch) {
    if (producer->epoch != epoch) {
        producer->epoch = epoch;
        producer->batch_count = 0;
    }
}

/* ---- transactions -------------------------------------------------------------------------- */

/* The first of the transactions from `first` on whose first offset is not below. */
static size_t lower_bound(const slg_txns *txns, int64_t first_offset) {
    size_t lo = txns->first;
    size_t hi = txns->count;
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

/* Drops the ended ones when they are most of all, so that each is moved a few times at most. */
static void compact(slg_txns *txns) {
    if (txns->ended < ROOM_MIN || txns->ended <= txns->count / 2) {
        return;
    }
    size_t kept = 0;
    for (size_t i = txns->first; i < txns->count; i++) {
        if (!txns->all[i].ended) {
            txns->all[kept++] = txns->all[i];
        }
    }
    txns->first = txns->ended = 0;
    txns->count = kept;
}

static slg_status add_txn(slg_txns *txns, size_t at, const slg_txn *txn, slg_error *error) {
    void *all = txns->all;
    const slg_status status =
        make_room(&all, &txns->capacity, txns->count, sizeof *txn, error);
    if (status != SLG_OK) {
        return status;
    }
    txns->all = all;
    memmove(txns->all + at + 1, txns->all + at, (txns->count - at) * sizeof *txn);
    txns->all[at] = *txn;
    txns->count++;
    return SLG_OK;
}

static bool is_first_offset(const slg_txns *txns, size_t at, int64_t first_offset) {
    return at < txns->count && txns->all[at].first_offset == first_offset;
}

/* Kafka knows an open transaction by its first offset alone: a second one takes its place. */
static slg_status open_txn(slg_txns *txns, int64_t producer_id, int64_t first_offset,
                           slg_error *error) {
    const slg_txn txn = {.first_offset = first_offset, .producer_id = producer_id};
    const size_t at = lower_bound(txns, first_offset);
    if (!is_first_offset(txns, at, first_offset)) {
        return add_txn(txns, at, &txn, error);
    }
    txns->ended -= txns->all[at].ended;
    txns->all[at] = txn;
    return SLG_OK;
}

/* The first open transaction of another producer, or NULL. */
static const slg_txn *first_of_others(const slg_txns *txns, int64_t producer_id) {
    for (size_t i = txns->first; i < txns->count; i++) {
        if (!txns->all[i].ended && txns->all[i].producer_id != producer_id) {
            return txns->all + i;
        }
    }
    return NULL;
}

static bool is_open(const slg_txns *txns, int64_t first_offset) {
    const size_t at = lower_bound(txns, first_offset);
    return is_first_offset(txns, at, first_offset) && !txns->all[at].ended;
}

/* One that is open. */
static void close_txn(slg_txns *txns, int64_t first_offset) {
    txns->all[lower_bound(txns, first_offset)].ended = true;
    txns->ended++;
    while (txns->first < txns->count && txns->all[txns->first].ended) {
        txns->first++;
    }
    compact(txns);
}

/* ---- the fold ------------------------------------------------------------------------------ */

slg_status slg_producers_load(slg_producers *producers, const slg_producer *producer,
                              slg_error *error) {
    slg_producer *known;
    const slg_status status = producer_of(producers, producer->id, &known, error);
    if (status != SLG_OK) {
        return status;
    }
    *known = *producer;
    return producer->in_txn ? open_txn(&producers->ongoing, producer->id,
                                       producer->txn_first_offset, error)
                            : SLG_OK;
}

static void add_batch(slg_producer *producer, const slg_producer_batch *batch) {
    if (producer->batch_count == SLG_PRODUCER_BATCHES) {
        memmove(producer->batches, producer->batches + 1,
                (SLG_PRODUCER_BATCHES - 1) * sizeof *batch);
        producer->batch_count--;
    }
    producer->batches[producer->batch_count++] = *batch;
}

/* Kafka's incrementSequence: 2^31 - 1 is followed by 0, and a negative delta wraps like Java. */
static int32_t last_sequence_of(const slg_batch *batch, int32_t delta) {
    const int32_t base = batch->base_sequence;
    if (base == -1) {
        return -1;
    }
    /* Of numbers that no producer sends, what Java's ints make of them. */
    if (base > (int32_t)((uint32_t)INT32_MAX - (uint32_t)delta)) {
        return (int32_t)((uint32_t)delta - ((uint32_t)INT32_MAX - (uint32_t)base) - 1U);
    }
    return (int32_t)((uint32_t)base + (uint32_t)delta);
}

static slg_status apply_data(slg_producers *producers, const slg_batch *batch, slg_error *error) {
    const bool transactional = (batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) != 0;
    const int32_t delta = (int32_t)((uint64_t)batch->last_offset - (uint64_t)batch->base_offset);
    slg_producer *producer;
    if (!transactional) {
        /* Asked before a producer is made: nothing of a refused batch is kept. */
        const slg_producer *known = known_producer(producers, batch->producer_id);
        if (known != NULL && known->in_txn) {
            return slg_fail(error, SLG_TXN_STATE, batch->position, 1, 0);
        }
    }
    slg_status status = producer_of(producers, batch->producer_id, &producer, error);
    if (status != SLG_OK) {
        return status;
    }
    take_epoch(producer, batch->producer_epoch);
    add_batch(producer, &(slg_producer_batch){
        .last_offset = batch->last_offset, .timestamp = batch->max_timestamp,
        .last_sequence = last_sequence_of(batch, delta), .offset_delta = delta});
    producer->last_timestamp = batch->max_timestamp;
    if (transactional && !producer->in_txn) {
        producer->in_txn = true;
        producer->txn_first_offset = batch->base_offset;
        status = open_txn(&producers->ongoing, producer->id, batch->base_offset, error);
    }
    return status;
}

/*
 * The marker in a control batch, if it is one of the usual form: one record, not compressed, an
 * abort or a commit and no headers. Everything else is left to a parser that knows all of Kafka's
 * ways to refuse it.
 */
static bool parse_marker(const slg_batch *batch, const uint8_t *data, slg_marker *marker) {
    slg_cursor c = slg_cursor_of(data + SLG_BATCH_HEADER_SIZE,
                                 (size_t)batch->size - SLG_BATCH_HEADER_SIZE);
    const uint8_t *key;
    const uint8_t *value;
    int64_t timestamp_delta;
    int32_t length, offset_delta, key_size, value_size, headers;
    int8_t attributes;
    if (batch->record_count != 1 || (batch->attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE ||
        !slg_read_varint(&c, &length) || length != (int64_t)slg_cursor_left(&c) ||
        !slg_read_i8(&c, &attributes) || !slg_read_varlong(&c, &timestamp_delta) ||
        !slg_read_varint(&c, &offset_delta) ||
        !slg_read_varint(&c, &key_size) || key_size != SLG_CONTROL_KEY_SIZE ||
        !slg_take(&c, key_size, &key) ||
        !slg_read_varint(&c, &value_size) || value_size < SLG_MARKER_SIZE ||
        !slg_take(&c, value_size, &value) ||
        !slg_read_varint(&c, &headers) || headers != 0 || slg_cursor_left(&c) != 0) {
        return false;
    }
    const int16_t kind = slg_load_i16(key + SLG_CONTROL_TYPE_AT);
    if (slg_load_i16(key + SLG_CONTROL_VERSION_AT) < 0 ||
        slg_load_i16(value + SLG_MARKER_VERSION_AT) < 0 ||
        (kind != SLG_CONTROL_ABORT && kind != SLG_CONTROL_COMMIT)) {
        return false;
    }
    *marker = (slg_marker){
        .offset = batch->base_offset,
        .position = batch->position,
        .producer_id = batch->producer_id,
        .timestamp = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0
                         ? batch->max_timestamp
                         : (int64_t)((uint64_t)batch->base_timestamp + (uint64_t)timestamp_delta),
        .coordinator_epoch = slg_load_i32(value + SLG_MARKER_COORDINATOR_EPOCH_AT),
        .producer_epoch = batch->producer_epoch,
        .is_abort = kind == SLG_CONTROL_ABORT,
    };
    return true;
}

static bool read_marker(int fd, const slg_batch *batch, slg_marker *marker) {
    uint8_t data[MARKER_BATCH_MAX];
    return fd >= 0 && batch->size >= SLG_BATCH_HEADER_SIZE && batch->size <= MARKER_BATCH_MAX &&
           slg_pread_exact(fd, data, (size_t)batch->size, batch->position, NULL) == SLG_OK &&
           parse_marker(batch, data, marker);
}

slg_status slg_producers_apply(slg_producers *producers, int fd, const slg_batch *batches,
                               size_t count, size_t *taken, slg_marker *aborted, size_t room,
                               size_t *aborted_count, slg_error *error) {
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
        } else if (!read_marker(fd, batch, &marker)) {
            return SLG_MORE;
        } else {
            status = slg_producers_end(producers, &marker, error);
            if (status == SLG_TXN_NOT_STARTED) {
                return SLG_MORE; /* and it has changed nothing: the caller tells more about it */
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

/* The end of a transaction that is open. */
static slg_status complete(slg_producers *producers, const slg_txn *done, slg_error *error) {
    const slg_status status =
        add_txn(&producers->unreplicated, producers->unreplicated.count, done, error);
    if (status == SLG_OK) {
        close_txn(&producers->ongoing, done->first_offset);
    }
    return status;
}

void slg_producers_defer(slg_producers *producers) {
    producers->is_deferred = true;
    producers->deferred.count = 0;
}

slg_status slg_producers_complete(slg_producers *producers, slg_txn *failed, slg_error *error) {
    slg_status status = SLG_OK;
    producers->is_deferred = false;
    for (size_t i = 0; status == SLG_OK && i < producers->deferred.count; i++) {
        const slg_txn *done = producers->deferred.all + i;
        if (is_open(&producers->ongoing, done->first_offset)) {
            status = complete(producers, done, error);
        } else {
            *failed = *done;
            status = slg_fail(error, SLG_TXN_NOT_STARTED, 0, 0, done->first_offset);
        }
    }
    return status;
}

slg_status slg_producers_end(slg_producers *producers, slg_marker *marker, slg_error *error) {
    slg_txns *ongoing = &producers->ongoing;
    const slg_producer *known = known_producer(producers, marker->producer_id);
    marker->ended = known != NULL && known->in_txn;
    if (marker->ended) {
        marker->first_offset = known->txn_first_offset;
        const slg_txn *other = first_of_others(ongoing, marker->producer_id);
        marker->last_stable_offset =
            other != NULL ? other->first_offset : (int64_t)((uint64_t)marker->offset + 1U);
        if (!producers->is_deferred && !is_open(ongoing, marker->first_offset)) {
            return slg_fail(error, SLG_TXN_NOT_STARTED, marker->position, 0,
                            marker->first_offset);
        }
        const slg_txn done = {.first_offset = marker->first_offset, .last_offset = marker->offset,
                              .producer_id = marker->producer_id, .ended = true,
                              .is_abort = marker->is_abort};
        const slg_status status =
            producers->is_deferred
                ? add_txn(&producers->deferred, producers->deferred.count, &done, error)
                : complete(producers, &done, error);
        if (status != SLG_OK) {
            return status;
        }
    }
    slg_producer *producer;
    const slg_status status = producer_of(producers, marker->producer_id, &producer, error);
    if (status != SLG_OK) {
        return status;
    }
    take_epoch(producer, marker->producer_epoch);
    producer->coordinator_epoch = marker->coordinator_epoch;
    producer->last_timestamp = marker->timestamp;
    producer->in_txn = false;
    return SLG_OK;
}

slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id, slg_error *error) {
    slg_producer *producer;
    return producer_of(producers, producer_id, &producer, error);
}

/* ---- questions and cuts -------------------------------------------------------------------- */

bool slg_producers_first_unstable(const slg_producers *producers, int64_t *offset) {
    const slg_txns *open = &producers->ongoing;
    const slg_txns *ended = &producers->unreplicated;
    bool found = open->first < open->count;
    if (found) {
        *offset = open->all[open->first].first_offset;
    }
    for (size_t i = 0; i < ended->count; i++) {
        if (!found || ended->all[i].first_offset < *offset) {
            *offset = ended->all[i].first_offset;
            found = true;
        }
    }
    return found;
}

void slg_producers_replicated(slg_producers *producers, int64_t high_watermark) {
    slg_txns *ended = &producers->unreplicated;
    size_t kept = 0;
    for (size_t i = 0; i < ended->count; i++) {
        if (ended->all[i].last_offset >= high_watermark) {
            ended->all[kept++] = ended->all[i];
        }
    }
    ended->count = kept;
}

void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle) {
    size_t kept = 0;
    for (size_t i = 0; i < producers->count; i++) {
        const slg_producer *one = producers->all + i;
        /* Wraps as in Java: a timestamp may be any number. */
        const int64_t since = (int64_t)((uint64_t)now - (uint64_t)one->last_timestamp);
        if (one->in_txn || since < idle) {
            producers->all[kept++] = *one;
        }
    }
    producers->count = kept;
    if (producers->slot_count > 0) {
        fill_slots(producers);
    }
}
