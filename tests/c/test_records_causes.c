/* Records as columns: golden cells, projections, old messages, and every cause with its numbers. */
#define _POSIX_C_SOURCE 200809L

#include "seglog/records.h"

#include "build.h"

enum { EVERYTHING = (1 << SLG_COLUMNS) - 1 };

static bytes log_bytes;
static slg_pool *pool;
static int64_t live;

static slg_records_options options(void) {
    return (slg_records_options){.flags = SLG_RECORDS_CRC | SLG_RECORDS_CONTROL,
                                 .start_offset = INT64_MIN,
                                 .end_offset = INT64_MAX,
                                 .base_offset = INT64_MIN,
                                 .max_rows = 1 << 20,
                                 .max_bytes = 1 << 20};
}

/* ---- cells --------------------------------------------------------------------------------- */

static int64_t number(const slg_columns *c, slg_column column, int64_t row) {
    const uint8_t *data = c->fixed[column].data;
    switch (column) {
    case SLG_COLUMN_TIMESTAMP_TYPE: return (int8_t)data[row];
    case SLG_COLUMN_PRODUCER_EPOCH: return ((const int16_t *)(const void *)data)[row];
    case SLG_COLUMN_SEQUENCE:
    case SLG_COLUMN_LEADER_EPOCH: return ((const int32_t *)(const void *)data)[row];
    case SLG_COLUMN_IS_TRANSACTIONAL:
    case SLG_COLUMN_IS_CONTROL: return data[row >> 3] >> (row & 7) & 1;
    default: return ((const int64_t *)(const void *)data)[row];
    }
}

static bool is_null(const slg_binary *b, int64_t row) {
    return b->null_count > 0 && (b->validity.data[row >> 3] >> (row & 7) & 1) == 0;
}

/* The cell is this text of `size` bytes; -1 is null. */
static bool cell_is(const slg_binary *b, int64_t row, const char *text, int64_t size) {
    const int32_t *ends = (const int32_t *)(const void *)b->offsets.data;
    const int64_t found = ends[row + 1] - ends[row];
    return is_null(b, row) == (size < 0) && found == (size < 0 ? 0 : size) &&
           memcmp(b->bytes.data + ends[row], text == NULL ? "" : text, (size_t)found) == 0;
}

static int32_t list_end(const slg_columns *c, int64_t row) {
    return ((const int32_t *)(const void *)c->header_lists.data)[row];
}

static void numbers_are(const slg_columns *c, int64_t row, const int64_t *wanted) {
    static const slg_column fixed[] = {SLG_COLUMN_OFFSET,         SLG_COLUMN_TIMESTAMP,
                                       SLG_COLUMN_TIMESTAMP_TYPE, SLG_COLUMN_PRODUCER_ID,
                                       SLG_COLUMN_PRODUCER_EPOCH, SLG_COLUMN_SEQUENCE,
                                       SLG_COLUMN_LEADER_EPOCH,   SLG_COLUMN_IS_TRANSACTIONAL,
                                       SLG_COLUMN_IS_CONTROL,     SLG_COLUMN_POSITION};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        CHECK_EQ(number(c, fixed[i], row), wanted[i]);
    }
}

/* ---- runs ---------------------------------------------------------------------------------- */

/*
 * Decodes the whole log; a payload comes "decompressed" as `inner`, exact but for its slack. The
 * columns are the caller's to release.
 */
