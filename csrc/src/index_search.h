/*
 * Kafka's binary search in an index, over entries that come from anywhere: a copy or a descriptor.
 * Internal to csrc.
 */
#ifndef SEGLOG_INDEX_SEARCH_H
#define SEGLOG_INDEX_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/index.h"

/* Slots of the largest value <= target and of the smallest >= it; -1 where there is none. */
typedef struct slg_slots {
    int64_t lower;
    int64_t upper;
} slg_slots;

/* The value of entry `n`, which is below the number of entries; false ends the search. */
typedef bool slg_value_at(void *source, size_t n, int64_t *value);

/*
 * Kafka searches the last 8 KiB first, because consumers and followers read near the end: those
 * pages are in memory, those of a plain bisection over the whole file may not be. The order of the
 * probes is Kafka's, so that also a damaged index gives the slot that Kafka's search would give.
 */
static inline bool slg_search_index(size_t entries, size_t width, int64_t target,
                                    slg_value_at *value_at, void *source, slg_slots *found) {
    const int64_t count = (int64_t)entries;
    const int64_t warm = (int64_t)(SLG_WARM_BYTES / width);
    const int64_t first_hot = count - 1 - warm > 0 ? count - 1 - warm : 0;
    int64_t lo = 0;
    int64_t hi = first_hot;
    int64_t value;
    *found = (slg_slots){-1, -1};
    if (count == 0) {
        return true;
    }
    if (!value_at(source, (size_t)first_hot, &value)) {
        return false;
    }
    if (value < target) {
        lo = first_hot;
        hi = count - 1;
    } else {
        if (!value_at(source, 0, &value)) {
            return false;
        }
        if (value > target) {
            found->upper = 0;
            return true;
        }
    }
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo + 1) / 2;
        if (!value_at(source, (size_t)mid, &value)) {
            return false;
        }
        if (value == target) {
            *found = (slg_slots){mid, mid};
            return true;
        }
        if (value > target) {
            hi = mid - 1;
        } else {
            lo = mid;
        }
    }
    /* Kafka does not look at the last slot for equality: `lower` is the same, `upper` is not. */
    *found = (slg_slots){lo, lo == count - 1 ? -1 : lo + 1};
    return true;
}

#endif
