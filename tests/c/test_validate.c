/* Batches before an append, records against a topic's rules, offsets and timestamps in place. */
#include "build.h"

#include "seglog/validate.h"

static slg_analysis analysis_of(slg_origin origin) {
    slg_analysis analysis = {.origin = origin,
                             .leader_epoch = 3,
                             .batch_bytes_max = INT64_MAX,
                             .kernel = SLG_CRC32C_PORTABLE};
    slg_analysis_init(&analysis);
    return analysis;
}

/* Judges an exact copy to its end. */
static slg_refusal judge(slg_analysis *analysis, const bytes *b) {
    uint8_t *copy = exact_copy(b->data, b->size);
    slg_batch batch;
    slg_refusal refusal;
    while ((refusal = slg_analyze_next(analysis, copy, b->size, &batch)) == SLG_ACCEPTED) {
    }
    free(copy);
    return refusal;
}

static void test_sound_batches(void) {
    static bytes b;
    slg_analysis analysis = analysis_of(SLG_ORIGIN_CLIENT);
    b.size = 0;
    add_hex(&b, GOLDEN_ONE);
    add_hex(&b, GOLDEN_TWO);
    const size_t whole = b.size;
    CHECK_EQ(judge(&analysis, &b), SLG_NO_MORE);
    CHECK_EQ(analysis.valid_bytes, whole);
    CHECK_EQ(analysis.max_timestamp, 1005);
    CHECK_EQ(analysis.last_offset, 1);
    CHECK(analysis.is_ordered);
    /* Any cut leaves the first batch or none. */
    for (size_t size = 0; size < whole; size++) {
        b.size = size;
        analysis = analysis_of(SLG_ORIGIN_CLIENT);
        CHECK_EQ(judge(&analysis, &b), SLG_NO_MORE);
        CHECK_EQ(analysis.valid_bytes, size >= 72 ? 72 : 0);
    }
}

static void test_refused_batches(void) {
    static bytes b;
    b.size = 0;
    add_batch(&b, (batch_fields){.base_offset = 5, .producer_id = -1, .leader_epoch = 4}, "", 0);
    slg_analysis analysis = analysis_of(SLG_ORIGIN_CLIENT);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_BASE_OFFSET);
    CHECK_EQ(analysis.a, 5);
    analysis = analysis_of(SLG_ORIGIN_RAFT_LEADER);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_RAFT_EPOCH);
    analysis = analysis_of(SLG_ORIGIN_REPLICATION);
    CHECK_EQ(judge(&analysis, &b), SLG_NO_MORE);
    CHECK(analysis.is_skipping);
    CHECK_EQ(analysis.valid_bytes, 0);
    analysis = analysis_of(SLG_ORIGIN_COORDINATOR);
    analysis.batch_bytes_max = 60;
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_SIZE);
    analysis = analysis_of(SLG_ORIGIN_COORDINATOR);
    analysis.needs_order = true;
    add_batch(&b, (batch_fields){.base_offset = 5, .producer_id = -1}, "", 0);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_ORDER);
    b.data[b.size - 1] ^= 1;
    analysis = analysis_of(SLG_ORIGIN_COORDINATOR);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_CRC);
    b.data[SLG_MAGIC_AT] = 3;
    analysis = analysis_of(SLG_ORIGIN_COORDINATOR);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_MAGIC);
    slg_store_i32(b.data + SLG_BATCH_LENGTH_AT, 13);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_LENGTH);
    slg_store_i32(b.data + SLG_BATCH_LENGTH_AT, INT32_MAX);
    b.data[SLG_MAGIC_AT] = 2;
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_OVERFLOW);
    CHECK_EQ(analysis.a, (int64_t)INT32_MAX + 12 - (INT64_C(1) << 32));
    slg_store_i32(b.data + SLG_BATCH_LENGTH_AT, 14);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_SHORT);
    slg_store_i32(b.data + SLG_BATCH_LENGTH_AT, 30);
    CHECK_EQ(judge(&analysis, &b), SLG_REFUSE_CRC);
}

static void test_client_headers(void) {
    slg_batch batch = {.base_offset = 0,
                       .last_offset = 2,
                       .record_count = 3,
                       .magic = 2,
                       .producer_id = -1,
                       .base_sequence = -1};
    CHECK_EQ(slg_check_client_header(&batch), SLG_ACCEPTED);
    batch.producer_id = 0;
    CHECK_EQ(slg_check_client_header(&batch), SLG_REFUSE_SEQUENCE);
    batch.attributes = SLG_ATTRIBUTE_CONTROL;
    CHECK_EQ(slg_check_client_header(&batch), SLG_REFUSE_CONTROL);
    batch.record_count = 4;
    CHECK_EQ(slg_check_client_header(&batch), SLG_REFUSE_COUNT_OF_RANGE);
    batch.record_count = 0;
    CHECK_EQ(slg_check_client_header(&batch), SLG_REFUSE_COUNT);
    batch.last_offset = -1;
    CHECK_EQ(slg_check_client_header(&batch), SLG_REFUSE_RANGE);
}

