/* The fold of batches into producers: queues, transactions, markers from a file. */
#define _POSIX_C_SOURCE 200809L
#include "build.h"

#include "seglog/producers.h"

enum { MANY = 3000 };

static slg_batch data_of(int64_t offset, int64_t producer_id, int16_t epoch, bool transactional) {
    return (slg_batch){.base_offset = offset, .last_offset = offset, .max_timestamp = offset,
                       .producer_id = producer_id, .producer_epoch = epoch, .magic = 2,
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

static void test_one_first_offset_twice(void) {
    slg_producers producers;
    slg_marker marker;
    slg_error error;
    slg_producers_init(&producers);
    for (int64_t id = 1; id <= 2; id++) {
        const slg_producer one = {.id = id, .in_txn = 1, .txn_first_offset = 3};
        CHECK_EQ(slg_producers_load(&producers, &one, &error), SLG_OK);
    }
    CHECK_EQ(end(&producers, &marker, 1, 4), SLG_OK);
    CHECK_EQ(end(&producers, &marker, 2, 5), SLG_TXN_NOT_STARTED);
    CHECK_EQ(producers.producers.all[1].in_txn, 1);
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

int main(void) {
    test_queue();
    test_sequences();
    test_transactions();
    test_one_first_offset_twice();
    test_marker_bytes();
    return 0;
}
