/*
 * A client's bytes appended natively: what is taken is in the file as a sound log with the offsets
 * that were next, and of everything else nothing has changed, the caller's bytes least of all.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"

#include "seglog/append.h"

enum { BASE = 70 };

static int scratch_file(int which) {
    static FILE *files[3];
    if (files[which] == NULL) {
        files[which] = tmpfile();
        REQUIRE(files[which] != NULL);
    }
    const int fd = fileno(files[which]);
    REQUIRE(ftruncate(fd, 0) == 0);
    return fd;
}

static slg_segment_writer writer_of(uint8_t steer) {
    slg_segment_writer writer;
    slg_segment_writer_init(&writer);
    writer.log_fd = scratch_file(0);
    writer.index_fd = scratch_file(1);
    writer.time_index_fd = scratch_file(2);
    writer.base_offset = BASE;
    writer.index_interval = (steer & 1) != 0 ? 0 : 4096;
    writer.offset_slots = writer.time_slots = (steer & 2) != 0 ? 3 : 1000;
    writer.state.last_index_offset = writer.state.last_time_offset = BASE;
    writer.state.max_timestamp_offset = BASE;
    writer.state.last_time = writer.state.max_timestamp = -1;
    return writer;
}

/* What clients send begins at 0: the golden logs' batches, as if they were on their way there. */
static void make_client(uint8_t *data, size_t size) {
    int32_t whole = 0;
    for (size_t at = 0; size - at > SLG_BATCH_HEADER_SIZE; at += (size_t)whole) {
        if (slg_batch_frame(data + at, size - at, (int64_t)at, (int64_t)size, &whole, NULL) !=
            SLG_OK) {
            break;
        }
        if (slg_load_i8(data + at + SLG_MAGIC_AT) == 2) {
            slg_store_i64(data + at, 0);
        }
    }
}

static void check_log(const slg_segment_writer *writer, const slg_appended *done) {
    const size_t size = (size_t)writer->state.size;
    uint8_t *log = malloc(size > 0 ? size : 1);
    REQUIRE(log != NULL);
    REQUIRE(lseek(writer->log_fd, 0, SEEK_END) == (off_t)size);
    REQUIRE(pread(writer->log_fd, log, size, 0) == (ssize_t)size);
    slg_analysis analysis = {.origin = SLG_ORIGIN_REPLICATION,
                             .leader_epoch = INT32_MAX,
                             .batch_bytes_max = INT64_MAX,
                             .needs_order = true,
                             .kernel = SLG_CRC32C_PORTABLE};
    slg_batch batch;
    slg_refusal refusal;
    int64_t next = BASE;
    size_t batches = 0;
    slg_analysis_init(&analysis);
    while ((refusal = slg_analyze_next(&analysis, log, size, &batch)) == SLG_ACCEPTED) {
        REQUIRE(batch.base_offset == next && batch.last_offset >= next);
        next = batch.last_offset + 1;
        batches++;
    }
    REQUIRE(refusal == SLG_NO_MORE && analysis.valid_bytes == (int64_t)size);
    REQUIRE(batches == done->batches);
    REQUIRE(batches == 0 || next == done->last_offset + 1);
    REQUIRE(lseek(writer->index_fd, 0, SEEK_END) ==
            writer->state.offset_entries * SLG_OFFSET_ENTRY_SIZE);
    REQUIRE(lseek(writer->time_index_fd, 0, SEEK_END) ==
            writer->state.time_entries * SLG_TIME_ENTRY_SIZE);
    free(log);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const slg_leader_rules rules = {
        .records = {.needs_key = (steer & 4) != 0,
                    .has_create_time = (steer & 8) == 0,
                    .now = INT64_C(1) << 41,
                    .before_max = INT64_MAX,
                    .after_max = INT64_MAX},
        .batch_bytes_max = (steer & 16) != 0 ? 300 : INT64_MAX,
        .segment_bytes_max = (steer & 32) != 0 ? 600 : INT32_MAX,
        .segment_age_max = (steer & 64) != 0 ? 100 : INT64_MAX,
        .next_offset = BASE,
        .leader_epoch = 9,
        .is_span = (steer & 128) == 0,
        .kernel = SLG_CRC32C_PORTABLE,
    };
    uint8_t *bytes = fuzz_exact(input.data, input.size);
    make_client(bytes, input.size);
    repair_crcs(bytes, input.size);
    uint8_t *before = fuzz_exact(bytes, input.size);
    slg_segment_writer writer = writer_of(steer);
    const slg_segment_state state = writer.state;
    slg_producers producers;
    slg_span span;
    slg_appended done;
    slg_error error;
    slg_producers_init(&producers);
    slg_span_init(&span);
    REQUIRE(slg_append_as_leader(&writer, &producers, &span, &rules, bytes, input.size, &done,
                                 &error) == SLG_OK);
    REQUIRE(memcmp(before, bytes, input.size) == 0 && done.bytes <= input.size);
    REQUIRE((int64_t)done.bytes == writer.state.size);
    if (done.bytes == 0) {
        REQUIRE(memcmp(&state, &writer.state, sizeof state) == 0 && done.batches == 0);
    }
    check_log(&writer, &done);
    slg_span_free(&span);
    slg_producers_free(&producers);
    slg_segment_writer_free(&writer);
    free(before);
    free(bytes);
    return 0;
}
