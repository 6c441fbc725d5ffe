/* The fold of batches into producers: queues, transactions, markers from a file. */
#define _POSIX_C_SOURCE 200809L
#include "build.h"

#include "seglog/producers.h"

enum { MANY = 3000 };

static slg_batch data_of(int64_t offset, int64_t producer_id, int16_t epoch, bool transactional) {
    return (slg_batch){.base_offset = offset,
                       .last_offset = offset,
                       .max_timestamp = offset,
                       .producer_id = producer_id,
                       .producer_epoch = epoch,
                       .magic = 2,
                       .attributes = transactional ? SLG_ATTRIBUTE_TRANSACTIONAL : 0};
}

static slg_status apply(slg_producers *producers, const slg_batch *batches, size_t count,
                        size_t *taken) {
    slg_error error = {0};
    size_t aborted;
    return slg_producers_apply(producers, -1, batches, count, taken, NULL, 0, &aborted, &error);
}

static slg_status end(slg_producers *producers, slg_marker *marker, int64_t producer_id,
                      int64_t offset) {
    slg_error error = {0};
    *marker = (slg_marker){.producer_id = producer_id, .offset = offset, .timestamp = 9};
    return slg_producers_end(producers, marker, &error);
}

static void test_queue(void) {
    slg_producers producers;
    slg_batch batches[8];
    size_t taken;
    slg_producers_init(&producers);
    for (int n = 0; n < 8; n++) {
        batches[n] = data_of(n, 7, 0, false);
    }
    CHECK_EQ(apply(&producers, batches, 8, &taken), SLG_OK);
    CHECK_EQ(taken, 8);
    CHECK_EQ(producers.producers.count, 1);
    CHECK_EQ(producers.producers.all[0].batch_count, SLG_PRODUCER_BATCHES);
    CHECK_EQ(producers.producers.all[0].batches[0].last_offset, 3);
    batches[0].producer_epoch = 1;
    CHECK_EQ(apply(&producers, batches, 1, &taken), SLG_OK);
    CHECK_EQ(producers.producers.all[0].batch_count, 1);
    slg_producers_free(&producers);
}

/* Every sequence and delta: no overflow, and Kafka's wrap for the sound ones. */
static void test_sequences(void) {
    const int32_t numbers[] = {INT32_MIN, -2, -1, 0, 1, 5, INT32_MAX - 1, INT32_MAX};
    const size_t count = sizeof numbers / sizeof *numbers;
    slg_producers producers;
    size_t taken;
    slg_producers_init(&producers);
    for (size_t i = 0; i < count * count; i++) {
        slg_batch batch = data_of(0, 1, 0, false);
        batch.base_sequence = numbers[i / count];
        batch.last_offset = numbers[i % count];
        CHECK_EQ(apply(&producers, &batch, 1, &taken), SLG_OK);
        const slg_producer *one = producers.producers.all;
        const int32_t found = one->batches[one->batch_count - 1].last_sequence;
        if (batch.base_sequence >= 0 && batch.last_offset >= 0) {
            CHECK_EQ(found, ((int64_t)batch.base_sequence + batch.last_offset) & INT32_MAX);
        } else if (batch.base_sequence == -1) {
            CHECK_EQ(found, -1);
        }
    }
    slg_producers_free(&producers);
}

static void test_transactions(void) {
    slg_producers producers;
    slg_marker marker;
    size_t taken;
    slg_producers_init(&producers);
    CHECK(slg_producers_first_unstable(&producers) == NULL);
    for (int64_t n = 0; n < MANY; n++) {
        const slg_batch batch = data_of(n, n, 0, true);
        CHECK_EQ(apply(&producers, &batch, 1, &taken), SLG_OK);
    }
    const slg_batch plain = data_of(MANY, 5, 0, false);
    CHECK_EQ(apply(&producers, &plain, 1, &taken), SLG_TXN_STATE);
    /* Every third, from the back: those behind it stay, and tell the last stable offset. */
    for (int64_t n = MANY - 1; n >= 0; n -= 3) {
        CHECK_EQ(end(&producers, &marker, n, 2 * MANY + n), SLG_OK);
        CHECK(marker.ended && marker.first_offset == n);
        CHECK_EQ(marker.last_stable_offset, n == 0 ? 1 : 0);
    }
    CHECK_EQ(end(&producers, &marker, MANY - 1, 4 * MANY), SLG_OK);
    CHECK(!marker.ended);
    for (int64_t n = 0; n < MANY; n++) {
        CHECK_EQ(end(&producers, &marker, n, 5 * MANY + n), SLG_OK);
    }
    CHECK(slg_producers_first_unstable(&producers)->first_offset == 0);
    slg_producers_replicated(&producers, INT64_MAX);
    CHECK(slg_producers_first_unstable(&producers) == NULL);
    slg_producers_expire(&producers, 1000, 1000);
    CHECK_EQ(producers.producers.count, MANY);
    slg_producers_expire(&producers, 1009, 1000);
    CHECK_EQ(producers.producers.count, 0);
    slg_producers_free(&producers);
}

