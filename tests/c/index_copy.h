/* Searches in entries that a test holds in memory, as in the copy of a small index file. */
#ifndef SEGLOG_TESTS_INDEX_COPY_H
#define SEGLOG_TESTS_INDEX_COPY_H

#include <stdint.h>
#include <stdlib.h>

#include "seglog/index.h"

static inline slg_index_file index_copy(slg_index_kind kind, const uint8_t *data, size_t entries) {
    const size_t size = entries * slg_index_entry_size(kind);
    return (slg_index_file){data, entries, size, (int64_t)size, -1};
}

static inline int64_t lookup(slg_index_kind kind, const uint8_t *data, size_t entries,
                             int64_t base_offset, int64_t target) {
    const slg_index_file file = index_copy(kind, data, entries);
    int64_t slot;
    if (slg_index_file_lookup(&file, kind, base_offset, target, &slot, NULL) != SLG_OK) {
        abort();
    }
    return slot;
}

static inline int64_t upper_bound(const uint8_t *data, size_t entries, int64_t position) {
    const slg_index_file file = index_copy(SLG_INDEX_KIND_OFFSET, data, entries);
    int64_t slot;
    if (slg_index_file_upper_bound(&file, position, &slot, NULL) != SLG_OK) {
        abort();
    }
    return slot;
}

#endif
