/* Index entries: golden files, searches against a plain bisection, every cause, opened files. */
#define _XOPEN_SOURCE 700 /* symlink, mkfifo, truncate */

#include "seglog/index.h"

#include "build.h"
#include "index_copy.h"

#include <sys/stat.h>

static bytes file_bytes;

static void add_offset_entry(int32_t offset, int32_t position) {
    add_i32(&file_bytes, offset);
    add_i32(&file_bytes, position);
}

static void add_time_entry(int64_t timestamp, int32_t offset) {
    add_i64(&file_bytes, timestamp);
    add_i32(&file_bytes, offset);
}

static void add_txn_entry(int version, int64_t first, int64_t last) {
    slg_store_i16(add_zeros(&file_bytes, 2), (int16_t)version);
    add_i64(&file_bytes, 1);
    add_i64(&file_bytes, first);
    add_i64(&file_bytes, last);
    add_i64(&file_bytes, 8);
}

static void check_golden(void) {
    static const int64_t keys[] = {41, 42, 43};
    file_bytes.size = 0;
    add_hex(&file_bytes, "00000001 00000048  00000002 00000090  00000003 000000d8");
    for (size_t i = 0; i < 3; i++) {
        const slg_index_entry e = slg_index_entry_at(SLG_INDEX_KIND_OFFSET, file_bytes.data, i, 40);
        CHECK(e.key == keys[i] && e.value == 72 * ((int64_t)i + 1));
    }
    for (int64_t target = 38; target < 46; target++) {
        const int64_t slot = target < 41 ? -1 : target > 43 ? 2 : target - 41;
        CHECK_EQ(lookup(SLG_INDEX_KIND_OFFSET, file_bytes.data, 3, 40, target), slot);
    }
    CHECK_EQ(upper_bound(file_bytes.data, 3, 0), 0);
    CHECK_EQ(upper_bound(file_bytes.data, 3, 73), 1);
    CHECK_EQ(upper_bound(file_bytes.data, 3, 217), -1);
    CHECK_EQ(upper_bound(file_bytes.data, 0, 0), -1);
    file_bytes.size = 0;
    add_hex(&file_bytes, "0000000000000bb8 00000001  0000000000000fa0 00000003");
    const slg_index_entry e = slg_index_entry_at(SLG_INDEX_KIND_TIME, file_bytes.data, 1, 40);
    CHECK(e.key == 4000 && e.value == 43);
    CHECK_EQ(lookup(SLG_INDEX_KIND_TIME, file_bytes.data, 2, 40, 3999), 0);
    file_bytes.size = 0;
    add_hex(&file_bytes, "00000000000000000001 0000000000000000 000000000000001d 0000000000000008");
    const slg_aborted_txn txn = slg_aborted_txn_at(file_bytes.data, 0);
    CHECK(txn.version == 0 && txn.producer_id == 1 && txn.first_offset == 0);
    CHECK(txn.last_offset == 29 && txn.last_stable_offset == 8);
    CHECK_EQ(file_bytes.size, slg_index_entry_size(SLG_INDEX_KIND_TXN));
}

/* ---- searches ------------------------------------------------------------------------------- */

/* Largest slot whose key is <= target, without any warm section. */
static int64_t plain_lookup(const uint8_t *data, slg_index_kind kind, size_t entries,
                            int64_t target) {
    size_t low = 0;
    size_t high = entries;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (slg_index_entry_at(kind, data, middle, 1000).key <= target) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (int64_t)low - 1;
}

/* Keys 10, 20, 30, ...; every key, and the numbers beside it. */
static void check_searches(void) {
    static const size_t sizes[] = {0,    1,    2,    3,    10,   681,  682,  683,  684,  685, 1023,
                                   1024, 1025, 1026, 1027, 1366, 2047, 2048, 2049, 2050, 3000};
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const int32_t entries = (int32_t)sizes[i];
            file_bytes.size = 0;
            for (int32_t n = 1; n <= entries; n++) {
                if (kind == SLG_INDEX_KIND_OFFSET) {
                    add_offset_entry(10 * n, 100 * n);
                } else {
                    add_time_entry(1000 + 10 * n, n);
                }
            }
            uint8_t *copy = exact_copy(file_bytes.data, file_bytes.size);
            for (int64_t target = 1000; target <= 1000 + 10 * (entries + 2); target += 3) {
                CHECK_EQ(lookup((slg_index_kind)kind, copy, sizes[i], 1000, target),
                         plain_lookup(copy, (slg_index_kind)kind, sizes[i], target));
            }
            const int64_t last = 1000 + 10 * (int64_t)entries;
            CHECK_EQ(lookup((slg_index_kind)kind, copy, sizes[i], 1000, last), entries - 1);
            CHECK_EQ(lookup((slg_index_kind)kind, copy, sizes[i], 1000, INT64_MIN), -1);
            CHECK_EQ(lookup((slg_index_kind)kind, copy, sizes[i], 1000, INT64_MAX), entries - 1);
            free(copy);
        }
    }
}