/* The lowest first offset that a plain search finds, -1 for none. */
static int64_t lowest_of(const int64_t *markers, int64_t high_watermark) {
    for (int64_t n = 0; n < MANY; n++) {
        if (markers[n] < 0 || markers[n] >= high_watermark) {
            return n;
        }
    }
    return -1;
}

static void shuffle(int64_t *order, uint64_t *state) {
    for (int64_t n = MANY - 1; n > 0; n--) {
        const int64_t other = (int64_t)(random_next(state) % (uint64_t)n);
        const int64_t one = order[n];
        order[n] = order[other];
        order[other] = one;
    }
}

/* Transactions begin and end in any order, and some are replicated meanwhile. */
static void test_any_order(void) {
    static int64_t order[MANY], markers[MANY]; /* of the transaction at each offset, -1 */
    slg_producers producers;
    slg_marker marker;
    slg_error error;
    size_t taken;
    uint64_t state = 3;
    int64_t high_watermark = 0, lowest = MANY;
    slg_producers_init(&producers);
    for (int64_t n = 0; n < MANY; n++) {
        order[n] = n;
        markers[n] = -1;
    }
    shuffle(order, &state);
    for (int64_t n = 0; n < MANY; n++) {
        const slg_batch batch = data_of(order[n], order[n], 0, true);
        CHECK_EQ(apply(&producers, &batch, 1, &taken), SLG_OK);
        lowest = order[n] < lowest ? order[n] : lowest;
        CHECK_EQ(slg_producers_first_unstable(&producers)->first_offset, lowest);
    }
    shuffle(order, &state);
    for (int64_t n = 0; n < MANY; n++) {
        CHECK_EQ(end(&producers, &marker, order[n], MANY + n), SLG_OK);
        markers[order[n]] = MANY + n;
        const int64_t open = lowest_of(markers, INT64_MAX);
        CHECK_EQ(marker.first_offset, order[n]);
        CHECK_EQ(marker.last_stable_offset, open < 0 ? MANY + n + 1 : open);
        if (random_next(&state) % 500 == 0) {
            high_watermark = MANY + n - 200 - (int64_t)(random_next(&state) % 200);
            slg_producers_replicated(&producers, high_watermark);
        }
        const slg_txn *first = slg_producers_first_unstable(&producers);
        CHECK_EQ(first == NULL ? -1 : first->first_offset, lowest_of(markers, high_watermark));
    }
    /* A first offset that ends again replaces the one before, in order or not. */
    for (int64_t n = 0; n < 3; n++) {
        const slg_batch batch = data_of(order[MANY - 1 - n], n, 0, true);
        const size_t count = producers.unreplicated.count;
        CHECK_EQ(apply(&producers, &batch, 1, &taken), SLG_OK);
        CHECK_EQ(slg_producers_complete_txn(&producers, batch.base_offset, 5 * MANY, &error),
                 SLG_OK);
        CHECK_EQ(producers.unreplicated.count, count);
    }
    slg_producers_replicated(&producers, 5 * MANY);
    CHECK_EQ(producers.unreplicated.count, 3);
    slg_producers_replicated(&producers, INT64_MAX);
    CHECK(slg_producers_first_unstable(&producers) == NULL);
    slg_producers_free(&producers);
}