static slg_columns *decode_with(const slg_records_options *wanted, uint32_t columns,
                                const bytes *inner, slg_status *status, slg_error *error) {
    const int fd = file_of(log_bytes.data, log_bytes.size);
    slg_records *records = slg_records_new(slg_source_of(fd), 0, (int64_t)log_bytes.size, wanted);
    slg_columns *c = slg_pool_take(pool, columns, SLG_LAYOUT_KAFKA);
    uint8_t *payload = NULL;
    CHECK(records != NULL && c != NULL);
    *error = (slg_error){.status = SLG_OK};
    while ((*status = slg_records_next(records, c, error)) == SLG_CODEC) {
        CHECK(inner != NULL && slg_records_payload(records).size > 0);
        free(payload);
        payload = malloc(inner->size + SLG_RECORDS_SLACK);
        CHECK(payload != NULL);
        memcpy(payload, inner->data, inner->size);
        memset(payload + inner->size, 0xff, SLG_RECORDS_SLACK);
        slg_records_resume(records, payload, inner->size);
    }
    if (*status >= SLG_BATCH_LENGTH) {
        CHECK_EQ(error->position, slg_records_position(records));
    }
    slg_records_free(records);
    free(payload);
    close(fd);
    return c;
}

static slg_columns *decode(uint32_t columns, slg_status wanted) {
    slg_status status;
    slg_error error;
    const slg_records_options o = options();
    slg_columns *c = decode_with(&o, columns, NULL, &status, &error);
    CHECK_EQ(status, wanted);
    return c;
}

static void check_golden(void) {
    log_bytes.size = 0;
    add_hex(&log_bytes, GOLDEN_V0); /* 30 bytes, offset 0 */
    const int64_t two = (int64_t)log_bytes.size;
    add_hex(&log_bytes, GOLDEN_TWO);
    log_bytes.data[two + 7] = 1; /* base offset 1: not under the CRC */
    add_hex(&log_bytes, GOLDEN_ABORT); /* offset 5 */
    add_hex(&log_bytes, GOLDEN_EMPTIED); /* offsets 10..13, without records */
    const int64_t one = (int64_t)log_bytes.size;
    add_hex(&log_bytes, GOLDEN_ONE);
    log_bytes.data[one + 7] = 40;
    const int64_t v1 = (int64_t)log_bytes.size;
    add_hex(&log_bytes, GOLDEN_V1);
    log_bytes.data[v1 + 7] = 41;
    slg_columns *c = decode(EVERYTHING, SLG_END);
    CHECK_EQ(c->rows, 6);
    CHECK(c->first_offset == 0 && c->last_offset == 41);
    numbers_are(c, 0, (const int64_t[]){0, -1, -1, -1, -1, -1, -1, 0, 0, 0});
    numbers_are(c, 1, (const int64_t[]){1, 1000, 0, -1, -1, -1, -1, 0, 0, two});
    numbers_are(c, 2, (const int64_t[]){2, 1005, 0, -1, -1, -1, -1, 0, 0, two});
    numbers_are(c, 3, (const int64_t[]){5, 1000, 0, 1, 0, -1, 0, 1, 1, two + 87});
    numbers_are(c, 4, (const int64_t[]){40, 1000, 0, -1, -1, -1, 0, 0, 0, one});
    numbers_are(c, 5, (const int64_t[]){41, 1000, 0, -1, -1, -1, -1, 0, 0, v1});
    static const struct {
        const char *key, *value;
        int64_t key_size, value_size;
    } cells[] = {{NULL, "test", -1, 4}, {"k", "v", 1, 1},
                 {"k2", NULL, 2, -1},   {"\0\0\0\0", "\0\0\0\0\0\0", 4, 6},
                 {NULL, "test", -1, 4}, {NULL, "test", -1, 4}};
    for (int64_t i = 0; i < 6; i++) {
        CHECK(cell_is(&c->key, i, cells[i].key, cells[i].key_size));
        CHECK(cell_is(&c->value, i, cells[i].value, cells[i].value_size));
        CHECK_EQ(list_end(c, i + 1), i == 0 ? 0 : 2);
    }
    CHECK(c->key.null_count == 3 && c->value.null_count == 1 && c->headers == 2);
    CHECK(cell_is(&c->header_key, 0, "h", 1) && cell_is(&c->header_value, 0, "\1\2", 2));
    CHECK(cell_is(&c->header_key, 1, "n", 1) && cell_is(&c->header_value, 1, NULL, -1));
    slg_columns_release(c);

    /* One column alone, with nothing of the others touched, gives the same cells. */
    for (unsigned wanted = 0; wanted < SLG_COLUMNS; wanted++) {
        c = decode(1U << wanted, SLG_END);
        CHECK_EQ(c->rows, 6);
        CHECK((c->key.offsets.data != NULL) == (wanted == SLG_COLUMN_KEY));
        CHECK((c->value.offsets.data != NULL) == (wanted == SLG_COLUMN_VALUE));
        CHECK((c->header_lists.data != NULL) == (wanted == SLG_COLUMN_HEADERS));
        CHECK(wanted == SLG_COLUMN_KEY || c->key.used == 0);
        CHECK(wanted == SLG_COLUMN_VALUE || c->value.used == 0);
        CHECK_EQ(c->headers, wanted == SLG_COLUMN_HEADERS ? 2 : 0);
        for (unsigned other = 0; other < SLG_COLUMNS; other++) {
            CHECK(other == wanted || c->fixed[other].data == NULL);
        }
        CHECK(wanted != SLG_COLUMN_OFFSET || number(c, SLG_COLUMN_OFFSET, 5) == 41);
        CHECK(wanted != SLG_COLUMN_VALUE || cell_is(&c->value, 1, "v", 1));
        slg_columns_release(c);
    }
}