/* Any bytes, any target: a slot inside, or none. */
static void check_hostile_searches(void) {
    uint64_t state = 3;
    for (int round = 0; round < 300; round++) {
        const size_t entries = random_next(&state) % 1500;
        file_bytes.size = 0;
        for (uint8_t *p = add_zeros(&file_bytes, entries * 12);
             p < file_bytes.data + file_bytes.size; p++) {
            *p = (uint8_t)random_next(&state);
        }
        uint8_t *copy = exact_copy(file_bytes.data, entries * (round % 2 ? 12 : 8));
        for (int i = 0; i < 50; i++) {
            const int64_t target = (int64_t)random_next(&state) >> (random_next(&state) % 64);
            const slg_index_kind kind = round % 2 ? SLG_INDEX_KIND_TIME : SLG_INDEX_KIND_OFFSET;
            const int64_t slot = lookup(kind, copy, entries, INT64_MAX - 5, target);
            CHECK(slot >= -1 && slot < (int64_t)entries);
            const int64_t upper = upper_bound(copy, entries, target);
            CHECK(upper >= -1 && upper < (int64_t)entries);
        }
        free(copy);
    }
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Whole entries are fed in pieces of every small number; the cause is the same. */
static void expect(slg_index_kind kind, bool strict, slg_status wanted, int64_t position,
                   int64_t expected, int64_t found) {
    const size_t width = slg_index_entry_size(kind);
    const size_t whole = file_bytes.size / width * width;
    for (size_t piece = width; piece <= whole + width; piece += width) {
        slg_index_check check;
        slg_error error = {.status = SLG_OK};
        slg_status status = SLG_OK;
        slg_index_check_begin(&check, kind, 1000, 2000, 4096);
        check.strict = strict;
        for (size_t at = 0; at < whole && status == SLG_OK; at += piece) {
            const size_t size = whole - at < piece ? whole - at : piece;
            uint8_t *copy = exact_copy(file_bytes.data + at, size);
            status = slg_index_check_feed(&check, copy, size, &error);
            free(copy);
        }
        if (status == SLG_OK) {
            status = slg_index_check_finish(&check, (int64_t)file_bytes.size, &error);
        }
        CHECK_EQ(status, wanted);
        CHECK_EQ(error.status, wanted);
        if (wanted != SLG_OK) {
            CHECK_EQ(error.position, position);
            CHECK_EQ(error.expected, expected);
            CHECK_EQ(error.found, found);
        }
    }
}

typedef struct cause {
    int64_t entries[4][2]; /* offset and position, or timestamp and offset */
    int count;
    int more;              /* bytes behind them, zero */
    slg_status status;
    int64_t position;
    int64_t expected;
    int64_t found;
} cause;

static void check_causes(slg_index_kind kind, const cause *causes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const cause *c = &causes[i];
        file_bytes.size = 0;
        for (int n = 0; n < c->count; n++) {
            if (kind == SLG_INDEX_KIND_OFFSET) {
                add_offset_entry((int32_t)c->entries[n][0], (int32_t)c->entries[n][1]);
            } else {
                add_time_entry(c->entries[n][0], (int32_t)c->entries[n][1]);
            }
        }
        add_zeros(&file_bytes, (size_t)c->more);
        expect(kind, false, c->status, c->position, c->expected, c->found);
    }
}

