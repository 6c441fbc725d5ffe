/*
 * Producers and transactions of hostile batches: the fold of a load and the span of a follower's
 * append come to the same state and refuse the same batches, and its snapshot is sound and loads.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"

#include "seglog/producers.h"

enum { MARKER_BYTES_MAX = 256 /* larger ones are not read from a file */ };

/* A few producers with a few epochs, so that their batches meet. */
static void gather(uint8_t *data, size_t size) {
    int32_t whole = 0;
    for (size_t at = 0; size - at > SLG_BATCH_HEADER_SIZE; at += (size_t)whole) {
        if (slg_batch_frame(data + at, size - at, (int64_t)at, (int64_t)size, &whole, NULL) !=
            SLG_OK) {
            break;
        }
        if (slg_load_i8(data + at + SLG_MAGIC_AT) == 2 && whole >= SLG_BATCH_HEADER_SIZE) {
            slg_store_i64(data + at + SLG_BATCH_PRODUCER_ID_AT, data[at] & 3);
            slg_store_i16(data + at + SLG_BATCH_PRODUCER_EPOCH_AT,
                          data[at + SLG_BATCH_PRODUCER_EPOCH_AT + 1] & 1);
        }
    }
}

static uint8_t *snapshot_of(const slg_producers *producers, size_t *size) {
    *size = slg_snapshot_size(producers);
    uint8_t *data = malloc(*size);
    REQUIRE(data != NULL && slg_snapshot_write(producers, data, NULL) == SLG_OK);
    return data;
}

static void check_same(const slg_producers *fold, const slg_producers *other) {
    size_t size, other_size;
    uint8_t *data = snapshot_of(fold, &size), *other_data = snapshot_of(other, &other_size);
    REQUIRE(size == other_size && memcmp(data, other_data, size) == 0);
    const slg_txn *first = slg_producers_first_unstable(fold);
    const slg_txn *other_first = slg_producers_first_unstable(other);
    REQUIRE((first == NULL) == (other_first == NULL));
    REQUIRE(first == NULL || first->first_offset == other_first->first_offset);
    REQUIRE(slg_producers_oldest_txn_timestamp(fold) == slg_producers_oldest_txn_timestamp(other));
    free(data);
    free(other_data);
}

/* Whether the batch was taken; the span then is in the state. */
static bool take_span(slg_producers *producers, slg_span *span, const slg_append_rules *rules,
                      const slg_batch *batch, const uint8_t *data, size_t size, slg_status wanted) {
    slg_span_begin(span);
    REQUIRE(slg_span_check(span, producers, rules, batch, 1, data, size, NULL) == SLG_OK);
    if (span->verdict != SLG_APPEND_OK) {
        REQUIRE(wanted == (span->verdict == SLG_APPEND_MARKER ? SLG_MORE : SLG_TXN_STATE));
        return false;
    }
    slg_span_commit(span, producers);
    for (size_t i = 0; i < span->completed.count; i++) {
        const slg_txn *done = &span->completed.all[i];
        if (slg_producers_complete_txn(producers, done->first_offset, done->last_offset, NULL) !=
            SLG_OK) {
            REQUIRE(wanted == SLG_MORE); /* another producer's had the same first offset */
            return false;
        }
    }
    REQUIRE(wanted == SLG_OK);
    return true;
}

static void check_snapshot(const slg_producers *producers) {
    size_t size, count;
    uint8_t *data = snapshot_of(producers, &size);
    slg_producers loaded;
    slg_producers_init(&loaded);
    REQUIRE(slg_snapshot_is_sound(data, size, &count) && count == producers->producers.count);
    for (size_t i = 0; i < count; i++) {
        const slg_producer one = slg_snapshot_entry(data, i);
        REQUIRE(slg_producers_load(&loaded, &one, NULL) == SLG_OK);
    }
    REQUIRE(loaded.producers.count == count);
    const slg_txn *first = slg_producers_first_unstable(&loaded);
    for (size_t i = 0; i < count; i++) {
        const slg_producer *one = &loaded.producers.all[i];
        REQUIRE(!one->in_txn || (first != NULL && first->first_offset <= one->txn_first_offset));
    }
    slg_producers_free(&loaded);
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    uint8_t *bytes = fuzz_exact(input.data, input.size);
    if ((steer & 1) != 0) {
        gather(bytes, input.size);
    }
    const int fd = file_of(bytes, input.size);
    const bool from_file = (steer & 2) != 0;
    const slg_append_rules rules = {.origin = SLG_ORIGIN_REPLICATION,
                                    .transaction_version = -1,
                                    .segment_base = -1,
                                    .log_fd = fd};
    slg_producers fold, other;
    slg_span span;
    slg_producers_init(&fold);
    slg_producers_init(&other);
    slg_span_init(&span);
    int32_t whole = 0;
    for (size_t at = 0; at < input.size; at += (size_t)whole) {
        slg_batch batch;
        slg_marker marker;
        size_t taken, aborted;
        if (slg_batch_frame(bytes + at, input.size - at, (int64_t)at, (int64_t)input.size, &whole,
                            NULL) != SLG_OK ||
            slg_batch_parse(bytes + at, input.size - at, (int64_t)at, whole, &batch, NULL) !=
                SLG_OK ||
            (!from_file && whole > MARKER_BYTES_MAX &&
             (batch.attributes & SLG_ATTRIBUTE_CONTROL) != 0)) {
            break;
        }
        const slg_status status =
            slg_producers_apply(&fold, fd, &batch, 1, &taken, &marker, 1, &aborted, NULL);
        REQUIRE(taken == (status == SLG_OK));
        if (!take_span(&other, &span, &rules, &batch, from_file ? NULL : bytes, input.size,
                       status)) {
            break;
        }
        check_same(&fold, &other);
    }
    check_snapshot(&fold);
    if ((steer & 4) != 0) {
        slg_producers_replicated(&fold, INT64_MAX);
        slg_producers_expire(&fold, INT64_MAX, 1);
        check_snapshot(&fold);
    }
    slg_span_free(&span);
    slg_producers_free(&fold);
    slg_producers_free(&other);
    free(bytes);
    return 0;
}