/* Sequences go from 2^31 - 1 to 0, and the broker's time replaces the records' own. */
static void check_batch_numbers(void) {
    static bytes payload;
    enum { COUNT = 20 };
    payload.size = log_bytes.size = 0;
    for (int i = 0; i < COUNT; i++) {
        add_record(&payload, i % 5 - 2, i, "k", NULL, NULL, 0);
    }
    for (int16_t attributes = 0; attributes <= SLG_ATTRIBUTE_LOG_APPEND_TIME;
         attributes += SLG_ATTRIBUTE_LOG_APPEND_TIME) {
        log_bytes.size = 0;
        add_batch(&log_bytes,
                  (batch_fields){.base_offset = 100,
                                 .last_delta = COUNT - 1,
                                 .count = COUNT,
                                 .attributes = attributes,
                                 .base_timestamp = 5000,
                                 .max_timestamp = 6000,
                                 .producer_id = 9,
                                 .producer_epoch = 3,
                                 .base_sequence = INT32_MAX - 9,
                                 .leader_epoch = 4},
                  payload.data, payload.size);
        slg_columns *c = decode(EVERYTHING, SLG_END);
        CHECK_EQ(c->rows, COUNT);
        for (int64_t i = 0; i < COUNT; i++) {
            numbers_are(c, i,
                        (const int64_t[]){100 + i, attributes != 0 ? 6000 : 5000 + i % 5 - 2,
                                          attributes != 0, 9, 3,
                                          i < 10 ? INT32_MAX - 9 + i : i - 10, 4, 0, 0, 0});
        }
        slg_columns_release(c);
    }
}

/* ---- headers and old messages --------------------------------------------------------------- */

static void check_header_keys(void) {
    static const char *const keys[][2] = {
        {"plain", "plain"},
        {"\xc3\xa4", "\xc3\xa4"},
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe2\x82", "\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
        {"", ""},
    };
    enum { KEYS = sizeof keys / sizeof keys[0] };
    static bytes headers, payload;
    headers.size = payload.size = log_bytes.size = 0;
    for (int i = 0; i < KEYS; i++) {
        add_field(&headers, keys[i][0]);
        add_field(&headers, "");
    }
    add_record(&payload, 0, 0, "k", "v", &headers, KEYS);
    add_batch(&log_bytes, (batch_fields){.count = 1}, payload.data, payload.size);
    slg_columns *c = decode(EVERYTHING, SLG_END);
    CHECK_EQ(c->headers, KEYS);
    for (int i = 0; i < KEYS; i++) {
        CHECK(cell_is(&c->header_key, i, keys[i][1], (int64_t)strlen(keys[i][1])));
        CHECK(cell_is(&c->header_value, i, "", 0));
    }
    slg_columns_release(c);
}

