#include <stdlib.h>

#include "java.h"
#include "producers_internal.h"
#include "seglog/format.h"

/* Kafka's "no sequence" and "no epoch". */
enum { NOTHING = -1 };

void slg_span_init(slg_span *span) { *span = (slg_span){0}; }

void slg_span_free(slg_span *span) {
    slg_producer_map_free(&span->changed);
    free(span->started.all);
    free(span->completed.all);
    free(span->notes);
    free(span->verified);
    free(span->order);
    slg_span_init(span);
}

void slg_span_continue(slg_span *span) {
    span->row = 0;
    span->verdict = SLG_APPEND_OK;
    span->note_count = 0;
}

void slg_span_begin(slg_span *span) {
    slg_span_continue(span);
    slg_producer_map_clear(&span->changed);
    span->started.count = span->completed.count = span->verified_count = 0;
}

/* The state for validating a batch: the log's state of its producer, and the changed copy. */
typedef struct batch_case {
    const slg_append_rules *rules;
    const slg_batch *batch;
    const slg_producer *current;            /* NULL: unknown producer */
    const slg_verification *verification;   /* from the beginning of the append; or NULL */
    slg_producer *changed;
} batch_case;

static slg_verdict refuse(slg_span *span, slg_verdict verdict, int64_t known) {
    span->known = known;
    return verdict;
}

/* Accepted, but noted. */
static slg_status note(slg_span *span, slg_verdict verdict, int64_t known,
                       int32_t coordinator_epoch, slg_error *error) {
    const slg_status status =
        SLG_MAKE_ROOM(span->notes, span->note_capacity, span->note_count, 1, error);
    if (status == SLG_OK) {
        span->notes[span->note_count++] = (slg_append_note){.row = span->row,
                                                            .verdict = verdict,
                                                            .known = known,
                                                            .coordinator_epoch = coordinator_epoch};
    }
    return status;
}

/* ---- data ---------------------------------------------------------------------------------- */

/* Kafka's decrementSequence, with Java's overflow. */
static int32_t first_sequence_of(const slg_producer_batch *batch) {
    const uint32_t difference = (uint32_t)batch->last_sequence - (uint32_t)batch->offset_delta;
    if (batch->last_sequence < batch->offset_delta) {
        return (int32_t)(difference + (uint32_t)INT32_MAX + 1U);
    }
    return (int32_t)difference;
}

/* The kept batch with exactly these sequences, or NULL. */
static const slg_producer_batch *find_duplicate(const slg_producer *producer,
                                                const slg_batch *batch) {
    if (producer->epoch != batch->producer_epoch) {
        return NULL;
    }
    const int32_t last_sequence = slg_producer_batch_of(batch).last_sequence;
    for (int i = 0; i < producer->batch_count; i++) {
        const slg_producer_batch *known = producer->batches + i;
        if (known->last_sequence == last_sequence &&
            first_sequence_of(known) == batch->base_sequence) {
            return known;
        }
    }
    return NULL;
}

static int32_t last_sequence_in(const slg_producer *producer) {
    return producer->batch_count > 0 ? producer->batches[producer->batch_count - 1].last_sequence
                                     : NOTHING;
}

static slg_verdict check_sequence(slg_span *span, const batch_case *one) {
    const slg_verification *verification = one->verification;
    const int32_t sequence = one->batch->base_sequence;
    const slg_producer *current = one->current;
    if (verification != NULL && verification->supports_epoch_bump && sequence != 0 &&
        (current == NULL || current->batch_count == 0)) {
        return refuse(span, SLG_APPEND_SEQUENCE_FIRST, 0);
    }
    if (verification != NULL && sequence > verification->lowest_sequence) {
        return refuse(span, SLG_APPEND_SEQUENCE_LOWEST, verification->lowest_sequence);
    }
    if (one->batch->producer_epoch != one->changed->epoch) {
        return sequence != 0 && one->changed->epoch != NOTHING
                   ? refuse(span, SLG_APPEND_SEQUENCE_EPOCH, one->changed->epoch)
                   : SLG_APPEND_OK;
    }
    /* Any sequence is accepted from a producer without remaining records. */
    if (current == NULL || current->epoch == NOTHING) {
        return SLG_APPEND_OK;
    }
    int32_t last = NOTHING;
    if (one->changed->batch_count > 0) {
        last = last_sequence_in(one->changed);
    } else if (one->batch->producer_epoch == current->epoch) {
        last = last_sequence_in(current);
    }
    const bool follows = sequence == (int64_t)last + 1 || (sequence == 0 && last == INT32_MAX);
    return follows ? SLG_APPEND_OK : refuse(span, SLG_APPEND_SEQUENCE, last);
}

