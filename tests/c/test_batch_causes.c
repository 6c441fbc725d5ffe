/* Framing, headers and scans: golden headers, every outcome, every cause with its numbers. */
#define _POSIX_C_SOURCE 200809L

#include "seglog/batch.h"

#include "build.h"

static bytes log_bytes;

static slg_batch parse(const char *hex) {
    log_bytes.size = 0;
    add_hex(&log_bytes, hex);
    uint8_t *copy = exact_copy(log_bytes.data, log_bytes.size);
    const int64_t end = 1000 + (int64_t)log_bytes.size;
    slg_batch batch;
    int32_t size = 0;
    CHECK_EQ(slg_batch_frame(copy, log_bytes.size, 1000, end, &size, NULL), SLG_OK);
    CHECK_EQ(size, log_bytes.size);
    CHECK_EQ(slg_batch_parse(copy, log_bytes.size, 1000, size, &batch, NULL), SLG_OK);
    for (int kernel = 0; kernel < SLG_CRC32C_KERNELS; kernel++) {
        if (slg_crc32c_available((slg_crc32c_kernel)kernel)) {
            CHECK_EQ(slg_batch_check_crc(&batch, copy, (slg_crc32c_kernel)kernel, NULL), SLG_OK);
        }
    }
    CHECK_EQ(slg_batch_check_header(&batch, NULL), SLG_OK);
    CHECK_EQ(batch.position, 1000);
    CHECK_EQ(batch.size, size);
    free(copy);
    return batch;
}

static void check_golden(void) {
    slg_batch b = parse(GOLDEN_TWO);
    CHECK(b.magic == 2 && b.base_offset == 0 && b.last_offset == 1 && b.record_count == 2);
    CHECK(b.base_timestamp == 1000 && b.max_timestamp == 1005 && b.crc == 0xdbbc396d);
    CHECK(b.producer_id == -1 && b.producer_epoch == -1 && b.base_sequence == -1);
    CHECK(b.partition_leader_epoch == -1 && b.attributes == 0);
    b = parse(GOLDEN_GZIP);
    CHECK(b.attributes == SLG_CODEC_GZIP && b.record_count == 1 && b.size == 92);
    b = parse(GOLDEN_ABORT);
    CHECK(b.base_offset == 5 && b.last_offset == 5 && b.attributes == 0x30);
    CHECK(b.producer_id == 1 && b.producer_epoch == 0 && b.partition_leader_epoch == 0);
    b = parse(GOLDEN_EMPTIED);
    CHECK(b.base_offset == 10 && b.last_offset == 13 && b.record_count == 0 && b.size == 61);
    CHECK(b.base_timestamp == -1 && b.max_timestamp == 1000 && b.base_sequence == 0);
    b = parse(GOLDEN_V1);
    CHECK(b.magic == 1 && b.base_offset == 0 && b.last_offset == 0 && b.record_count == 1);
    CHECK(b.base_timestamp == 1000 && b.max_timestamp == 1000 && b.producer_id == -1);
    b = parse(GOLDEN_V0);
    CHECK(b.magic == 0 && b.size == 30 && b.base_timestamp == -1 && b.max_timestamp == -1);
    b = parse(GOLDEN_V1_GZIP);
    CHECK(b.base_offset == 11 && b.last_offset == 11 && b.record_count == -1);
    CHECK(b.max_timestamp == 2000 && b.base_sequence == -1 && b.partition_leader_epoch == -1);
}

/* A scan of a span on the heap, without a byte around it, of a file that ends at `end`. */
static slg_status scan_span(slg_batch_scan *scan, const bytes *b, int64_t end, unsigned checks,
                            slg_error *error) {
    uint8_t *copy = exact_copy(b->data, b->size);
    *scan = (slg_batch_scan){.checks = checks, .end = end, .batches_left = INT64_MAX};
    slg_batch_scan_init(scan);
    const slg_status status = slg_batch_scan_memory(scan, copy, b->size, error);
    free(copy);
    return status;
}