static const slg_batch PLAIN = {.record_count = 2, .base_timestamp = 1000, .magic = 2};

static void test_rules(void) {
    static bytes b;
    b.size = 0;
    add_record(&b, 0, 0, NULL, "value", NULL, 0);
    add_record(&b, -500, 1, "key", "value", NULL, 0);
    slg_record_rules rules = {
        .needs_key = true, .has_create_time = true, .now = 1000, .before_max = 499, .after_max = 0};
    slg_record_walk walk;
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_BUFFER, &rules);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_NO_KEY);
    CHECK_EQ(walk.index, 1);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_TIMESTAMP);
    CHECK_EQ(walk.record.timestamp, 500);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_NO_MORE);
    CHECK_EQ(walk.max_timestamp, 1000);
    CHECK(walk.is_sequential);
    /* With slack the last record is plain too, unless it does not end with the bytes. */
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_BUFFER, NULL);
    walk.has_slack = true;
    CHECK_EQ(slg_record_walk_run(&walk), SLG_NO_MORE);
    CHECK_EQ(walk.index, 2);
    CHECK_EQ(walk.max_timestamp, 1000);
    CHECK(walk.is_sequential);
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size - 1, SLG_RECORDS_BUFFER, NULL);
    walk.has_slack = true;
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_BODY);
    /* Nothing is left behind the last record, and no record is missing. */
    add_byte(&b, 0);
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_BUFFER, NULL);
    walk.has_slack = true;
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_BYTES_LEFT);
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_BYTES_LEFT);
    b.size -= 10;
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_BODY);
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_STREAM, NULL);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_BODY_END);
    slg_record_walk_init(&walk, &PLAIN, b.data, b.size, SLG_RECORDS_SKIP, NULL);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_SKIP);
    CHECK_EQ(walk.a, 2); /* of the key */
    /* A count below all others has no predecessor. */
    slg_batch lowest = PLAIN;
    lowest.record_count = INT32_MIN;
    slg_record_walk_init(&walk, &lowest, b.data, b.size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_record_walk_run(&walk), SLG_REFUSE_RECORD_COUNT);
    CHECK_EQ(walk.index, 0);
}

static void test_assignment(void) {
    static bytes b;
    slg_error error;
    slg_batch batch, again;
    memset(&batch, 0, sizeof batch);
    memset(&again, 0, sizeof again);
    b.size = 0;
    add_hex(&b, GOLDEN_TWO);
    CHECK_EQ(slg_batch_parse(b.data, b.size, 0, (int32_t)b.size, &batch, &error), SLG_OK);
    const uint32_t crc = batch.crc;
    slg_assignment wanted = {.next_offset = 100, .leader_epoch = 7, .max_timestamp = 1005};
    slg_assign(b.data, b.data + SLG_BATCH_HEADER_SIZE, &wanted, 2, SLG_CRC32C_PORTABLE, &batch);
    CHECK_EQ(batch.base_offset, 100);
    CHECK_EQ(batch.last_offset, 101);
    CHECK_EQ(batch.crc, crc);
    wanted.has_append_time = true;
    wanted.max_timestamp = 5000;
    slg_assign(b.data, b.data + SLG_BATCH_HEADER_SIZE, &wanted, 2, SLG_CRC32C_PORTABLE, &batch);
    CHECK(batch.crc != crc);
    CHECK_EQ(slg_batch_parse(b.data, b.size, 0, (int32_t)b.size, &again, &error), SLG_OK);
    CHECK_EQ(slg_batch_check_crc(&again, b.data, SLG_CRC32C_PORTABLE, &error), SLG_OK);
    CHECK(memcmp(&again, &batch, sizeof batch) == 0);
    CHECK_EQ(again.partition_leader_epoch, 7);
    CHECK_EQ(again.attributes, SLG_ATTRIBUTE_LOG_APPEND_TIME);
}

/* Headers as they were, and keys that are no UTF-8 as Java would write them. */
static void test_headers(void) {
    static bytes headers, b;
    uint8_t into[64];
    slg_record_walk walk;
    slg_batch batch = PLAIN;
    headers.size = b.size = 0;
    add_field(&headers, "h");
    add_field(&headers, NULL);
    add_field(&headers, "\xff");
    add_field(&headers, "v");
    add_record(&b, 0, 0, NULL, NULL, &headers, 2);
    batch.record_count = 1;
    slg_record_walk_init(&walk, &batch, b.data, b.size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_record_next(&walk), SLG_ACCEPTED);
    CHECK_EQ(walk.record.header_count, 2);
    CHECK(slg_headers_bound(&walk.record) <= sizeof into);
    const size_t size = slg_headers_rewrite(&walk.record, into);
    CHECK_EQ(size, headers.size + 2);
    CHECK(memcmp(into, "\x02h\x01\x06\xef\xbf\xbd\x02v", size) == 0);
}

int main(void) {
    test_sound_batches();
    test_refused_batches();
    test_client_headers();
    test_rules();
    test_assignment();
    test_headers();
    return 0;
}
