/* Searches in entries that a test holds in memory. */
#ifndef SEGLOG_TESTS_INDEX_COPY_H
#define SEGLOG_TESTS_INDEX_COPY_H

#include <stdint.h>
#include <stdlib.h>

#include "seglog/index.h"

static inline int64_t slot_of(slg_index_kind kind, const uint8_t *data, size_t entries,
                              int64_t base_offset, slg_index_bound bound, int64_t target) {
    const slg_index_file file = slg_index_file_over(kind, base_offset, data, entries);
    slg_index_found found;
    if (slg_index_file_search(&file, entries, bound, target, &found, NULL) != SLG_OK) {
        abort();
    }
    return found.slot;
}

static inline int64_t lookup(slg_index_kind kind, const uint8_t *data, size_t entries,
                             int64_t base_offset, int64_t target) {
    return slot_of(kind, data, entries, base_offset, SLG_INDEX_LOWER, target);
}

static inline int64_t upper_bound(const uint8_t *data, size_t entries, int64_t position) {
    return slot_of(SLG_INDEX_KIND_OFFSET, data, entries, 0, SLG_INDEX_UPPER_VALUE, position);
}

#endif