/* The outcome is the same through windows of every size. */
static void same_through_files(const bytes *b, unsigned checks) {
    static const size_t targets[] = {1, 17, 61, 73, 150, 1 << 20};
    slg_batch_scan span;
    slg_error wanted = {.status = SLG_OK};
    const slg_status status = scan_span(&span, b, (int64_t)b->size, checks, &wanted);
    const int fd = file_of(b->data, b->size);
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        slg_window window;
        slg_batch_scan scan = {
            .checks = checks, .end = (int64_t)b->size, .batches_left = INT64_MAX};
        slg_error error = {.status = SLG_OK};
        slg_window_init(&window, slg_source_of(fd), scan.end, targets[i]);
        slg_batch_scan_init(&scan);
        CHECK_EQ(slg_batch_scan_file(&scan, &window, &error), status);
        CHECK_EQ(scan.position, span.position);
        CHECK_EQ(scan.batch_count, span.batch_count);
        CHECK_EQ(scan.record_count, span.record_count);
        CHECK_EQ(scan.last_offset, span.last_offset);
        CHECK_EQ(scan.offset_of_max_timestamp, span.offset_of_max_timestamp);
        CHECK_EQ(scan.next_position, span.next_position);
        if (status != SLG_END) {
            CHECK_EQ(error.status, wanted.status);
            CHECK_EQ(error.position, wanted.position);
            CHECK_EQ(error.expected, wanted.expected);
            CHECK_EQ(error.found, wanted.found);
        }
        slg_window_free(&window);
    }
    close(fd);
}

/* Three batches of offsets 0..2, 3..5, 6..8, timestamps 10, 30, 20; 72 bytes each. */
static size_t build_log(bytes *b) {
    b->size = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t time = i == 1 ? 30 : 10 + 5 * i;
        add_batch(b,
                  (batch_fields){
                      .base_offset = 3 * i, .last_delta = 2, .count = 1, .max_timestamp = time},
                  "\x14\0\0\0\1\x08test", 11);
    }
    return b->size / 3;
}

static const unsigned ALL = SLG_SCAN_CRC | SLG_SCAN_STRICT;

static void expect(const bytes *b, unsigned checks, slg_status status, int64_t position,
                   int64_t expected, int64_t found) {
    slg_batch_scan scan;
    slg_error error = {.status = SLG_OK};
    CHECK_EQ(scan_span(&scan, b, (int64_t)b->size, checks, &error), status);
    CHECK_EQ(error.status, status);
    CHECK_EQ(scan.position, position);
    CHECK_EQ(error.position, position);
    CHECK_EQ(error.expected, expected);
    CHECK_EQ(error.found, found);
    same_through_files(b, checks);
}

static void check_ends(void) {
    slg_batch_scan scan;
    slg_error error = {.status = SLG_OK};
    const size_t one = build_log(&log_bytes);
    const int64_t whole = 3 * (int64_t)one;
    CHECK_EQ(one, 72);
    CHECK_EQ(scan_span(&scan, &log_bytes, whole, ALL, &error), SLG_END);
    CHECK_EQ(error.status, SLG_OK); /* not written */
    CHECK(scan.position == whole && scan.batch_count == 3 && scan.record_count == 3);
    CHECK(scan.first_offset == 0 && scan.last_offset == 8 && scan.next_position == -1);
    CHECK(scan.max_timestamp == 30 && scan.offset_of_max_timestamp == 5);
    same_through_files(&log_bytes, ALL);
    /* The file holds more than the window: SLG_MORE at the first batch that is not whole. */
    for (size_t size = 0; size < 3 * one; size++) {
        log_bytes.size = size;
        CHECK_EQ(scan_span(&scan, &log_bytes, whole, ALL, NULL), SLG_MORE);
        CHECK_EQ(scan.position, size / one * one);
    }
    /* The same bytes are all there is: a torn tail, which 1 to 17 bytes are whatever they say. */
    for (size_t size = 1; size < 3 * one; size++) {
        log_bytes.size = size;
        const int64_t rest = (int64_t)(size % one);
        if (rest != 0) {
            /* Zero bytes in front of an offset or a length cannot be told from a zero tail. */
            const bool zero = rest <= (size < one ? 11 : 7);
            expect(&log_bytes, ALL, zero ? SLG_ZERO_TAIL : SLG_TORN_TAIL, (int64_t)size - rest,
                   zero         ? 0
                   : rest <= 17 ? 18
                                : 72,
                   rest);
        }
    }
    for (size_t zeros = 1; zeros < 100; zeros++) {
        build_log(&log_bytes);
        add_zeros(&log_bytes, zeros);
        expect(&log_bytes, ALL, SLG_ZERO_TAIL, whole, 0, (int64_t)zeros);
        log_bytes.data[log_bytes.size - 1] = 7;
        expect(&log_bytes, ALL, zeros <= 17 ? SLG_TORN_TAIL : SLG_BATCH_LENGTH, whole,
               zeros <= 17 ? 18 : 14, zeros <= 17 ? (int64_t)zeros : 0);
    }
    log_bytes.size = 0;
    CHECK_EQ(scan_span(&scan, &log_bytes, 0, ALL, NULL), SLG_END);
    CHECK(scan.first_offset == -1 && scan.last_offset == -1 && scan.max_timestamp == -1);
}

