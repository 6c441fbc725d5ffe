/* Batches written: Kafka's own bytes, varints both ways, refusals that change nothing. */
#include "build.h"
#include "java.h"

#include "seglog/encode.h"

static slg_encode_record record_of(int64_t offset, int64_t timestamp, const char *key,
                                   const char *value) {
    return (slg_encode_record){
        .offset = offset,
        .timestamp = timestamp,
        .key = (const uint8_t *)key,
        .value = (const uint8_t *)value,
        .key_size = key == NULL ? -1 : (int64_t)strlen(key),
        .value_size = value == NULL ? -1 : (int64_t)strlen(value),
    };
}

static const slg_encode_fields PLAIN = {
    .producer_id = -1, .producer_epoch = -1, .base_sequence = -1, .partition_leader_epoch = -1};

static void seal(slg_encode_batch *batch, slg_encode_fields fields) {
    fields.max_timestamp = batch->max_timestamp;
    fields.last_offset_delta = (int32_t)(batch->last_offset - batch->base_offset);
    slg_encode_seal(batch->data, batch, &fields, batch->data + SLG_BATCH_HEADER_SIZE,
                    batch->size - SLG_BATCH_HEADER_SIZE, slg_crc32c_best());
}

static void check_golden(const slg_encode_batch *batch, const char *hex) {
    static bytes golden;
    golden.size = 0;
    add_hex(&golden, hex);
    CHECK_EQ(batch->size, golden.size);
    CHECK(memcmp(batch->data, golden.data, golden.size) == 0);
}

static void test_kafkas_bytes(void) {
    static uint8_t out[BYTES_MAX];
    static bytes pairs;
    slg_encode_batch batch;
    uint8_t *headers;
    slg_encode_record record = record_of(0, 1000, NULL, "test");
    slg_encode_fields fields = PLAIN;
    slg_encode_open(&batch, out, sizeof out, 0);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, NULL), SLG_OK);
    fields.partition_leader_epoch = 0;
    seal(&batch, fields);
    check_golden(&batch, GOLDEN_ONE);

    add_field(&pairs, "h");
    add_varint(&pairs, 2);
    add(&pairs, "\1\2", 2);
    add_field(&pairs, "n");
    add_field(&pairs, NULL);
    record = record_of(0, 1000, "k", "v");
    record.headers_size = (int64_t)pairs.size;
    record.header_count = 2;
    slg_encode_open(&batch, out, sizeof out, 0);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, NULL), SLG_OK);
    memcpy(headers, pairs.data, pairs.size);
    record = record_of(1, 1005, "k2", NULL);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, NULL), SLG_OK);
    seal(&batch, PLAIN);
    check_golden(&batch, GOLDEN_TWO);
}

static void check_varlong(int64_t value) {
    uint8_t data[SLG_VARLONG_SIZE_MAX + 8] = {0};
    const uint8_t *end = slg_put_varlong(data, value);
    CHECK_EQ(end - data, slg_varlong_size(value));
    slg_cursor cursor = slg_cursor_of(data, (size_t)(end - data));
    int64_t read;
    CHECK(slg_read_varlong(&cursor, &read) && slg_cursor_left(&cursor) == 0);
    CHECK_EQ(read, value);
    const int32_t narrow = (int32_t)value;
    int32_t again;
    end = slg_put_varint(data, narrow);
    CHECK_EQ(end - data, slg_varint_size(narrow));
    cursor = slg_cursor_of(data, (size_t)(end - data));
    CHECK(slg_read_varint(&cursor, &again) && slg_cursor_left(&cursor) == 0);
    CHECK_EQ(again, narrow);
}

static void test_varints_both_ways(void) {
    uint64_t state = 1;
    for (unsigned bit = 0; bit < 64; bit++) {
        for (int64_t near = -2; near <= 2; near++) {
            check_varlong((int64_t)((UINT64_C(1) << bit) + (uint64_t)near));
        }
    }
    for (int n = 0; n < 10000; n++) {
        check_varlong((int64_t)(random_next(&state) >> (random_next(&state) % 64)));
    }
    check_varlong(INT64_MIN);
    check_varlong(INT64_MAX);
}

/* A refused record changes nothing, and a full batch takes not a byte too many. */
static void test_refusals(void) {
    uint8_t *out = malloc(SLG_BATCH_HEADER_SIZE + 11); /* what the first record takes */
    slg_encode_batch batch;
    slg_error error = {0};
    uint8_t *headers;
    CHECK(out != NULL);
    slg_encode_open(&batch, out, SLG_BATCH_HEADER_SIZE + 10, 5);
    slg_encode_record record = record_of(5, 1000, NULL, "test");
    CHECK_EQ(slg_encode_size(&batch, &record), 11);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_MORE);
    CHECK_EQ(error.expected, SLG_BATCH_HEADER_SIZE + 11);
    CHECK(batch.record_count == 0 && !batch.has_base_timestamp);
    batch.capacity++;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_OK);
    const slg_encode_batch before = batch;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_ENCODE_OFFSET);
    record.offset = 4;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_ENCODE_OFFSET);
    record.offset = 5 + (INT64_C(1) << 31);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_ENCODE_DELTA);
    record.offset = 6;
    record.timestamp = -2;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_ENCODE_TIMESTAMP);
    CHECK_EQ(error.found, -2);
    record.timestamp = -1;
    record.value_size = INT32_MAX;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_ENCODE_SIZE);
    record.value_size = record.key_size = INT64_MAX;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_ENCODE_SIZE);
    CHECK(memcmp(&before, &batch, sizeof batch) == 0);
    batch.max_records = 1;
    record = record_of(6, 5, NULL, NULL);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_FULL);
    batch.max_records = 2;
    batch.max_size = (int64_t)batch.size + 6;
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_FULL);
    free(out);
}

static void test_the_ends_of_the_numbers(void) {
    uint8_t out[512];
    slg_encode_batch batch;
    uint8_t *headers;
    slg_encode_open(&batch, out, sizeof out, INT64_MAX - INT32_MAX);
    slg_encode_record record = record_of(INT64_MAX, INT64_MAX, "", "");
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, NULL), SLG_OK);
    CHECK_EQ(batch.last_offset, INT64_MAX);
    slg_encode_open(&batch, out, sizeof out, INT64_MIN);
    record = record_of(INT64_MIN, INT64_MAX, NULL, NULL);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, NULL), SLG_OK);
    record = record_of(INT64_MIN + 1, -1, NULL, NULL);
    CHECK_EQ(slg_encode_add(&batch, &record, &headers, NULL), SLG_OK);
    CHECK_EQ(batch.max_timestamp, INT64_MAX);
    CHECK_EQ(slg_java_sequence(INT32_MAX, 1), 0);
    CHECK_EQ(slg_java_sequence(INT32_MAX - 1, 3), 1);
    CHECK_EQ(slg_java_sequence(0, INT32_MAX), INT32_MAX);
    /* What no producer sends, as Java's ints have it. */
    CHECK_EQ(slg_java_sequence(5, -1), INT32_MIN + 4);
    CHECK_EQ(slg_java_sequence(INT32_MIN, -1), INT32_MAX);
}

int main(void) {
    test_kafkas_bytes();
    test_varints_both_ways();
    test_refusals();
    test_the_ends_of_the_numbers();
    return 0;
}