static void test_one_first_offset_twice(void) {
    slg_producers producers;
    slg_marker marker;
    slg_error error;
    slg_producers_init(&producers);
    const int64_t ids[] = {7, 1, 2}, offsets[] = {5, 3, 3};
    for (size_t n = 0; n < 3; n++) {
        const slg_producer one = {.id = ids[n], .in_txn = 1, .txn_first_offset = offsets[n]};
        CHECK_EQ(slg_producers_load(&producers, &one, &error), SLG_OK);
    }
    CHECK_EQ(producers.ongoing.count, 2);
    CHECK_EQ(slg_producers_first_unstable(&producers)->producer_id, 2);
    CHECK_EQ(end(&producers, &marker, 1, 4), SLG_OK);
    CHECK_EQ(end(&producers, &marker, 2, 5), SLG_TXN_NOT_STARTED);
    CHECK_EQ(producers.producers.all[2].in_txn, 1);
    CHECK_EQ(end(&producers, &marker, 7, 6), SLG_OK);
    slg_producers_free(&producers);
}

/* The golden marker in a file, with every byte of its record changed in turn. */
static void test_marker_bytes(void) {
    static bytes b;
    b.size = 0;
    add_hex(&b, GOLDEN_ABORT);
    FILE *file = tmpfile();
    CHECK(file != NULL);
    for (size_t at = SLG_BATCH_HEADER_SIZE; at < b.size; at++) {
        for (unsigned value = 0; value < 256; value++) {
            uint8_t *copy = exact_copy(b.data, b.size);
            slg_producers producers;
            slg_batch batch;
            slg_marker aborted[1];
            slg_error error;
            size_t taken, count;
            copy[at] = (uint8_t)value;
            CHECK(pwrite(fileno(file), copy, b.size, 0) == (ssize_t)b.size);
            CHECK_EQ(slg_batch_parse(copy, b.size, 0, (int32_t)b.size, &batch, &error), SLG_OK);
            slg_producers_init(&producers);
            const slg_batch first = data_of(0, batch.producer_id, 0, true);
            CHECK_EQ(apply(&producers, &first, 1, &taken), SLG_OK);
            const slg_status status = slg_producers_apply(&producers, fileno(file), &batch, 1,
                                                          &taken, aborted, 1, &count, &error);
            CHECK(status == SLG_OK || status == SLG_MORE);
            CHECK(status == SLG_OK || producers.producers.all[0].in_txn);
            if (value == b.data[at]) {
                CHECK(status == SLG_OK && count == 1 && aborted[0].first_offset == 0);
                CHECK_EQ(aborted[0].last_stable_offset, aborted[0].offset + 1);
            }
            slg_producers_free(&producers);
            free(copy);
        }
    }
    fclose(file);
}

static const slg_append_rules CLIENT = {.origin = SLG_ORIGIN_CLIENT,
                                        .transaction_version = -1,
                                        .segment_base = 5,
                                        .segment_position = 100};

static slg_verdict judge(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                         const slg_batch *batches, size_t count) {
    slg_error error;
    slg_span_begin(span);
    CHECK_EQ(slg_span_check(span, producers, rules, batches, count, NULL, 0, &error), SLG_OK);
    return span->verdict;
}

/* A refused span changes nothing; one that is taken is as if its batches came one by one. */
static void test_span(void) {
    slg_producers producers;
    slg_span span;
    slg_batch batches[4];
    slg_producers_init(&producers);
    slg_span_init(&span);
    for (int i = 0; i < 4; i++) {
        batches[i] = data_of(i, 7 + i % 2, 0, i % 2 == 1);
        batches[i].base_sequence = i / 2;
        batches[i].position = 10 * i;
    }
    batches[3].producer_epoch = -1;
    CHECK_EQ(judge(&span, &producers, &CLIENT, batches, 4), SLG_APPEND_EPOCH);
    CHECK(span.row == 3 && span.known == 0 && producers.producers.count == 0);
    batches[3].producer_epoch = 0;
    CHECK_EQ(judge(&span, &producers, &CLIENT, batches, 4), SLG_APPEND_OK);
    CHECK(producers.producers.count == 0);
    slg_span_commit(&span, &producers);
    CHECK_EQ(producers.producers.count, 2);
    CHECK_EQ(slg_producers_find(&producers, 7)->batch_count, 2);
    const slg_txn *txn = slg_producers_first_unstable(&producers);
    CHECK(txn != NULL && txn->first_offset == 1 && txn->segment_base == 5);
    CHECK_EQ(txn->position, 110);
    CHECK_EQ(judge(&span, &producers, &CLIENT, batches, 1), SLG_APPEND_DUPLICATE);
    CHECK_EQ(span.duplicate.last_offset, 0);
    batches[2].base_sequence = 3;
    CHECK_EQ(judge(&span, &producers, &CLIENT, batches + 2, 1), SLG_APPEND_SEQUENCE);
    CHECK_EQ(span.known, 1);
    slg_span_free(&span);
    slg_producers_free(&producers);
}