static void check_offset_causes(void) {
    static const cause causes[] = {
        {{{0, 0}}, 0, 0, SLG_OK, 0, 0, 0},
        {{{1, 72}, {2, 144}, {999, 4095}}, 3, 0, SLG_OK, 0, 0, 0},
        {{{0, 0}, {2, 144}}, 2, 0, SLG_OK, 0, 0, 0}, /* a zero entry in front is sound */
        {{{1, 72}, {1, 144}}, 2, 0, SLG_INDEX_OFFSET_ORDER, 8, 1001, 1001},
        {{{5, 72}, {4, 144}}, 2, 0, SLG_INDEX_OFFSET_ORDER, 8, 1005, 1004},
        {{{1, 72}, {0, 0}, {2, 144}}, 3, 0, SLG_INDEX_OFFSET_ORDER, 8, 1001, 1000},
        {{{0, 0}, {0, 0}, {2, 144}}, 3, 0, SLG_INDEX_OFFSET_ORDER, 8, 1000, 1000},
        {{{-1, 72}}, 1, 0, SLG_INDEX_OFFSET_RANGE, 0, 1000, 999},
        {{{1, 72}, {1000, 144}}, 2, 0, SLG_INDEX_OFFSET_RANGE, 8, 1000, 2000},
        {{{INT32_MAX, 72}}, 1, 0, SLG_INDEX_OFFSET_RANGE, 0, 1000, 1000 + (int64_t)INT32_MAX},
        {{{1, 72}, {2, 72}}, 2, 0, SLG_INDEX_POSITION_ORDER, 12, 72, 72},
        {{{1, 4096}}, 1, 0, SLG_INDEX_POSITION_RANGE, 4, 4096, 4096},
        {{{1, -1}}, 1, 0, SLG_INDEX_POSITION_RANGE, 4, 4096, -1},
        {{{1, 72}}, 1, 3, SLG_INDEX_SIZE, 8, 8, 11},
        {{{1, 72}}, 1, 24, SLG_INDEX_PADDED, 8, 8, 32},
        {{{0, 0}}, 0, 24, SLG_INDEX_UNWRITTEN, 0, 0, 24},
        {{{0, 0}}, 0, 8, SLG_INDEX_UNWRITTEN, 0, 0, 8},
    };
    check_causes(SLG_INDEX_KIND_OFFSET, causes, sizeof causes / sizeof causes[0]);
}

static void check_time_causes(void) {
    static const cause causes[] = {
        {{{1, 0}, {2, 0}, {INT64_MAX, 999}}, 3, 0, SLG_OK, 0, 0, 0},
        {{{0, 0}}, 1, 0, SLG_OK, 0, 0, 0}, /* timestamp 0 at the base offset */
        {{{3, 1}, {3, 2}}, 2, 0, SLG_INDEX_TIME_ORDER, 12, 3, 3},
        {{{3, 1}, {2, 2}}, 2, 0, SLG_INDEX_TIME_ORDER, 12, 3, 2},
        {{{-7, 1}}, 1, 0, SLG_INDEX_TIME_ORDER, 0, -1, -7},
        {{{3, 5}, {4, 4}}, 2, 0, SLG_INDEX_OFFSET_ORDER, 20, 1005, 1004},
        {{{3, 1000}}, 1, 0, SLG_INDEX_OFFSET_RANGE, 8, 1000, 2000},
        {{{3, -1}}, 1, 0, SLG_INDEX_OFFSET_RANGE, 8, 1000, 999},
        {{{3, 1}}, 1, 1, SLG_INDEX_SIZE, 12, 12, 13},
        {{{3, 1}}, 1, 12, SLG_INDEX_PADDED, 12, 12, 24},
        {{{0, 0}}, 0, 24, SLG_INDEX_UNWRITTEN, 0, 0, 24},
    };
    check_causes(SLG_INDEX_KIND_TIME, causes, sizeof causes / sizeof causes[0]);
}

/* Kafka's own rules, and those that come with `strict`. */
static void expect_txn(slg_status kafka, slg_status strict, int64_t position, int64_t expected,
                       int64_t found) {
    expect(SLG_INDEX_KIND_TXN, false, kafka, position, expected, found);
    expect(SLG_INDEX_KIND_TXN, true, strict, position, expected, found);
}