/* A wrapper at offset 11 with this payload and codec 1. */
static slg_columns *unwrap(int magic, int attributes, int64_t offset, const bytes *inner,
                           slg_status wanted, int64_t expected, int64_t found) {
    slg_status status;
    slg_error error;
    const slg_records_options o = options();
    log_bytes.size = 0;
    add_message(&log_bytes, magic, attributes | SLG_CODEC_GZIP, offset, 2000, "packed", 6);
    slg_columns *c = decode_with(&o, EVERYTHING, inner, &status, &error);
    CHECK_EQ(status, wanted);
    CHECK(wanted == SLG_END || (error.expected == expected && error.found == found));
    return c;
}

static void check_wrappers(void) {
    static bytes inner;
    inner.size = 0;
    add_message(&inner, 1, 0, 0, 1000, "a", 1);
    add_message(&inner, 1, 0, 1, 2000, NULL, -1);
    slg_columns *c = unwrap(1, 0, 11, &inner, SLG_END, 0, 0);
    CHECK_EQ(c->rows, 2);
    numbers_are(c, 0, (const int64_t[]){10, 1000, 0, -1, -1, -1, -1, 0, 0, 0});
    numbers_are(c, 1, (const int64_t[]){11, 2000, 0, -1, -1, -1, -1, 0, 0, 0});
    CHECK(cell_is(&c->value, 0, "a", 1) && cell_is(&c->value, 1, NULL, -1));
    slg_columns_release(c);
    c = unwrap(1, SLG_ATTRIBUTE_LOG_APPEND_TIME, 11, &inner, SLG_END, 0, 0);
    CHECK(number(c, SLG_COLUMN_TIMESTAMP, 0) == 2000);
    CHECK(number(c, SLG_COLUMN_TIMESTAMP_TYPE, 0) == 1);
    slg_columns_release(c);
    c = unwrap(1, 0, 0, &inner, SLG_END, 0, 0); /* absolute inside, as old librdkafka wrote */
    CHECK(number(c, SLG_COLUMN_OFFSET, 0) == 0 && number(c, SLG_COLUMN_OFFSET, 1) == 1);
    slg_columns_release(c);
    inner.size -= 3; /* a torn last message is ignored */
    c = unwrap(1, 0, 11, &inner, SLG_END, 0, 0);
    CHECK(c->rows == 1 && number(c, SLG_COLUMN_OFFSET, 0) == 11);
    slg_columns_release(c);

    inner.size = 0;
    slg_columns_release(unwrap(1, 0, 11, &inner, SLG_LEGACY_EMPTY_WRAPPER, 1, 0));
    add_message(&inner, 1, 0, 12, 1, "a", 1);
    slg_columns_release(unwrap(1, 0, 11, &inner, SLG_LEGACY_OFFSET, 12, 11));
    inner.size = 0;
    add_message(&inner, 1, SLG_CODEC_SNAPPY, 0, 1, "a", 1);
    slg_columns_release(unwrap(1, 0, 11, &inner, SLG_LEGACY_NESTED, 0, SLG_CODEC_SNAPPY));
    slg_store_i32(inner.data + SLG_LEGACY_SIZE_AT, 13);
    slg_columns_release(unwrap(1, 0, 11, &inner, SLG_LEGACY_SIZE, 14, 13));
    slg_store_i32(inner.data + SLG_LEGACY_SIZE_AT, 14); /* too short for magic 1 */
    slg_columns_release(unwrap(1, 0, 11, &inner, SLG_LEGACY_SIZE, 34, 26));
    log_bytes.size = 0;
    add_message(&log_bytes, 0, SLG_CODEC_GZIP, 3, 0, NULL, -1);
    slg_columns_release(decode(EVERYTHING, SLG_LEGACY_NULL_WRAPPER));
    log_bytes.size = 0;
    add_message(&log_bytes, 1, SLG_CODEC_ZSTD, 3, 0, "x", 1);
    slg_columns_release(decode(EVERYTHING, SLG_LEGACY_CODEC));
}