/* Numbers that no producer sends, in all combinations: no overflow. */
static void test_span_numbers(void) {
    const int32_t numbers[] = {INT32_MIN, -2, -1, 0, 1, INT32_MAX - 1, INT32_MAX};
    const size_t count = sizeof numbers / sizeof *numbers;
    slg_producers producers;
    slg_span span;
    slg_producers_init(&producers);
    slg_span_init(&span);
    for (size_t i = 0; i < count * count * count; i++) {
        slg_append_rules rules = CLIENT;
        rules.origin = (slg_origin)(i % 3 == 0 ? SLG_ORIGIN_REPLICATION : SLG_ORIGIN_CLIENT);
        slg_batch batch = data_of(0, 1, (int16_t)numbers[i % count], i % 2 == 0);
        batch.base_sequence = numbers[i / count % count];
        batch.last_offset = numbers[i / count / count];
        if (judge(&span, &producers, &rules, &batch, 1) == SLG_APPEND_OK) {
            slg_span_commit(&span, &producers);
        }
    }
    slg_span_free(&span);
    slg_producers_free(&producers);
}

/* Many producers in one span, and a small span after it. */
static void test_span_of_many(void) {
    slg_producers producers;
    slg_span span;
    slg_batch *batches = calloc(MANY, sizeof *batches);
    slg_producers_init(&producers);
    slg_span_init(&span);
    CHECK(batches != NULL);
    for (int i = 0; i < MANY; i++) {
        batches[i] = data_of(i, (int64_t)i << 20, 0, true);
    }
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(judge(&span, &producers, &CLIENT, batches, MANY), SLG_APPEND_OK);
        CHECK_EQ(span.started.count, MANY);
    }
    slg_span_commit(&span, &producers);
    CHECK_EQ(producers.producers.count, MANY);
    for (int i = 0; i < MANY; i++) {
        batches[i].base_sequence = 1;
        CHECK_EQ(judge(&span, &producers, &CLIENT, batches + i, 1), SLG_APPEND_OK);
        slg_span_commit(&span, &producers);
    }
    CHECK_EQ(slg_producers_oldest_txn_timestamp(&producers), 0);
    slg_producers_clear(&producers);
    CHECK(producers.producers.count == 0 && slg_producers_find(&producers, 0) == NULL);
    CHECK(slg_producers_first_unstable(&producers) == NULL);
    free(batches);
    slg_span_free(&span);
    slg_producers_free(&producers);
}

static void test_verifications(void) {
    slg_producers producers;
    slg_span span;
    slg_error error;
    const slg_verification *found;
    slg_append_rules rules = CLIENT;
    slg_producers_init(&producers);
    slg_span_init(&span);
    for (int64_t id = 99; id >= 0; id--) {
        const slg_verification wanted = {
            .producer_id = id, .timestamp = id, .guard = id + 1, .lowest_sequence = 5};
        CHECK_EQ(slg_producers_verify(&producers, &wanted, &found, &error), SLG_OK);
        CHECK_EQ(found->guard, id + 1);
    }
    const slg_verification lower = {.producer_id = 7, .guard = 1000, .lowest_sequence = 0};
    CHECK_EQ(slg_producers_verify(&producers, &lower, &found, &error), SLG_OK);
    CHECK(found->guard == 8 && found->lowest_sequence == 0);
    const slg_batch batch = data_of(0, 7, 0, true);
    rules.is_verified = true;
    CHECK_EQ(judge(&span, &producers, &rules, &batch, 1), SLG_APPEND_UNVERIFIED);
    rules.guard = 8;
    CHECK_EQ(judge(&span, &producers, &rules, &batch, 1), SLG_APPEND_OK);
    CHECK(slg_producers_verification(&producers, 7) != NULL);
    slg_span_commit(&span, &producers);
    CHECK(slg_producers_verification(&producers, 7) == NULL);
    slg_producers_expire(&producers, 1050, 1000);
    CHECK_EQ(producers.verification_count, 49);
    slg_span_free(&span);
    slg_producers_free(&producers);
}

int main(void) {
    test_span();
    test_span_numbers();
    test_span_of_many();
    test_verifications();
    test_queue();
    test_sequences();
    test_transactions();
    test_any_order();
    test_one_first_offset_twice();
    test_marker_bytes();
    return 0;
}