static void check_txn_causes(void) {
    file_bytes.size = 0;
    add_txn_entry(0, 1000, 1029);
    add_txn_entry(0, 900, 1030);
    expect_txn(SLG_OK, SLG_OK, 0, 0, 0);
    add_zeros(&file_bytes, 5);
    expect_txn(SLG_OK, SLG_TXN_SIZE, 68, 34, 73);
    file_bytes.size = 68;
    add_txn_entry(0, 900, 1030);
    expect_txn(SLG_OK, SLG_TXN_OFFSET, 86, 1031, 1030);
    file_bytes.size = 34;
    add_txn_entry(0, 900, INT64_MAX); /* nothing can follow, and "one more" overflows */
    add_txn_entry(0, 900, 1031);
    expect_txn(SLG_OK, SLG_TXN_OFFSET, 86, INT64_MAX, 1031);
    file_bytes.size = 34;
    add_txn_entry(0, 900, 999);
    expect_txn(SLG_TXN_OFFSET, SLG_TXN_OFFSET, 52, 1000, 999);
    file_bytes.size = 34;
    add_txn_entry(0x0100, 1000, 1030);
    expect_txn(SLG_TXN_VERSION, SLG_TXN_VERSION, 34, 0, 0x0100);
    file_bytes.size = 34;
    add_txn_entry(1, 1000, 1030); /* Kafka looks at the first byte alone */
    expect_txn(SLG_OK, SLG_TXN_VERSION, 34, 0, 1);
    file_bytes.size = 34;
    add_txn_entry(-1, 1000, 1030);
    expect_txn(SLG_OK, SLG_TXN_VERSION, 34, 0, -1);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void write_file(const char *name) {
    const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, file_bytes.data, file_bytes.size) == (ssize_t)file_bytes.size);
    close(fd);
}

static slg_status open_proving(slg_index_file *file, const char *path, slg_error *error) {
    return slg_index_file_open(file, SLG_INDEX_KIND_OFFSET, 5, SLG_INDEX_PROVING, path, error);
}

static void check_files(void) {
    slg_index_file file;
    slg_index_found found;
    slg_error error;
    CHECK_EQ(open_proving(&file, "none", &error), SLG_OK);
    CHECK(file.entries == 0 && file.file_size == -1 && !slg_index_file_shrank(&file));
    slg_index_file_close(&file);
    CHECK_EQ(open_proving(&file, ".", &error), SLG_FILE_KIND);
    CHECK(symlink("index", "link") == 0 && mkfifo("fifo", 0600) == 0);
    CHECK_EQ(open_proving(&file, "link", &error), SLG_FILE_KIND);
    CHECK_EQ(open_proving(&file, "fifo", &error), SLG_FILE_KIND);
    /* Copied and read in place, with a padding of zeros and bytes that are no entry behind. */
    for (int32_t entries = 1; entries <= 10000; entries = entries * 3 + 1) {
        file_bytes.size = 0;
        for (int32_t n = 1; n <= entries; n++) {
            add_offset_entry(n, 72 * n);
        }
        add_zeros(&file_bytes, 8 * 700 + 5);
        write_file("index");
        CHECK_EQ(open_proving(&file, "index", &error), SLG_OK);
        CHECK_EQ(file.entries, entries);
        CHECK_EQ(file.size, 8 * entries);
        CHECK_EQ(file.file_size, file_bytes.size);
        CHECK((file.fd >= 0) == (file.size > SLG_INDEX_COPY_MAX));
        slg_index_entry entry;
        CHECK_EQ(
            slg_index_file_search(&file, file.entries, SLG_INDEX_LOWER, INT64_MAX, &found, &error),
            SLG_OK);
        CHECK_EQ(found.slot, entries - 1);
        CHECK_EQ(
            slg_index_file_search(&file, file.entries, SLG_INDEX_UPPER_VALUE, 71, &found, &error),
            SLG_OK);
        CHECK_EQ(found.slot, 0);
        CHECK_EQ(slg_index_file_entry(&file, (size_t)entries - 1, &entry, &error), SLG_OK);
        CHECK(entry.key == 5 + entries && entry.value == 72 * entries);
        CHECK(truncate("index", 8 * entries) == 0 && !slg_index_file_shrank(&file));
        CHECK(truncate("index", 8 * entries - 1) == 0);
        CHECK(slg_index_file_shrank(&file) == (file.fd >= 0));
        CHECK(slg_index_file_search(&file, file.entries, SLG_INDEX_LOWER, INT64_MAX, &found,
                                    &error) == (file.fd >= 0 ? SLG_FILE_SHRANK : SLG_OK));
        slg_index_file_close(&file);
    }
}

