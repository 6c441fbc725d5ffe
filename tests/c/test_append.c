/* The active segment: writes, index entries, refusals, failures, and the appends of a leader. */
#define _POSIX_C_SOURCE 200809L
#include "build.h"

#include "seglog/append.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>

enum { BASE = 1000, NOW = 5000 };

static slg_segment_writer open_writer(int64_t interval) {
    slg_segment_writer writer;
    slg_segment_writer_init(&writer);
    writer.log_fd = file_of("", 0);
    writer.index_fd = file_of("", 0);
    writer.time_index_fd = file_of("", 0);
    writer.base_offset = BASE;
    writer.index_interval = interval;
    writer.offset_slots = writer.time_slots = 100;
    writer.state.last_index_offset = writer.state.last_time_offset = BASE;
    writer.state.max_timestamp_offset = BASE;
    writer.state.last_time = writer.state.max_timestamp = -1;
    return writer;
}

static void close_writer(slg_segment_writer *writer) {
    close(writer->log_fd);
    close(writer->index_fd);
    close(writer->time_index_fd);
    slg_segment_writer_free(writer);
}

static int64_t size_of(int fd) {
    struct stat st;
    CHECK(fstat(fd, &st) == 0);
    return (int64_t)st.st_size;
}

static slg_batch row(int n, int32_t size) {
    return (slg_batch){.base_offset = BASE + n,
                       .last_offset = BASE + n,
                       .max_timestamp = 100 + n,
                       .size = size,
                       .record_count = 1,
                       .magic = 2};
}

static void test_writes_and_entries(void) {
    slg_segment_writer writer = open_writer(100);
    slg_batch rows[10];
    uint8_t data[1000] = {0}, entry[12];
    slg_index_refusal refusal;
    slg_error error;
    size_t at;
    for (int n = 0; n < 10; n++) {
        rows[n] = row(n, 100);
    }
    CHECK_EQ(slg_segment_append(&writer, data, sizeof data, rows, 10, &refusal, &at, &error),
             SLG_OK);
    CHECK_EQ(refusal, SLG_INDEX_TAKES);
    CHECK_EQ(size_of(writer.log_fd), 1000);
    CHECK_EQ(writer.state.offset_entries, 4); /* strictly more than the interval: every other */
    CHECK_EQ(size_of(writer.index_fd), 32);
    CHECK_EQ(size_of(writer.time_index_fd), 48);
    CHECK(pread(writer.index_fd, entry, 8, 0) == 8);
    CHECK_EQ(slg_load_i32(entry), 2);
    CHECK_EQ(slg_load_i32(entry + 4), 200);
    CHECK(pread(writer.time_index_fd, entry, 12, 0) == 12);
    CHECK_EQ(slg_load_i64(entry), 102);
    CHECK_EQ(writer.state.first_timestamp, 100);
    /* An offset that does not go on: the bytes are written, the entry is not. */
    slg_batch back[3] = {row(-5, 100), row(-4, 100), row(-3, 100)};
    CHECK_EQ(slg_segment_append(&writer, data, 300, back, 3, &refusal, &at, &error), SLG_OK);
    CHECK(refusal != SLG_INDEX_TAKES);
    CHECK_EQ(writer.state.size, 1300);
    CHECK_EQ(size_of(writer.log_fd), 1300);
    CHECK_EQ(writer.state.offset_entries, 4);
    close_writer(&writer);
}

/* A file that may not grow: what is written of an append is cut off, and nothing else changes. */
static void test_a_full_disk(void) {
    slg_segment_writer writer = open_writer(0);
    slg_batch first = row(0, 400), second = row(1, 400);
    uint8_t data[400] = {0};
    slg_index_refusal refusal;
    slg_error error;
    size_t at;
    CHECK_EQ(slg_segment_append(&writer, data, 400, &first, 1, &refusal, &at, &error), SLG_OK);
    const slg_segment_state before = writer.state;
    struct rlimit limit;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const rlim_t old = limit.rlim_cur;
    limit.rlim_cur = 600;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_EQ(slg_segment_append(&writer, data, 400, &second, 1, &refusal, &at, &error), SLG_IO);
    limit.rlim_cur = old;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_EQ(size_of(writer.log_fd), 400);
    CHECK(memcmp(&before, &writer.state, sizeof before) == 0);
    CHECK_EQ(slg_segment_append(&writer, data, 400, &second, 1, &refusal, &at, &error), SLG_OK);
    CHECK_EQ(size_of(writer.log_fd), 800);
    close_writer(&writer);
}

static slg_leader_rules rules_of(bool is_span) {
    return (slg_leader_rules){.records = {.has_create_time = true,
                                          .now = NOW,
                                          .before_max = INT64_MAX,
                                          .after_max = 1000},
                              .batch_bytes_max = 1 << 20,
                              .segment_bytes_max = 1 << 20,
                              .segment_age_max = 1000000,
                              .next_offset = BASE,
                              .leader_epoch = 3,
                              .is_span = is_span,
                              .kernel = SLG_CRC32C_PORTABLE};
}

