/*
 * Scans of log bytes: the same through memory and through a window of any size, inside the file,
 * and what is accepted is what its headers say.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"

#include "seglog/rebuild.h"

enum { BATCHES_MAX = 512 };

typedef struct outcome {
    slg_status status;
    slg_error error;
    slg_batch_scan scan;
    slg_batch batches[BATCHES_MAX];
} outcome;

static slg_batch_scan scan_of(unsigned checks, size_t size, slg_batch *batches, int64_t room) {
    slg_batch_scan scan = {
        .checks = checks,
        .kernel = SLG_CRC32C_PORTABLE,
        .end = (int64_t)size,
        .batches = batches,
        .batches_left = room,
    };
    slg_batch_scan_init(&scan);
    return scan;
}

static bool is_final(slg_status status) { return status != SLG_OK && status != SLG_MORE; }

static void check_sound(const outcome *out, size_t size) {
    int64_t at = 0;
    int64_t records = 0;
    REQUIRE(is_final(out->status));
    REQUIRE(out->scan.position >= 0 && out->scan.position <= (int64_t)size);
    REQUIRE(out->scan.batch_count <= BATCHES_MAX);
    for (int64_t i = 0; i < out->scan.batch_count; i++) {
        const slg_batch *batch = &out->batches[i];
        REQUIRE(batch->position == at && batch->size > SLG_PREFIX_SIZE);
        at += batch->size;
        records += batch->record_count > 0 ? batch->record_count : 0;
        if (out->scan.checks & SLG_SCAN_STRICT) {
            REQUIRE(batch->magic >= 0 && batch->magic <= SLG_MAGIC_MAX);
            REQUIRE(batch->last_offset >= batch->base_offset);
            REQUIRE(i == 0 || batch->base_offset > out->batches[i - 1].last_offset);
        }
    }
    REQUIRE(at == out->scan.position && records == out->scan.record_count);
    if (out->status == SLG_END) {
        REQUIRE(at == (int64_t)size);
    }
    if (out->status >= SLG_BATCH_LENGTH) {
        REQUIRE(out->error.status == out->status);
        REQUIRE(out->error.position >= at && out->error.position <= (int64_t)size);
    }
    REQUIRE(out->scan.next_position == -1 ||
            (out->scan.next_position > at && out->scan.next_position <= (int64_t)size));
}

static void check_same(const outcome *a, const outcome *b) {
    REQUIRE(a->status == b->status);
    REQUIRE(a->scan.position == b->scan.position);
    REQUIRE(a->scan.batch_count == b->scan.batch_count);
    REQUIRE(a->scan.record_count == b->scan.record_count);
    REQUIRE(a->scan.first_offset == b->scan.first_offset);
    REQUIRE(a->scan.last_offset == b->scan.last_offset);
    REQUIRE(a->scan.max_timestamp == b->scan.max_timestamp);
    REQUIRE(a->scan.offset_of_max_timestamp == b->scan.offset_of_max_timestamp);
    REQUIRE(a->scan.next_position == b->scan.next_position);
    if (a->status >= SLG_BATCH_LENGTH || a->status == SLG_TORN_TAIL) {
        REQUIRE(a->error.position == b->error.position);
        REQUIRE(a->error.expected == b->error.expected && a->error.found == b->error.found);
    }
    for (int64_t i = 0; i < a->scan.batch_count; i++) {
        REQUIRE(a->batches[i].crc == b->batches[i].crc);
        REQUIRE(a->batches[i].last_offset == b->batches[i].last_offset);
    }
}

/* A place to begin in the middle is a whole entry of the file with a right checksum. */
static void check_find(const uint8_t *data, size_t size, int64_t from, size_t target) {
    slg_window window;
    slg_error error;
    slg_batch batch;
    int64_t found = -1;
    int32_t whole;
    slg_window_init(&window, slg_source_of(file_of(data, size)), (int64_t)size, target);
    const slg_status status =
        slg_batch_find(&window, from, (int64_t)size, SLG_CRC32C_PORTABLE, &found, &error);
    slg_window_free(&window);
    REQUIRE(status == SLG_OK || status == SLG_END || status == SLG_LIMIT);
    if (status == SLG_OK) {
        REQUIRE(found >= from && found < (int64_t)size);
        const size_t left = size - (size_t)found;
        REQUIRE(slg_batch_frame(data + found, left, found, (int64_t)size, &whole, &error) ==
                SLG_OK);
        REQUIRE(slg_batch_parse(data + found, left, found, whole, &batch, &error) == SLG_OK);
        REQUIRE(slg_batch_check_crc(&batch, data + found, SLG_CRC32C_PORTABLE, &error) == SLG_OK);
    }
}

/* Whatever the batches say, the indexes stay within their room and the counts within the log. */
static void check_rebuild(const outcome *out, uint8_t steer) {
    static uint8_t offsets[BATCHES_MAX * SLG_OFFSET_ENTRY_SIZE];
    static uint8_t times[BATCHES_MAX * SLG_TIME_ENTRY_SIZE];
    const size_t count = (size_t)out->scan.batch_count;
    slg_rebuild rebuild;
    slg_error error;
    size_t taken;
    slg_rebuild_init(&rebuild, count > 0 ? out->batches[0].base_offset : 0, 0, steer, steer * 4);
    const slg_status status =
        slg_rebuild_feed(&rebuild, out->batches, count, offsets, times, &taken, &error);
    REQUIRE(status == SLG_OK ? taken == count : taken < count);
    REQUIRE(rebuild.offset_entries <= steer / 2 && rebuild.time_entries <= steer / 3);
    REQUIRE(rebuild.size <= out->scan.position);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static outcome memory;
    static outcome file;
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const size_t target = (size_t)fuzz_byte(&input) * 16 + 1;
    const unsigned checks = steer & (SLG_SCAN_CRC | SLG_SCAN_STRICT);
    const int64_t room = (steer & 8U) ? 1 + (steer >> 5) : BATCHES_MAX;
    uint8_t *exact = fuzz_exact(input.data, input.size);
    if ((steer & 4U) == 0) {
        repair_crcs(exact, input.size);
    }

    memset(&memory.error, 0, sizeof memory.error);
    memory.scan = scan_of(checks, input.size, memory.batches, room);
    memory.status = slg_batch_scan_memory(&memory.scan, exact, input.size, &memory.error);
    check_sound(&memory, input.size);

    slg_window window;
    memset(&file.error, 0, sizeof file.error);
    file.scan = scan_of(checks, input.size, file.batches, room);
    slg_window_init(&window, slg_source_of(file_of(exact, input.size)), (int64_t)input.size,
                    target);
    file.status = slg_batch_scan_file(&file.scan, &window, &file.error);
    slg_window_free(&window);
    check_sound(&file, input.size);
    check_same(&memory, &file);
    check_find(exact, input.size, (int64_t)(steer % 64), target);
    check_rebuild(&memory, steer);
    free(exact);
    return 0;
}