static void check_full(void) {
    slg_batch batches[3];
    const size_t one = build_log(&log_bytes);
    slg_batch_scan scan = {.end = (int64_t)log_bytes.size, .batches = batches, .batches_left = 2};
    slg_batch_scan_init(&scan);
    CHECK_EQ(slg_batch_scan_memory(&scan, log_bytes.data, log_bytes.size, NULL), SLG_FULL);
    CHECK_EQ(scan.position, 2 * one);
    CHECK(batches[0].base_offset == 0 && batches[1].base_offset == 3);
    scan.batches_left = 1;
    CHECK_EQ(slg_batch_scan_memory(&scan, log_bytes.data + 2 * one, one, NULL), SLG_END);
    CHECK(batches[2].base_offset == 6 && batches[2].position == 144 && scan.batch_count == 3);
}

/* The middle batch of the log with one field changed and the CRC made right again. */
static uint8_t *middle(size_t one) { return log_bytes.data + one; }

static void reseal(size_t one) {
    uint8_t *p = middle(one);
    slg_store_u32(p + SLG_BATCH_CRC_AT, slg_crc32c(SLG_CRC32C_PORTABLE, 0, p + SLG_BATCH_CRC_FROM,
                                                   one - SLG_BATCH_CRC_FROM));
}

typedef struct cause {
    int at;
    int width;
    int64_t value;
    slg_status status;
    int64_t expected;
    int64_t found;
} cause;

static void check_strict_causes(void) {
    static const cause causes[] = {
        {SLG_MAGIC_AT, 1, 3, SLG_BATCH_MAGIC, 2, 3},
        {SLG_MAGIC_AT, 1, 127, SLG_BATCH_MAGIC, 2, 127},
        {SLG_BATCH_ATTRIBUTES_AT, 2, 5, SLG_BATCH_CODEC, 4, 5},
        {SLG_BATCH_ATTRIBUTES_AT, 2, 7, SLG_BATCH_CODEC, 4, 7},
        {SLG_BATCH_ATTRIBUTES_AT, 2, 0x80, SLG_BATCH_ATTRIBUTES, 0x7f, 0x80},
        {SLG_BATCH_ATTRIBUTES_AT, 2, -0x8000, SLG_BATCH_ATTRIBUTES, 0x7f, -0x8000},
        {SLG_BATCH_ATTRIBUTES_AT, 2, 0x21, SLG_BATCH_ATTRIBUTES, 0x20, 0x21},
        {SLG_BATCH_RECORD_COUNT_AT, 4, -1, SLG_BATCH_RECORD_COUNT, 1, -1},
        {SLG_BATCH_RECORD_COUNT_AT, 4, 2, SLG_BATCH_RECORD_COUNT, 1, 2},
        {SLG_BATCH_RECORD_COUNT_AT, 4, INT32_MAX, SLG_BATCH_RECORD_COUNT, 1, INT32_MAX},
        {SLG_BATCH_LAST_OFFSET_DELTA_AT, 4, -1, SLG_BATCH_LAST_OFFSET, 0, -1},
        {SLG_BATCH_LAST_OFFSET_DELTA_AT, 4, INT32_MIN, SLG_BATCH_LAST_OFFSET, 0, INT32_MIN},
        {SLG_BATCH_BASE_OFFSET_AT, 8, 2, SLG_BATCH_OFFSET_ORDER, 3, 2},
        {SLG_BATCH_BASE_OFFSET_AT, 8, -5, SLG_BATCH_OFFSET_ORDER, 3, -5},
        {SLG_BATCH_BASE_OFFSET_AT, 8, INT64_MAX, SLG_BATCH_LAST_OFFSET, 0, 2},
    };
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        const cause *c = &causes[i];
        const size_t one = build_log(&log_bytes);
        uint8_t value[8];
        slg_store_i64(value, c->value);
        memcpy(middle(one) + c->at, value + 8 - c->width, (size_t)c->width);
        reseal(one);
        expect(&log_bytes, ALL, c->status, 72, c->expected, c->found);
        slg_batch_scan scan;
        (void)scan_span(&scan, &log_bytes, (int64_t)log_bytes.size, ALL, NULL);
        CHECK_EQ(scan.next_position, 144);
        /* Kafka's own iteration reads on. */
        CHECK_EQ(scan_span(&scan, &log_bytes, (int64_t)log_bytes.size, SLG_SCAN_CRC, NULL),
                 SLG_END);
        CHECK_EQ(scan.batch_count, 3);
        same_through_files(&log_bytes, SLG_SCAN_CRC);
    }
}