/* The search by descriptor gives what the search in memory gives, whatever the bytes are. */
static void check_descriptors(void) {
    uint64_t seed = 1;
    slg_error error;
    for (int round = 0; round < 60; round++) {
        const slg_index_kind kind = round % 2 == 1 ? SLG_INDEX_KIND_TIME : SLG_INDEX_KIND_OFFSET;
        const bool sorted = round % 3 == 1;
        const size_t width = slg_index_entry_size(kind);
        const size_t entries = random_next(&seed) % 4000;
        file_bytes.size = 0;
        for (size_t n = 0; n < entries; n++) {
            const uint64_t any = random_next(&seed);
            if (kind == SLG_INDEX_KIND_TIME) {
                add_time_entry(sorted ? (int64_t)n * 3 : (int64_t)any,
                               sorted ? (int32_t)n * 5 : (int32_t)any);
            } else {
                add_offset_entry(sorted ? (int32_t)n * 3 : (int32_t)any,
                                 sorted ? (int32_t)n * 5 : (int32_t)any);
            }
        }
        write_file("index");
        uint8_t *copy = exact_copy(file_bytes.data, entries * width);
        slg_index_file file;
        CHECK_EQ(slg_index_file_open(&file, kind, 7, SLG_INDEX_TRUSTING, "index", &error), SLG_OK);
        CHECK(file.fd >= 0 && file.entries == entries);
        for (int ask = 0; ask < 50; ask++) {
            const int64_t target = (int32_t)random_next(&seed) % (sorted ? 13000 : INT32_MAX);
            for (int bound = SLG_INDEX_LOWER; bound <= SLG_INDEX_UPPER_VALUE; bound++) {
                slg_index_found found;
                CHECK_EQ(slg_index_file_search(&file, entries, (slg_index_bound)bound, target,
                                               &found, &error),
                         SLG_OK);
                CHECK_EQ(found.slot,
                         slot_of(kind, copy, entries, 7, (slg_index_bound)bound, target));
            }
        }
        slg_index_file_close(&file);
        free(copy);
    }
}

/* A map gives what the file gives; once it is detached, the file may be cut under it. */
static void check_maps(void) {
    enum { ENTRIES = 12000, SIZE = ENTRIES * SLG_OFFSET_ENTRY_SIZE };
    uint64_t seed = 3;
    slg_error error;
    slg_index_file by_file, by_map;
    slg_index_found wanted, found;
    file_bytes.size = 0;
    for (int32_t n = 0; n < ENTRIES; n++) {
        add_offset_entry(n * 3 + 1, n * 7);
    }
    write_file("index");
    CHECK_EQ(slg_index_file_open(&by_file, SLG_INDEX_KIND_OFFSET, 7, SLG_INDEX_TRUSTING, "index",
                                 &error),
             SLG_OK);
    CHECK_EQ(
        slg_index_file_open(&by_map, SLG_INDEX_KIND_OFFSET, 7, SLG_INDEX_TRUSTING, "index", &error),
        SLG_OK);
    CHECK_EQ(slg_index_file_map(&by_map, 0, &error), SLG_OK);
    CHECK(by_map.data == NULL);
    CHECK_EQ(slg_index_file_map(&by_map, SIZE, &error), SLG_OK);
    for (int detached = 0; detached < 2; detached++) {
        for (int ask = 0; ask < 2000; ask++) {
            const int64_t target = (int64_t)(random_next(&seed) % (3 * ENTRIES + 20));
            const size_t entries = 1 + (size_t)(random_next(&seed) % ENTRIES);
            CHECK_EQ(
                slg_index_file_search(&by_file, entries, SLG_INDEX_LOWER, target, &wanted, &error),
                SLG_OK);
            CHECK_EQ(
                slg_index_file_search(&by_map, entries, SLG_INDEX_LOWER, target, &found, &error),
                SLG_OK);
            CHECK(found.slot == wanted.slot && found.entry.key == wanted.entry.key &&
                  found.entry.value == wanted.entry.value);
            CHECK(found.next.value < 0 ||
                  (found.next.key > target && found.next.value == (found.slot + 1) * 7));
            CHECK(detached || found.slot + 1 == (int64_t)entries || found.next.value >= 0);
        }
        CHECK_EQ(slg_index_file_detach(&by_map, &error), SLG_OK);
    }
    CHECK(truncate("index", 80) == 0);
    CHECK(by_map.data[SIZE - 1] == 0); /* no SIGBUS */
    CHECK_EQ(slg_index_file_search(&by_map, ENTRIES, SLG_INDEX_LOWER, 5, &found, &error),
             SLG_FILE_SHRANK);
    slg_index_file_close(&by_map);
    slg_index_file_close(&by_file);
}

int main(int argc, char **argv) {
    CHECK(argc == 1 || chdir(argv[1]) == 0);
    check_golden();
    check_searches();
    check_hostile_searches();
    check_offset_causes();
    check_time_causes();
    check_txn_causes();
    check_files();
    check_descriptors();
    check_maps();
    return 0;
}