static slg_status take_data(slg_span *span, const batch_case *one, slg_error *error) {
    const bool transactional = (one->batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) != 0;
    const int64_t first_offset = one->batch->base_offset;
    slg_producer *changed = one->changed;
    slg_status status = SLG_OK;
    if (one->batch->producer_epoch < changed->epoch) {
        if (one->rules->origin != SLG_ORIGIN_REPLICATION) {
            span->verdict = refuse(span, SLG_APPEND_EPOCH, changed->epoch);
            return SLG_OK;
        }
        status = note(span, SLG_APPEND_EPOCH, changed->epoch, 0, error);
    }
    if (one->rules->origin == SLG_ORIGIN_CLIENT) {
        span->verdict = check_sequence(span, one);
    }
    if (status != SLG_OK || span->verdict != SLG_APPEND_OK) {
        return status;
    }
    const slg_producer_batch made = slg_producer_batch_of(one->batch);
    slg_producer_take_epoch(changed, one->batch->producer_epoch);
    slg_producer_add_batch(changed, &made);
    changed->last_timestamp = one->batch->max_timestamp;
    if (changed->in_txn && !transactional) {
        span->verdict = SLG_APPEND_TXN_STATE;
    } else if (!changed->in_txn && transactional) {
        changed->in_txn = true;
        changed->txn_first_offset = first_offset;
        const int64_t base = one->rules->segment_base;
        const slg_txn txn = {
            .first_offset = first_offset,
            .producer_id = changed->id,
            .last_offset = -1,
            .segment_base = base,
            .position = base < 0 ? -1 : one->rules->segment_position + one->batch->position};
        status = slg_txns_append(&span->started, &txn, error);
    }
    return status;
}

/* ---- markers ------------------------------------------------------------------------------- */

static slg_status check_marker_epoch(slg_span *span, const batch_case *one, slg_error *error) {
    const int16_t epoch = one->batch->producer_epoch;
    const int16_t last = one->changed->epoch;
    const bool is_newer_wanted = one->rules->transaction_version >= 2;
    if (is_newer_wanted ? epoch > last : epoch >= last) {
        return SLG_OK;
    }
    /* A repeated marker: its transaction has ended, or the epochs are exhausted. */
    if (is_newer_wanted && epoch == last && (!one->changed->in_txn || epoch == INT16_MAX)) {
        return note(span, SLG_APPEND_MARKER, last, 0, error);
    }
    if (one->rules->origin == SLG_ORIGIN_REPLICATION) {
        return note(span, SLG_APPEND_EPOCH, last, 0, error);
    }
    span->verdict = refuse(span, SLG_APPEND_EPOCH, last);
    return SLG_OK;
}

static slg_status check_coordinator(slg_span *span, const batch_case *one, const slg_marker *marker,
                                    slg_error *error) {
    const int32_t last = one->changed->coordinator_epoch;
    if (last <= marker->coordinator_epoch) {
        return SLG_OK;
    }
    if (one->rules->origin == SLG_ORIGIN_REPLICATION) {
        return note(span, SLG_APPEND_COORDINATOR_EPOCH, last, marker->coordinator_epoch, error);
    }
    span->coordinator_epoch = marker->coordinator_epoch;
    span->verdict = refuse(span, SLG_APPEND_COORDINATOR_EPOCH, last);
    return SLG_OK;
}

static slg_status take_marker(slg_span *span, const batch_case *one, const slg_marker *marker,
                              slg_error *error) {
    slg_producer *changed = one->changed;
    if (one->rules->transaction_version == -1 && one->rules->origin != SLG_ORIGIN_REPLICATION) {
        span->verdict = SLG_APPEND_TXN_VERSION;
        return SLG_OK;
    }
    slg_status status = check_marker_epoch(span, one, error);
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
        status = check_coordinator(span, one, marker, error);
    }
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK && changed->in_txn) {
        const slg_txn done = {.first_offset = changed->txn_first_offset,
                              .producer_id = changed->id,
                              .last_offset = one->batch->base_offset,
                              .is_abort = marker->is_abort};
        status = slg_txns_append(&span->completed, &done, error);
    }
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
        slg_marker taken = *marker;
        taken.producer_epoch = one->batch->producer_epoch;
        slg_producer_take_marker(changed, &taken);
    }
    return status;
}

/* ---- one batch ----------------------------------------------------------------------------- */

static bool has_served(const slg_span *span, int64_t producer_id) {
    for (size_t i = 0; i < span->verified_count; i++) {
        if (span->verified[i] == producer_id) {
            return true;
        }
    }
    return false;
}

