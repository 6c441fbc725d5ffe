/* Walks by pread over files whose bytes are anything at all. */
#define _XOPEN_SOURCE 700 /* pwrite, ftruncate */
#include "seglog/fetch.h"

#include <fcntl.h>
#include <unistd.h>

#include "check.h"
#include "seglog/format.h"
#include "seglog/wire.h"

enum { BATCHES = 200, BATCH_BYTES = 700 };

static int scratch(const void *data, size_t size) {
    const int fd = open("scratch", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_EQ(write(fd, data, size), size);
    return fd;
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
    check_first_reads();
    check_walks();
    return 0;
}
