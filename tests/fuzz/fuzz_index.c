/*
 * Index files of all three kinds. Searches stay inside the entries on any bytes and are right on
 * sound ones; a check gives the same answer however the file is cut into reads.
 */
#include "../c/index_copy.h"
#include "fuzz.h"
#include "seglog/index.h"

typedef struct verdict {
    slg_status status;
    slg_error error;
} verdict;

static verdict check_in_steps(slg_index_check check, const uint8_t *data, size_t size,
                              int64_t file_size, size_t step) {
    verdict v = {SLG_OK, {0}};
    for (size_t at = 0; at < size && v.status == SLG_OK; at += step) {
        const size_t length = size - at < step ? size - at : step;
        uint8_t *exact = fuzz_exact(data + at, length);
        v.status = slg_index_check_feed(&check, exact, length, &v.error);
        free(exact);
    }
    if (v.status == SLG_OK) {
        v.status = slg_index_check_finish(&check, file_size, &v.error);
    }
    REQUIRE(v.status == SLG_OK ||
            (v.error.status == v.status && v.error.position >= 0 && v.error.position <= file_size));
    return v;
}

static void check_lookups(slg_index_kind kind, const uint8_t *data, size_t entries, int64_t base,
                          int64_t target, bool sound) {
    const int64_t slot = lookup(kind, data, entries, base, target);
    REQUIRE(slot >= -1 && slot < (int64_t)entries);
    if (kind == SLG_INDEX_KIND_OFFSET) {
        const int64_t upper = upper_bound(data, entries, target);
        REQUIRE(upper >= -1 && upper < (int64_t)entries);
    }
    if (!sound) {
        return;
    }
    int64_t expected = -1;
    for (size_t n = 0; n < entries; n++) {
        if (slg_index_entry_at(kind, data, n, base).key <= target) {
            expected = (int64_t)n;
        }
    }
    REQUIRE(slot == expected);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const slg_index_kind kind = (slg_index_kind)(steer % 3);
    const int64_t base = (int64_t)fuzz_number(&input);
    const int64_t target = (int64_t)fuzz_number(&input);
    const size_t width = slg_index_entry_size(kind);
    const size_t entries = input.size / width;
    const size_t whole = entries * width;
    const bool limited = steer & 8U;
    slg_index_check check;
    slg_index_check_begin(&check, kind, base, limited ? target : INT64_MAX,
                          limited ? INT32_MAX : INT64_MAX);
    check.strict = steer & 16U;

    const verdict all =
        check_in_steps(check, input.data, whole, (int64_t)input.size, whole > 0 ? whole : 1);
    const size_t step = width * (1 + (steer >> 5));
    const verdict cut = check_in_steps(check, input.data, whole, (int64_t)input.size, step);
    REQUIRE(all.status == cut.status);
    REQUIRE(all.status == SLG_OK ||
            (all.error.position == cut.error.position && all.error.expected == cut.error.expected &&
             all.error.found == cut.error.found));

    uint8_t *exact = fuzz_exact(input.data, whole);
    if (kind == SLG_INDEX_KIND_TXN) {
        for (size_t n = 0; n < entries; n++) {
            REQUIRE(all.status != SLG_OK || slg_aborted_txn_at(exact, n).last_offset >= base);
        }
    } else {
        check_lookups(kind, exact, entries, base, target, all.status == SLG_OK);
    }
    free(exact);
    return 0;
}