static void add_plain(bytes *b, int count, int64_t producer, int32_t sequence, int padding) {
    static bytes payload;
    static char value[5000];
    memset(value, 'v', sizeof value);
    value[padding] = '\0';
    payload.size = 0;
    for (int n = 0; n < count; n++) {
        add_record(&payload, n, n, "key", value, NULL, 0);
    }
    add_batch(b,
              (batch_fields){.count = count,
                             .last_delta = count - 1,
                             .base_timestamp = NOW,
                             .max_timestamp = NOW + count - 1,
                             .producer_id = producer,
                             .producer_epoch = producer < 0 ? -1 : 0,
                             .base_sequence = sequence,
                             .leader_epoch = -1},
              payload.data, payload.size);
}

static slg_appended lead(slg_segment_writer *writer, slg_producers *producers, slg_span *span,
                         const slg_leader_rules *rules, const bytes *b) {
    uint8_t *copy = exact_copy(b->data, b->size);
    slg_appended done;
    slg_error error;
    CHECK_EQ(slg_append_as_leader(writer, producers, span, rules, copy, b->size, &done, &error),
             SLG_OK);
    CHECK(memcmp(copy, b->data, b->size) == 0);
    free(copy);
    return done;
}

/* Small batches, large ones and small ones again; what is on the disk is the log that they are. */
static void test_a_span(void) {
    static bytes b;
    static uint8_t log[BYTES_MAX];
    slg_segment_writer writer = open_writer(1000);
    slg_producers producers;
    slg_span span;
    slg_producers_init(&producers);
    slg_span_init(&span);
    b.size = 0;
    int32_t sequence = 0;
    for (int n = 0; n < 30; n++) {
        const int count = 1 + n % 4;
        add_plain(&b, count, n % 2 == 0 ? 9 : -1, n % 2 == 0 ? sequence : -1,
                  n % 5 == 0 ? 3000 : n);
        sequence += n % 2 == 0 ? count : 0;
    }
    const slg_leader_rules rules = rules_of(true);
    const slg_appended done = lead(&writer, &producers, &span, &rules, &b);
    CHECK_EQ(done.bytes, b.size);
    CHECK_EQ(done.batches, 30);
    CHECK_EQ(done.first_offset, BASE);
    CHECK_EQ(writer.state.size, b.size);
    CHECK_EQ(pread(writer.log_fd, log, sizeof log, 0), b.size);
    slg_batch_scan scan = {.checks = SLG_SCAN_CRC | SLG_SCAN_STRICT,
                           .kernel = SLG_CRC32C_PORTABLE,
                           .end = (int64_t)b.size,
                           .batches_left = INT64_MAX};
    slg_error error;
    slg_batch_scan_init(&scan);
    CHECK_EQ(slg_batch_scan_memory(&scan, log, b.size, &error), SLG_END);
    CHECK_EQ(scan.first_offset, BASE);
    CHECK_EQ(scan.last_offset, done.last_offset);
    CHECK_EQ(scan.max_timestamp, done.max_timestamp);
    CHECK_EQ(scan.record_count, done.last_offset - BASE + 1);
    CHECK_EQ(slg_producers_find(&producers, 9)->batches[0].last_sequence >= 0, 1);
    slg_span_free(&span);
    slg_producers_free(&producers);
    close_writer(&writer);
}

/* Whatever is not plain is left alone, before anything has changed. */
static void test_what_is_not_plain(void) {
    static bytes b;
    slg_segment_writer writer = open_writer(1000);
    slg_producers producers;
    slg_span span;
    slg_producers_init(&producers);
    slg_span_init(&span);
    slg_leader_rules rules = rules_of(false);
    const slg_segment_state before = writer.state;
    for (int kind = 0; kind < 9; kind++) {
        b.size = 0;
        rules = rules_of(false);
        add_plain(&b, 2, kind == 7 ? 9 : -1, kind == 7 ? 5 : -1, 10);
        switch (kind) {
        case 0: add_plain(&b, 1, -1, -1, 10); break;            /* two, where one may be */
        case 1: b.data[b.size - 1] ^= 1; break;                 /* a CRC */
        case 2: rules.segment_bytes_max = 100; break;           /* a roll */
        case 3: rules.batch_bytes_max = 100; break;             /* too large */
        case 4: rules.records.now = NOW - 5000; break;          /* too far ahead */
        case 5: b.data[SLG_BATCH_ATTRIBUTES_AT + 1] = SLG_ATTRIBUTE_TRANSACTIONAL; break;
        case 6: b.data[SLG_BATCH_ATTRIBUTES_AT + 1] = SLG_CODEC_ZSTD; break;
        case 7: add_byte(&b, 0); break;                         /* a byte behind it */
        default: writer.offset_slots = 0; break;                /* an index that is full */
        }
        if (kind == 5 || kind == 6) {
            seal_batch(&b, 0);
        }
        const slg_appended done = lead(&writer, &producers, &span, &rules, &b);
        CHECK_EQ(done.bytes, 0);
        CHECK(memcmp(&before, &writer.state, sizeof before) == 0);
        CHECK_EQ(size_of(writer.log_fd), 0);
    }
    slg_span_free(&span);
    slg_producers_free(&producers);
    close_writer(&writer);
}

int main(void) {
    test_writes_and_entries();
    test_a_full_disk();
    test_a_span();
    test_what_is_not_plain();
    return 0;
}