static void check_framing_causes(void) {
    static const int32_t lengths[] = {0, 13, -1, INT32_MIN};
    slg_batch_scan scan;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const size_t one = build_log(&log_bytes);
        slg_store_i32(middle(one) + SLG_BATCH_LENGTH_AT, lengths[i]);
        expect(&log_bytes, ALL, SLG_BATCH_LENGTH, 72, 14, lengths[i]);
        (void)scan_span(&scan, &log_bytes, (int64_t)log_bytes.size, ALL, NULL);
        CHECK_EQ(scan.next_position, -1);
    }
    size_t one = build_log(&log_bytes);
    slg_store_i32(middle(one) + SLG_BATCH_LENGTH_AT, 48);
    expect(&log_bytes, ALL, SLG_BATCH_SIZE, 72, 61, 60);
    slg_store_i32(middle(one) + SLG_BATCH_LENGTH_AT, INT32_MAX);
    expect(&log_bytes, ALL, SLG_TORN_TAIL, 72, (int64_t)INT32_MAX + 12, 144);
    /* A file of more than 2 GiB may hold it; the size does not fit 32 bits. */
    int32_t size;
    slg_error error;
    CHECK_EQ(slg_batch_frame(middle(one), one, 72, INT64_MAX, &size, &error), SLG_LIMIT);
    CHECK(error.expected == INT32_MAX && error.found == (int64_t)INT32_MAX + 12);

    for (size_t at = SLG_BATCH_CRC_FROM; at < one; at++) {
        one = build_log(&log_bytes);
        const uint32_t stored = slg_load_u32(middle(one) + SLG_BATCH_CRC_AT);
        middle(one)[at] ^= 0x40;
        const uint32_t computed =
            slg_crc32c(SLG_CRC32C_PORTABLE, 0, middle(one) + SLG_BATCH_CRC_FROM, one - 21);
        expect(&log_bytes, ALL, SLG_BATCH_CRC, 72, stored, computed);
    }
    CHECK_EQ(scan_span(&scan, &log_bytes, (int64_t)log_bytes.size, 0, NULL), SLG_END);
}

static void check_legacy_causes(void) {
    static const struct {
        int magic, attributes;
        slg_status status;
        int64_t expected;
    } cases[] = {
        {1, 4, SLG_LEGACY_CODEC, 3},         {0, 4, SLG_LEGACY_CODEC, 3},
        {1, 6, SLG_BATCH_CODEC, 3},          {0, 8, SLG_BATCH_ATTRIBUTES, 7},
        {1, 0x10, SLG_BATCH_ATTRIBUTES, 15}, {-1, 0, SLG_BATCH_MAGIC, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        log_bytes.size = 0;
        add_message(&log_bytes, cases[i].magic, cases[i].attributes, 7, 1, "test", 4);
        expect(&log_bytes, ALL, cases[i].status, 0, cases[i].expected,
               cases[i].magic < 0 ? cases[i].magic : cases[i].attributes);
    }
    log_bytes.size = 0;
    add_message(&log_bytes, 0, 0, 7, 1, "test", 4);
    log_bytes.data[SLG_MAGIC_AT] = 1; /* 30 bytes are too few for magic 1 */
    slg_store_u32(log_bytes.data + SLG_LEGACY_CRC_AT, slg_crc32(0, log_bytes.data + 16, 14));
    expect(&log_bytes, ALL, SLG_BATCH_SIZE, 0, 34, 30);
}

/* Random damage: every byte of the span is read in bounds, and files give the same. */
static void check_damage(void) {
    uint64_t state = 7;
    for (int round = 0; round < 600; round++) {
        build_log(&log_bytes);
        add_hex(&log_bytes, round % 2 == 0 ? GOLDEN_V1 : GOLDEN_ABORT);
        const int hits = 1 + (int)(random_next(&state) % 4);
        for (int i = 0; i < hits; i++) {
            /* Mostly in the first fields of an entry, where it hurts. */
            const size_t at = (random_next(&state) % 4) * 72 + random_next(&state) % 30;
            log_bytes.data[at % log_bytes.size] = (uint8_t)random_next(&state);
        }
        log_bytes.size -= random_next(&state) % 3 == 0 ? random_next(&state) % 80 : 0;
        same_through_files(&log_bytes, (unsigned)random_next(&state) & ALL);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 1 || chdir(argv[1]) == 0);
    check_golden();
    check_ends();
    check_full();
    check_strict_causes();
    check_framing_causes();
    check_legacy_causes();
    check_damage();
    return 0;
}