/* ---- causes -------------------------------------------------------------------------------- */

/*
 * One sound record, then these bytes as the second, also as a payload that was compressed: the
 * slack behind it is 0xff. The row before the cause stays.
 */
static void cause(const char *hex, slg_status wanted, int64_t expected, int64_t found) {
    static bytes payload;
    slg_status status;
    slg_error error;
    const slg_records_options o = options();
    payload.size = 0;
    add_record(&payload, 0, 0, "k", "v", NULL, 0);
    add_hex(&payload, hex);
    for (int compressed = 0; compressed < 2; compressed++) {
        for (uint32_t columns = 0; columns <= EVERYTHING; columns += EVERYTHING) {
            log_bytes.size = 0;
            add_hex(&log_bytes, GOLDEN_ONE);
            add_batch(&log_bytes,
                      (batch_fields){.base_offset = 7,
                                     .last_delta = 1,
                                     .count = 2,
                                     .attributes = (int16_t)compressed},
                      payload.data, payload.size);
            slg_columns *c = decode_with(&o, columns, &payload, &status, &error);
            CHECK_EQ(status, wanted);
            CHECK_EQ(error.status, wanted);
            CHECK_EQ(error.position, 72);
            CHECK_EQ(error.expected, expected);
            CHECK_EQ(error.found, found);
            CHECK_EQ(c->rows, wanted == SLG_RECORD_COUNT && found != 1 ? 3 : 2);
            slg_columns_release(c);
        }
    }
}

static void check_causes(void) {
    cause("", SLG_RECORD_COUNT, 2, 1);
    cause("0c 00 00 02 01 01 00 0c 00 00 04 01 01 00", SLG_RECORD_COUNT, 2, 7);
    cause("ffffffffff 00", SLG_RECORD_VARINT, 5, 6);
    cause("80", SLG_RECORD_VARINT, 5, 1);
    cause("01", SLG_RECORD_LENGTH, 0, -1);
    cause("0e 00 00 02 01 01 00", SLG_RECORD_LENGTH, 6, 7);
    cause("feffffff0f 00", SLG_RECORD_LENGTH, 1, INT32_MAX);
    cause("00", SLG_RECORD_VARINT, 10, 0);
    cause("18 00 ffffffffffffffffffff ff", SLG_RECORD_VARINT, 10, 11);
    cause("0e 00 00 02 01 01 00 00", SLG_RECORD_SIZE, 7, 6);
    cause("0c 00 00 02 10 01 00", SLG_RECORD_FIELD, 2, 8);
    cause("0c 00 00 02 01 10 00", SLG_RECORD_FIELD, 1, 8);
    cause("14 00 00 02 feffffff0f 01 00", SLG_RECORD_FIELD, 2, INT32_MAX);
    cause("0c 00 00 02 02 01 00", SLG_RECORD_VARINT, 5, 0); /* the key takes the count's place */
    cause("0c 00 00 02 01 01 01", SLG_RECORD_HEADERS, 0, -1);
    cause("0c 00 00 02 01 01 10", SLG_RECORD_HEADERS, 0, 8);
    cause("14 00 00 02 01 01 feffffff0f", SLG_RECORD_HEADERS, 0, INT32_MAX);
    cause("10 00 00 02 01 01 02 01 00", SLG_RECORD_FIELD, 1, -1);
    cause("10 00 00 02 01 01 02 00 10", SLG_RECORD_FIELD, 0, 8);
}

