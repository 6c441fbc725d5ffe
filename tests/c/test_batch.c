/* Framing and scans of entries, over exact copies: a byte too many is a sanitizer's report. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <stdio.h>
#include <unistd.h>

#include "seglog/batch.h"
#include "seglog/format.h"
#include "seglog/wire.h"

enum { MAX_LOG = 4 << 20 };

/* One batch of `payload` bytes at the end of `log`; returns the new size. */
static size_t add_batch(uint8_t *log, size_t size, int64_t offset, size_t payload) {
    uint8_t *data = log + size;
    const size_t whole = SLG_BATCH_HEADER_SIZE + payload;
    memset(data, 0, SLG_BATCH_HEADER_SIZE);
    for (size_t i = 0; i < payload; i++) {
        data[SLG_BATCH_HEADER_SIZE + i] = (uint8_t)(i * 7 + whole);
    }
    slg_store_i64(data, offset);
    slg_store_i32(data + SLG_BATCH_LENGTH_AT, (int32_t)(whole - SLG_PREFIX_SIZE));
    data[SLG_BATCH_MAGIC_AT] = 2;
    slg_store_i64(data + SLG_BATCH_MAX_TIMESTAMP_AT, 1000 - offset);
    slg_store_i32(data + SLG_BATCH_RECORD_COUNT_AT, (int32_t)(payload / SLG_RECORD_SIZE_MIN));
    const uint32_t crc =
        slg_crc32c(SLG_CRC32C_PORTABLE, 0, data + SLG_BATCH_CRC_FROM, whole - SLG_BATCH_CRC_FROM);
    slg_store_u32(data + SLG_BATCH_CRC_AT, crc);
    return size + whole;
}

static slg_batch_scan scan_of(size_t end, unsigned checks) {
    slg_batch_scan scan = {.checks = checks,
                           .kernel = SLG_CRC32C_PORTABLE,
                           .end = (int64_t)end,
                           .batches_left = INT64_MAX};
    slg_batch_scan_init(&scan);
    return scan;
}

static slg_status scan_memory(const uint8_t *data, size_t size, slg_batch_scan *scan) {
    uint8_t *copy = exact_copy(data, size);
    slg_error error;
    const slg_status status = slg_batch_scan_memory(scan, copy, size, &error);
    free(copy);
    return status;
}

/* The same through a file and a window far too small for some of the batches. */
static slg_status scan_file(const uint8_t *data, size_t size, size_t target, slg_batch_scan *scan) {
    FILE *file = tmpfile();
    CHECK(file != NULL && fwrite(data, 1, size, file) == size && fflush(file) == 0);
    slg_window window;
    slg_error error;
    slg_window_init(&window, slg_source_of(fileno(file)), (int64_t)size, target);
    const slg_status status = slg_batch_scan_file(scan, &window, &error);
    CHECK(window.capacity <= (target > SLG_BATCH_HEADER_SIZE ? target : SLG_BATCH_HEADER_SIZE));
    slg_window_free(&window);
    fclose(file);
    return status;
}

static void test_cuts(uint8_t *log) {
    size_t ends[3];
    size_t size = 0;
    for (int i = 0; i < 3; i++) {
        size = add_batch(log, size, i, (size_t)(30 + 40 * i));
        ends[i] = size;
    }
    for (size_t cut = 0; cut <= size; cut++) {
        size_t whole = 0;
        int64_t batches = 0;
        for (int i = 0; i < 3 && ends[i] <= cut; i++, batches++) {
            whole = ends[i];
        }
        slg_batch_scan scan = scan_of(cut, SLG_SCAN_CRC | SLG_SCAN_STRICT);
        slg_status status = scan_memory(log, cut, &scan);
        /* An offset begins with zeros, so that a short torn tail looks like a zero tail. */
        const slg_status torn = slg_is_zero(log + whole, cut - whole) ? SLG_ZERO_TAIL
                                                                      : SLG_TORN_TAIL;
        CHECK_EQ(status, cut == whole ? SLG_END : torn);
        CHECK_EQ(scan.position, whole);
        CHECK_EQ(scan.batch_count, batches);
        for (size_t target = 61; target <= 81; target += 20) {
            slg_batch_scan from_file = scan_of(cut, SLG_SCAN_CRC | SLG_SCAN_STRICT);
            CHECK_EQ(scan_file(log, cut, target, &from_file), status);
            CHECK_EQ(from_file.position, scan.position);
        }
        /* As a window of the longer file: more is needed, and nothing behind the cut is read. */
        scan = scan_of(size, SLG_SCAN_CRC);
        status = scan_memory(log, cut, &scan);
        CHECK_EQ(status, cut == size ? SLG_END : SLG_MORE);
        CHECK_EQ(scan.position, whole);
    }
}