/* Whether a batch of a client or coordinator that would begin a transaction may do so. */
static slg_verdict check_transaction(slg_span *span, const batch_case *one) {
    const slg_producer *current = one->current;
    if ((one->batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) == 0 ||
        (current != NULL && current->in_txn && current->epoch == one->batch->producer_epoch)) {
        return SLG_APPEND_OK;
    }
    if (current != NULL && one->batch->producer_epoch < current->epoch) {
        return refuse(span, SLG_APPEND_TXN_EPOCH, current->epoch);
    }
    if (!one->rules->is_verified || (one->batch->attributes & SLG_ATTRIBUTE_CONTROL) != 0) {
        return SLG_APPEND_OK;
    }
    const bool is_known = one->rules->guard != 0 && one->verification != NULL &&
                          one->verification->guard == one->rules->guard &&
                          !has_served(span, one->batch->producer_id);
    return is_known ? SLG_APPEND_OK : SLG_APPEND_UNVERIFIED;
}

/* The copy of the state of the batch's producer. */
static slg_status find_changed(slg_span *span, batch_case *one, slg_error *error) {
    const int64_t id = one->batch->producer_id;
    one->changed = slg_producer_map_find(&span->changed, id);
    if (one->changed != NULL) {
        return SLG_OK;
    }
    const slg_status status = slg_producer_map_get(&span->changed, id, &one->changed, error);
    if (status == SLG_OK && one->current != NULL) {
        *one->changed = *one->current;
        one->changed->batch_count = 0;
    }
    return status;
}

/* A transactional batch consumes the verification. But a verification of version 2 with the epoch
 * of a marker already belongs to the next transaction. */
static slg_status use_verification(slg_span *span, const batch_case *one, slg_error *error) {
    const slg_verification *entry = one->verification;
    if (entry == NULL || (one->batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) == 0 ||
        has_served(span, entry->producer_id) ||
        (entry->supports_epoch_bump && (one->batch->attributes & SLG_ATTRIBUTE_CONTROL) != 0 &&
         one->batch->producer_epoch == entry->epoch)) {
        return SLG_OK;
    }
    const slg_status status =
        SLG_MAKE_ROOM(span->verified, span->verified_capacity, span->verified_count, 1, error);
    if (status == SLG_OK) {
        span->verified[span->verified_count++] = entry->producer_id;
    }
    return status;
}

static batch_case case_of(const slg_producers *producers, const slg_append_rules *rules,
                          const slg_batch *batch) {
    return (batch_case){.rules = rules,
                        .batch = batch,
                        .current = slg_producers_find(producers, batch->producer_id),
                        .verification = slg_producers_verification(producers, batch->producer_id)};
}

/* The common part of data batches and markers. */
static slg_status check_batch(slg_span *span, batch_case *one, slg_error *error) {
    const slg_origin origin = one->rules->origin;
    if (origin == SLG_ORIGIN_CLIENT && one->current != NULL) {
        const slg_producer_batch *duplicate = find_duplicate(one->current, one->batch);
        if (duplicate != NULL) {
            span->duplicate = *duplicate;
            span->verdict = SLG_APPEND_DUPLICATE;
            return SLG_OK;
        }
    }
    if (origin == SLG_ORIGIN_CLIENT || origin == SLG_ORIGIN_COORDINATOR) {
        span->verdict = check_transaction(span, one);
    }
    return span->verdict == SLG_APPEND_OK ? find_changed(span, one, error) : SLG_OK;
}

static bool parse_marker(const slg_append_rules *rules, const slg_batch *batch, const uint8_t *data,
                         size_t size, slg_marker *marker) {
    if (data == NULL) {
        return slg_marker_read(batch, rules->log_fd, marker);
    }
    return batch->position >= 0 && batch->size >= SLG_BATCH_HEADER_SIZE &&
           (uint64_t)batch->position <= size &&
           (uint64_t)batch->size <= size - (uint64_t)batch->position &&
           slg_marker_parse(batch, data + batch->position, marker);
}

static slg_status finish(slg_span *span, const batch_case *one, slg_status status,
                         slg_error *error) {
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
        status = use_verification(span, one, error);
    }
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
        span->row++;
    }
    return status;
}

slg_status slg_span_check(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                          const slg_batch *batches, size_t count, const uint8_t *data, size_t size,
                          slg_error *error) {
    slg_status status = SLG_OK;
    span->verdict = SLG_APPEND_OK;
    while (status == SLG_OK && span->verdict == SLG_APPEND_OK && span->row < count) {
        const slg_batch *batch = batches + span->row;
        slg_marker marker;
        if (batch->producer_id < 0 || slg_batch_is_legacy(batch)) {
            span->row++;
            continue;
        }
        batch_case one = case_of(producers, rules, batch);
        status = check_batch(span, &one, error);
        if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
            if ((batch->attributes & SLG_ATTRIBUTE_CONTROL) == 0) {
                status = take_data(span, &one, error);
            } else if (parse_marker(rules, batch, data, size, &marker)) {
                status = take_marker(span, &one, &marker, error);
            } else {
                span->verdict = SLG_APPEND_MARKER;
            }
        }
        status = finish(span, &one, status, error);
    }
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
        status = slg_producer_map_reserve(&producers->producers, span->changed.count, error);
    }
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK) {
        status = slg_txns_reserve(&producers->ongoing, span->started.count, error);
    }
    if (status == SLG_OK && span->verdict == SLG_APPEND_OK && span->changed.count > 1) {
        status = SLG_MAKE_ROOM(span->order, span->order_capacity, 0, span->changed.count, error);
    }
    return status;
}

