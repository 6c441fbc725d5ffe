/* Indexes made anew from batches: entries, refusals, undoing by a copy of the state. */
#include "check.h"

#include "seglog/format.h"
#include "seglog/rebuild.h"
#include "seglog/wire.h"

enum { BATCHES = 40, BASE = 1000, SIZE = 100 };

static slg_batch batch_at(int n) {
    return (slg_batch){.base_offset = BASE + n,
                       .last_offset = BASE + n,
                       .max_timestamp = 5000 + n,
                       .size = SIZE,
                       .record_count = 1,
                       .magic = 2,
                       .position = (int64_t)n * SIZE};
}

static slg_status feed(slg_rebuild *rebuild, const slg_batch *batches, size_t count,
                       size_t *taken) {
    /* Exactly the room that the contract asks for: a byte more is a sanitizer's report. */
    uint8_t *offsets = malloc(count * SLG_OFFSET_ENTRY_SIZE);
    uint8_t *times = malloc(count * SLG_TIME_ENTRY_SIZE);
    slg_error error = {0};
    CHECK(offsets != NULL && times != NULL);
    const int64_t before = rebuild->offset_entries;
    const slg_status status =
        slg_rebuild_feed(rebuild, batches, count, offsets, times, taken, &error);
    CHECK(status == SLG_OK || error.status == status);
    if (rebuild->offset_entries > before) {
        const int64_t last = rebuild->offset_entries - before - 1;
        CHECK_EQ(slg_load_i32(offsets + last * SLG_OFFSET_ENTRY_SIZE),
                 rebuild->last_indexed_offset - BASE);
    }
    free(offsets);
    free(times);
    return status;
}

static void test_growing(void) {
    slg_batch batches[BATCHES];
    slg_rebuild rebuild;
    uint8_t last[SLG_TIME_ENTRY_SIZE];
    size_t taken, written;
    for (int n = 0; n < BATCHES; n++) {
        batches[n] = batch_at(n);
    }
    slg_rebuild_init(&rebuild, BASE, 0, SIZE, 1 << 20);
    CHECK_EQ(feed(&rebuild, batches, BATCHES, &taken), SLG_OK);
    CHECK_EQ(taken, BATCHES);
    CHECK_EQ(rebuild.offset_entries, (BATCHES - 1) / 2); /* strictly more than the interval */
    CHECK_EQ(rebuild.size, BATCHES * SIZE);
    CHECK_EQ(slg_rebuild_next_offset(&rebuild), BASE + BATCHES);
    const slg_rebuild before = rebuild;
    CHECK_EQ(slg_rebuild_finish(&rebuild, last, &written, NULL), SLG_OK);
    CHECK_EQ(written, 1);
    CHECK_EQ(slg_load_i64(last), 5000 + BATCHES - 1);
    rebuild = before;
    CHECK_EQ(slg_rebuild_finish(&rebuild, last, &written, NULL), SLG_OK);
    CHECK_EQ(written, 1);
    CHECK_EQ(slg_rebuild_finish(&rebuild, last, &written, NULL), SLG_OK);
    CHECK_EQ(written, 0);
}

static void test_refusals(void) {
    slg_batch batches[3] = {batch_at(0), batch_at(1), batch_at(2)};
    slg_rebuild rebuild;
    size_t taken;
    const int64_t hostile[] = {BASE - 1, BASE + (int64_t)INT32_MAX + 1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        batches[2].last_offset = hostile[i];
        slg_rebuild_init(&rebuild, BASE, 0, 0, 1 << 20);
        CHECK_EQ(feed(&rebuild, batches, 3, &taken), SLG_BATCH_OFFSET_RANGE);
        CHECK_EQ(taken, 2);
    }
    batches[2].last_offset = BASE + 1;
    slg_rebuild_init(&rebuild, BASE, 0, 0, 1 << 20);
    CHECK_EQ(feed(&rebuild, batches, 3, &taken), SLG_INDEX_OFFSET_ORDER);
    CHECK_EQ(rebuild.failed, SLG_INDEX_KIND_OFFSET);
    for (int64_t room = 0; room <= 24; room++) {
        batches[2].last_offset = BASE + 2;
        slg_rebuild_init(&rebuild, BASE, 0, 0, room);
        CHECK_EQ(feed(&rebuild, batches, 3, &taken), SLG_INDEX_FULL);
        CHECK_EQ(taken, room < 24 ? 1 : 2);
        CHECK_EQ(rebuild.failed, room < 8 ? SLG_INDEX_KIND_OFFSET : SLG_INDEX_KIND_TIME);
    }
}

static void test_any_batches(void) {
    uint64_t state = 7;
    for (int round = 0; round < 2000; round++) {
        slg_batch batches[16];
        slg_rebuild rebuild;
        uint8_t last[SLG_TIME_ENTRY_SIZE];
        size_t taken, written;
        for (int n = 0; n < 16; n++) {
            batches[n] = batch_at(n);
            batches[n].last_offset += (int64_t)(random_next(&state) % 5) - 2;
            batches[n].base_offset = (int64_t)random_next(&state);
            batches[n].max_timestamp = (int64_t)random_next(&state);
            batches[n].size = (int32_t)(random_next(&state) % INT32_MAX);
        }
        slg_rebuild_init(&rebuild, BASE, 0, (int64_t)(random_next(&state) % 200), 100);
        const slg_status status = feed(&rebuild, batches, 16, &taken);
        CHECK(status == SLG_OK ? taken == 16 : taken < 16);
        CHECK(rebuild.offset_entries <= 12 && rebuild.time_entries <= 7);
        slg_rebuild_finish(&rebuild, last, &written, NULL);
        CHECK(rebuild.time_entries <= 8);
    }
}

int main(void) {
    test_growing();
    test_refusals();
    test_any_batches();
    return 0;
}
