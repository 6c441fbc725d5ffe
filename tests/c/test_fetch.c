/* Searches and walks by pread over files whose bytes are anything at all. */
#define _XOPEN_SOURCE 700 /* pwrite, ftruncate */
#include "seglog/fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include "check.h"
#include "index_copy.h"
#include "seglog/format.h"
#include "seglog/wire.h"

enum { BATCHES = 200, BATCH_BYTES = 700 };

static int scratch(const void *data, size_t size) {
    const int fd = open("scratch", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, data, size), size);
    return fd;
}

/* The search by descriptor gives what the search in memory gives, whatever the bytes are. */
static void check_searches(void) {
    uint64_t seed = 1;
    slg_error error;
    for (int round = 0; round < 60; round++) {
        const bool times = round % 2 == 1;
        const bool sorted = round % 3 == 1;
        const size_t width = times ? SLG_TIME_ENTRY_SIZE : SLG_OFFSET_ENTRY_SIZE;
        const size_t entries = random_next(&seed) % 4000;
        uint8_t *data = calloc(entries + 1, width);
        CHECK(data != NULL);
        for (size_t n = 0; n < entries; n++) {
            const uint64_t any = random_next(&seed);
            if (times) {
                slg_store_i64(data + n * width, sorted ? (int64_t)n * 3 : (int64_t)any);
            } else {
                slg_store_i32(data + n * width, sorted ? (int32_t)n * 3 : (int32_t)any);
            }
            slg_store_i32(data + n * width + width - 4, sorted ? (int32_t)n * 5 : (int32_t)any);
        }
        const int fd = scratch(data, entries * width);
        const slg_fetch_index index = {
            .kind = times ? SLG_INDEX_KIND_TIME : SLG_INDEX_KIND_OFFSET,
            .fd = fd,
            .base_offset = 7,
            .entries = entries,
        };
        for (int ask = 0; ask < 50; ask++) {
            const int64_t target = (int32_t)random_next(&seed) % (sorted ? 13000 : INT32_MAX);
            int64_t slot;
            slg_index_entry entry, next;
            CHECK_EQ(
                slg_fetch_search(&index, SLG_FETCH_LOWER, target, &slot, &entry, &next, &error),
                SLG_OK);
            CHECK_EQ(slot, lookup(index.kind, data, entries, 7, target));
            if (!times) {
                CHECK_EQ(slg_fetch_search(&index, SLG_FETCH_UPPER_POSITION, target, &slot, &entry,
                                          &next, &error),
                         SLG_OK);
                CHECK_EQ(slot, upper_bound(data, entries, target));
            }
        }
        close(fd);
        free(data);
    }
}

/* A map gives what the file gives; once it is detached, the file may be cut under it. */
static void check_maps(void) {
    uint64_t seed = 3;
    slg_error error;
    enum { ENTRIES = 30000, SIZE = ENTRIES * SLG_OFFSET_ENTRY_SIZE };
    uint8_t *data = calloc(ENTRIES, SLG_OFFSET_ENTRY_SIZE);
    CHECK(data != NULL);
    for (size_t n = 0; n < ENTRIES; n++) {
        slg_store_i32(data + n * SLG_OFFSET_ENTRY_SIZE, (int32_t)n * 3 + 1);
        slg_store_i32(data + n * SLG_OFFSET_ENTRY_SIZE + 4, (int32_t)n * 7);
    }
    const int fd = scratch(data, SIZE);
    const slg_fetch_index by_file = {SLG_INDEX_KIND_OFFSET, fd, 7, ENTRIES, NULL};
    slg_fetch_map map;
    CHECK_EQ(slg_fetch_map_open(&map, fd, SIZE, &error), SLG_OK);
    slg_fetch_index by_map = by_file;
    by_map.map = &map;
    for (int detached = 0; detached < 2; detached++) {
        for (int ask = 0; ask < 2000; ask++) {
            const int64_t target = (int64_t)(random_next(&seed) % (3 * ENTRIES + 20));
            int64_t slot, wanted_slot;
            slg_index_entry wanted, entry, next;
            by_map.entries = 1 + (size_t)(random_next(&seed) % ENTRIES);
            slg_fetch_index same = by_file;
            same.entries = by_map.entries;
            CHECK_EQ(slg_fetch_search(&same, SLG_FETCH_LOWER, target, &wanted_slot, &wanted, &next,
                                      &error),
                     SLG_OK);
            CHECK_EQ(
                slg_fetch_search(&by_map, SLG_FETCH_LOWER, target, &slot, &entry, &next, &error),
                SLG_OK);
            CHECK(slot == wanted_slot && entry.key == wanted.key && entry.value == wanted.value);
            CHECK(next.value < 0 || (next.key > target && next.value == (slot + 1) * 7));
            CHECK(detached || slot + 1 == (int64_t)by_map.entries || next.value >= 0);
        }
        CHECK_EQ(slg_fetch_map_detach(&map, &error), SLG_OK);
    }
    CHECK_EQ(ftruncate(fd, 80), 0);
    CHECK(map.data[SIZE - 1] == 0); /* no SIGBUS */
    int64_t slot;
    slg_index_entry entry, next;
    by_map.entries = ENTRIES;
    CHECK_EQ(slg_fetch_search(&by_map, SLG_FETCH_LOWER, 5, &slot, &entry, &next, &error),
             SLG_FILE_SHRANK);
    slg_fetch_map_close(&map);
    CHECK_EQ(slg_fetch_map_open(&map, fd, 0, &error), SLG_OK);
    slg_fetch_map_close(&map);
    close(fd);
    free(data);
}