slg_status slg_span_marker(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                           const slg_batch *batch, const slg_marker *marker, slg_error *error) {
    batch_case one = case_of(producers, rules, batch);
    span->verdict = SLG_APPEND_OK;
    slg_status status = find_changed(span, &one, error);
    if (status == SLG_OK && marker != NULL) {
        status = take_marker(span, &one, marker, error);
    }
    return finish(span, &one, status, error);
}

void slg_span_drop_verified(slg_span *span, slg_producers *producers) {
    for (size_t i = 0; i < span->verified_count; i++) {
        slg_producers_drop_verification(producers, span->verified[i]);
    }
    span->verified_count = 0;
}

/* ---- the commit ---------------------------------------------------------------------------- */

/*
 * Kafka keeps the producers of an append in a HashMap and commits them in its order: by bucket, the
 * newest of a bucket first, because HashMap.computeIfAbsent puts a new key first. This determines
 * the order of new producers in a snapshot, and which transaction is kept if two begin at the same
 * offset.
 */
static uint64_t rank_of(const slg_producer_map *changed, size_t buckets, size_t place) {
    const uint64_t bucket = slg_java_hash(changed->all[place].id) & (buckets - 1);
    return bucket << 32 | (UINT32_MAX - place);
}

static size_t place_of(uint64_t rank) { return UINT32_MAX - (size_t)(rank & UINT32_MAX); }

/* A map of fewer than 64 buckets also grows when one of them gets an eighth key. */
static size_t buckets_of(const slg_producer_map *changed) {
    size_t buckets = 16;
    for (size_t i = 0; i < changed->count; i++) {
        size_t held = 0;
        if (i > buckets / 4 * 3) {
            buckets *= 2;
        }
        for (size_t j = 0; buckets < 64 && j < i; j++) {
            held += ((slg_java_hash(changed->all[i].id) ^ slg_java_hash(changed->all[j].id)) &
                     (buckets - 1)) == 0;
        }
        if (held >= 7) {
            buckets *= 2;
        }
    }
    return buckets;
}

static int by_rank(const void *left, const void *right) {
    const slg_txn *a = left;
    const slg_txn *b = right;
    return (a->last_offset > b->last_offset) - (a->last_offset < b->last_offset);
}

static void make_order(slg_span *span) {
    const slg_producer_map *changed = &span->changed;
    const size_t buckets = buckets_of(changed);
    for (size_t i = 0; i < changed->count; i++) {
        span->order[i] = rank_of(changed, buckets, i);
    }
    qsort(span->order, changed->count, sizeof *span->order, slg_by_number);
    if (span->started.count < 2) {
        return;
    }
    slg_txn *started = span->started.all;
    for (size_t i = 0; i < span->started.count; i++) {
        const slg_producer *one = slg_producer_map_find(changed, started[i].producer_id);
        started[i].last_offset = (int64_t)rank_of(changed, buckets, (size_t)(one - changed->all));
    }
    qsort(started, span->started.count, sizeof *started, by_rank);
    for (size_t i = 0; i < span->started.count; i++) {
        started[i].last_offset = -1;
    }
}

static void take_over(slg_producer_map *producers, const slg_producer *changed) {
    slg_producer *producer;
    const slg_status status = slg_producer_map_get(producers, changed->id, &producer, NULL);
    if (status != SLG_OK) {
        return; /* not reached: slg_span_check has made room */
    }
    slg_producer_take_epoch(producer, changed->epoch);
    for (int i = 0; i < changed->batch_count; i++) {
        slg_producer_add_batch(producer, changed->batches + i);
    }
    producer->coordinator_epoch = changed->coordinator_epoch;
    producer->last_timestamp = changed->last_timestamp;
    producer->in_txn = changed->in_txn;
    producer->txn_first_offset = changed->txn_first_offset;
}

void slg_span_commit(slg_span *span, slg_producers *producers) {
    const slg_producer_map *changed = &span->changed;
    if (changed->count > 1) {
        make_order(span);
    }
    for (size_t i = 0; i < changed->count; i++) {
        const size_t at = changed->count > 1 ? place_of(span->order[i]) : 0;
        take_over(&producers->producers, changed->all + at);
    }
    for (size_t i = 0; i < span->started.count; i++) {
        (void)slg_txns_put(&producers->ongoing, span->started.all + i, NULL);
    }
    slg_producers_note_oldest(producers);
    slg_span_drop_verified(span, producers);
}