/* What is wrong with the header of the second entry; the row before it stays. */
static void check_entries(void) {
    static const struct {
        batch_fields fields;
        slg_status status;
        int64_t expected, found;
    } cases[] = {
        {{.base_offset = 0, .count = 1}, SLG_BATCH_OFFSET_ORDER, 1, 0},
        {{.base_offset = 5, .count = 1, .last_delta = -1}, SLG_BATCH_LAST_OFFSET, 0, -1},
        {{.base_offset = INT64_MAX, .count = 1}, SLG_BATCH_LAST_OFFSET, 0, 0},
        {{.base_offset = 5, .count = -1}, SLG_BATCH_RECORD_COUNT, 0, -1},
        {{.base_offset = 5, .count = INT32_MAX}, SLG_RECORD_COUNT, INT32_MAX, 1},
        {{.base_offset = 5, .count = 1, .magic = 3}, SLG_BATCH_MAGIC, 2, 3},
        {{.base_offset = 5, .count = 1, .attributes = 5}, SLG_BATCH_CODEC, 4, 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        slg_status status;
        slg_error error;
        const slg_records_options o = options();
        log_bytes.size = 0;
        add_hex(&log_bytes, GOLDEN_ONE);
        add_batch(&log_bytes, cases[i].fields, "\x14\0\0\0\1\x08test", 11);
        slg_columns *c = decode_with(&o, EVERYTHING, NULL, &status, &error);
        CHECK_EQ(status, cases[i].status);
        CHECK_EQ(error.position, 72);
        CHECK_EQ(error.expected, cases[i].expected);
        CHECK_EQ(error.found, cases[i].found);
        CHECK_EQ(c->rows, status == SLG_RECORD_COUNT ? 2 : 1);
        slg_columns_release(c);
    }
    log_bytes.data[log_bytes.size - 1] ^= 1;
    log_bytes.data[72 + SLG_BATCH_ATTRIBUTES_AT + 1] = 0;
    slg_columns_release(decode(EVERYTHING, SLG_BATCH_CRC));
    for (size_t size = 73; size < log_bytes.size; size++) {
        bytes whole = log_bytes;
        log_bytes.size = size;
        slg_columns *c = decode(EVERYTHING, size < 80 ? SLG_ZERO_TAIL : SLG_TORN_TAIL);
        CHECK_EQ(c->rows, 1);
        slg_columns_release(c);
        log_bytes = whole;
    }
}

/* A transaction of producer 1 that was aborted: 0, then the marker at 5, then 6, which was not. */
static void check_transactions(void) {
    const slg_aborted aborted[] = {{0, 0, 100}, {1, 0, 5}, {2, 0, 100}};
    const batch_fields open = {
        .count = 1, .attributes = SLG_ATTRIBUTE_TRANSACTIONAL, .producer_id = 1};
    batch_fields later = open;
    later.base_offset = 6;
    log_bytes.size = 0;
    add_batch(&log_bytes, open, "\x14\0\0\0\1\x08test", 11);
    add_hex(&log_bytes, GOLDEN_ABORT);
    add_batch(&log_bytes, later, "\x14\0\0\0\1\x08test", 11);
    for (unsigned round = 0; round < 4; round++) {
        slg_records_options o = options();
        slg_status status;
        slg_error error;
        o.flags = SLG_RECORDS_CRC | (round & 1 ? SLG_RECORDS_CONTROL : 0U);
        o.aborted = aborted;
        o.aborted_count = round & 2 ? 3 : 0;
        slg_columns *c = decode_with(&o, EVERYTHING, NULL, &status, &error);
        CHECK_EQ(status, SLG_END);
        CHECK_EQ(c->rows, 1 + (round & 1 ? 1 : 0) + (round & 2 ? 0 : 1));
        CHECK_EQ(c->first_offset, round & 2 ? (round & 1 ? 5 : 6) : 0);
        CHECK_EQ(c->last_offset, 6);
        CHECK_EQ(number(c, SLG_COLUMN_IS_TRANSACTIONAL, 0), 1);
        slg_columns_release(c);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 1 || chdir(argv[1]) == 0);
    pool = slg_pool_new(0, &live); /* nothing is kept: each set is fresh from the heap */
    CHECK(pool != NULL);
    check_golden();
    check_batch_numbers();
    check_header_keys();
    check_wrappers();
    check_causes();
    check_entries();
    check_transactions();
    CHECK_EQ(live, 0);
    slg_pool_close(pool);
    return 0;
}