/* Five batches of 1000 bytes and ten records between two entries, whose keys are last offsets. */
static void check_first_reads(void) {
    const slg_index_entry entry = {9, 0}, next = {59, 5000}, none = {9, -1};
    const size_t header = SLG_BATCH_HEADER_SIZE;
    for (int64_t target = 9; target < 59; target++) {
        const size_t read = slg_fetch_first_read(target, 0, &entry, &next, 1000);
        const size_t end = 1000 * ((size_t)target / 10 + 1);
        CHECK(read >= end + header && read <= end + 1000 + header && read <= 6000 + header);
    }
    CHECK_EQ(slg_fetch_first_read(30, 0, &entry, &none, 1000), SLG_FETCH_WINDOW);
    CHECK_EQ(slg_fetch_first_read(30, 0, &entry, &next, 9000), header);
    const slg_index_entry hostile[] = {{INT64_MIN, 0}, {INT64_MAX, 100}, {30, 0}, {-1, INT64_MAX}};
    for (size_t i = 0; i < 16; i++) {
        const size_t read =
            slg_fetch_first_read(30, 0, &hostile[i / 4], &hostile[i % 4], SLG_FETCH_WINDOW);
        CHECK(read <= 2 * SLG_FETCH_WINDOW + header);
    }
}

static size_t fill(uint8_t *data, uint64_t *seed, int64_t bad_one_in) {
    size_t size = 0;
    int64_t offset = 100;
    for (int n = 0; n < BATCHES; n++) {
        uint8_t *p = data + size;
        const size_t bytes = SLG_BATCH_HEADER_SIZE + random_next(seed) % BATCH_BYTES;
        const bool bad = bad_one_in > 0 && (int64_t)(random_next(seed) % (uint64_t)bad_one_in) == 0;
        memset(p, 0, bytes);
        slg_store_i64(p, offset);
        slg_store_i32(p + SLG_PREFIX_LENGTH_AT,
                      bad ? (int32_t)random_next(seed) : (int32_t)bytes - SLG_PREFIX_SIZE);
        p[SLG_MAGIC_AT] = 2;
        slg_store_i32(p + SLG_BATCH_LAST_OFFSET_DELTA_AT, 4);
        offset += 5;
        size += bytes;
    }
    return size;
}

static void check_walks(void) {
    static uint8_t data[BATCHES * (BATCH_BYTES + SLG_BATCH_HEADER_SIZE)];
    uint64_t seed = 2;
    slg_error error;
    slg_fetch_batch found;
    slg_fetch_window *window = malloc(sizeof *window);
    CHECK(window != NULL);
    const size_t size = fill(data, &seed, 0);
    int fd = scratch(data, size);
    for (int64_t target = 90; target < 100 + 5 * BATCHES; target++) {
        CHECK_EQ(slg_fetch_find(fd, 0, (int64_t)size, target, (size_t)(target % 9) * 900, window,
                                &found, &error),
                 SLG_OK);
        CHECK_EQ(found.base_offset, target < 100 ? 100 : target - (target - 100) % 5);
        CHECK_EQ(slg_load_i64(data + found.position), found.base_offset);
    }
    CHECK_EQ(slg_fetch_find(fd, 0, (int64_t)size, 100 + 5 * BATCHES, 0, window, &found, &error),
             SLG_END);
    CHECK_EQ(ftruncate(fd, 5000), 0);
    CHECK_EQ(slg_fetch_find(fd, 0, (int64_t)size, 100 + 5 * BATCHES, 0, window, &found, &error),
             SLG_FILE_SHRANK);
    close(fd);
    CHECK_EQ(slg_fetch_find(fd, 0, (int64_t)size, 100, 0, window, &found, &error), SLG_IO);
    for (int round = 0; round < 300; round++) {
        const size_t hostile = fill(data, &seed, 40);
        fd = scratch(data, hostile);
        for (int ask = 0; ask < 20; ask++) {
            const int64_t from = (int64_t)(random_next(&seed) % (hostile + 100));
            const int64_t end = (int64_t)(random_next(&seed) % hostile);
            const slg_status status = slg_fetch_find(
                fd, from, end, (int64_t)(random_next(&seed) % 1200), 700, window, &found, &error);
            CHECK(status != SLG_OK ||
                  (found.position >= from && found.size >= 14 + SLG_PREFIX_SIZE &&
                   found.position + found.size <= end));
        }
        close(fd);
    }
    free(window);
}

int main(void) {
    check_searches();
    check_maps();
    check_first_reads();
    check_walks();
    return 0;
}