static void test_flips(uint8_t *log) {
    const size_t first = add_batch(log, 0, 5, 100);
    const size_t size = add_batch(log, first, 6, 100);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        log[bit / 8] ^= (uint8_t)(1U << bit % 8);
        slg_batch_scan scan = scan_of(size, SLG_SCAN_CRC | SLG_SCAN_STRICT);
        const slg_status status = scan_memory(log, size, &scan);
        const size_t at = bit / 8 % first;
        /* Base offset and leader epoch alone are outside of the CRC and of every rule. */
        if (at >= SLG_BATCH_LENGTH_AT && (at < SLG_BATCH_LEADER_EPOCH_AT || at > 15)) {
            CHECK(status != SLG_END);
            CHECK_EQ(scan.batch_count, bit / 8 < first ? 0 : 1);
        }
        slg_batch_scan from_file = scan_of(size, SLG_SCAN_CRC | SLG_SCAN_STRICT);
        CHECK_EQ(scan_file(log, size, 64, &from_file), status);
        log[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
}

static void test_windows(uint8_t *log) {
    size_t size = 0;
    for (int i = 0; i < 12; i++) {
        size = add_batch(log, size, i, (size_t)1 << (i + 7));
    }
    memset(log + size, 0, 70000);
    for (size_t target = 61; target < 300000; target = target * 3 + 1) {
        slg_batch collected[12];
        slg_batch_scan scan = scan_of(size + 70000, SLG_SCAN_CRC);
        scan.batches = collected;
        scan.batches_left = 12;
        CHECK_EQ(scan_file(log, size + 70000, target, &scan), SLG_FULL);
        CHECK_EQ(scan.batch_count, 12);
        CHECK_EQ(collected[11].last_offset, 11);
        CHECK_EQ(scan.max_timestamp, 1000);
        CHECK_EQ(scan.offset_of_max_timestamp, 0);
        scan.batches_left = 1;
        CHECK_EQ(scan_file(log, size + 70000, target, &scan), SLG_ZERO_TAIL);
        CHECK_EQ(scan.position, size);
    }
}

static slg_status find(const uint8_t *data, size_t size, int64_t from, int64_t until, size_t target,
                       int64_t *found) {
    FILE *file = tmpfile();
    CHECK(file != NULL && fwrite(data, 1, size, file) == size && fflush(file) == 0);
    slg_window window;
    slg_error error;
    slg_window_init(&window, slg_source_of(fileno(file)), (int64_t)size, target);
    const slg_status status =
        slg_batch_find(&window, from, until, SLG_CRC32C_PORTABLE, found, &error);
    slg_window_free(&window);
    fclose(file);
    return status;
}

/* From every byte of a log: the next batch, through windows smaller than one. */
static void test_find(uint8_t *log) {
    const size_t first = add_batch(log, 0, 0, 90);
    const size_t second = add_batch(log, first, 1, 400);
    const size_t size = add_batch(log, second, 2, 50);
    for (size_t from = 0; from < size; from++) {
        const size_t next = from == 0 ? 0 : from <= first ? first : second;
        for (size_t target = 61; target <= 661; target += 300) {
            int64_t found = -1;
            const slg_status status = find(log, size, (int64_t)from, (int64_t)size, target, &found);
            CHECK_EQ(status, from <= second ? SLG_OK : SLG_END);
            CHECK_EQ(found, from <= second ? (int64_t)next : -1);
            if (next > 0 && from <= second && from < next) {
                CHECK_EQ(find(log, size, (int64_t)from, (int64_t)next, target, &found), SLG_END);
            }
        }
    }
    log[first + 100] ^= 1;
    int64_t found = -1;
    CHECK_EQ(find(log, size, 1, (int64_t)size, 128, &found), SLG_OK);
    CHECK_EQ(found, second);
    memset(log, 2, MAX_LOG / 4);
    CHECK_EQ(find(log, MAX_LOG / 4, 0, MAX_LOG / 4, 4096, &found), SLG_END);
}

/* Headers in every 61 bytes, each with a length to the end and none with a right checksum. */
static void test_find_gives_up(uint8_t *log) {
    const size_t size = MAX_LOG / 2;
    int64_t found = -1;
    memset(log, 0, size);
    for (size_t at = 0; at + SLG_BATCH_HEADER_SIZE <= size; at += SLG_BATCH_HEADER_SIZE) {
        slg_store_i32(log + at + SLG_BATCH_LENGTH_AT, (int32_t)(size - at - SLG_PREFIX_SIZE));
        log[at + SLG_BATCH_MAGIC_AT] = 2;
        slg_store_u32(log + at + SLG_BATCH_CRC_AT, 12345);
    }
    CHECK_EQ(find(log, size, 0, (int64_t)size, 4096, &found), SLG_LIMIT);
    CHECK_EQ(found, -1);
}

static void test_until(uint8_t *log) {
    size_t size = 0, starts[8];
    for (int i = 0; i < 8; i++) {
        starts[i] = size;
        size = add_batch(log, size, i, (size_t)(40 * i));
    }
    for (size_t until = 0; until <= size + 1; until++) {
        slg_batch_scan scan = scan_of(size, SLG_SCAN_CRC);
        scan.until = (int64_t)until;
        const slg_status status = scan_file(log, size, 100, &scan);
        int64_t batches = 0;
        while (batches < 8 && starts[batches] < until) {
            batches++;
        }
        CHECK_EQ(scan.batch_count, batches);
        CHECK_EQ(status, batches == 8 ? SLG_END : SLG_FULL);
    }
}

int main(void) {
    uint8_t *log = malloc(MAX_LOG);
    CHECK(log != NULL);
    test_find(log);
    test_find_gives_up(log);
    test_until(log);
    test_cuts(log);
    test_flips(log);
    test_windows(log);
    free(log);
    return 0;
}
