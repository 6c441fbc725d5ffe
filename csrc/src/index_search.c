#include <stdbool.h>

#include "seglog/file.h"
#include "seglog/index.h"

/* Entries of an index file, a block at a time: the last probes of a search are close together. */
enum { BLOCK_BYTES = 4096 };

typedef struct search {
    const slg_index_file *file;
    slg_index_bound bound;
    slg_error *error;
    slg_status status;
    size_t entries;
    size_t width;
    size_t first; /* entries [first, first + count) are at `data` */
    size_t count;
    const uint8_t *data;
    uint8_t block[BLOCK_BYTES];
} search;

static slg_status read_block(search *s, size_t size, int64_t position) {
    const slg_source *source = &s->file->source;
    size_t got = 0;
    if (source->read == NULL) {
        return slg_pread_exact(s->file->fd, s->block, size, position, s->error);
    }
    const slg_status status =
        source->read(source->context, s->block, size, size, position, &got, s->error);
    return status == SLG_OK && got < size
               ? slg_fail(s->error, SLG_FILE_SHRANK, position, (int64_t)size, (int64_t)got)
               : status;
}

static bool entry_of(search *s, size_t n, slg_index_entry *entry) {
    if (n < s->first || n >= s->first + s->count) {
        const size_t capacity = BLOCK_BYTES / s->width;
        const size_t first = n - n % capacity;
        const size_t left = s->entries - first;
        const size_t count = left < capacity ? left : capacity;
        s->count = 0;
        s->status = read_block(s, count * s->width, (int64_t)(first * s->width));
        if (s->status != SLG_OK) {
            return false;
        }
        s->first = first;
        s->count = count;
    }
    *entry = slg_index_entry_at(s->file->kind, s->data, n - s->first, s->file->base_offset);
    return true;
}

static bool value_at(search *s, int64_t n, int64_t *value) {
    slg_index_entry entry;
    if (!entry_of(s, (size_t)n, &entry)) {
        return false;
    }
    *value = s->bound == SLG_INDEX_LOWER ? entry.key : entry.value;
    return true;
}

/*
 * The slots of the largest value <= target and of the smallest >= it, -1 for none; false if an
 * entry cannot be read.
 *
 * Kafka searches the last 8 KiB first, because consumers and followers read near the end: those
 * pages are in memory, those of a plain bisection over the whole file may not be. The order of the
 * probes is Kafka's, so that also a damaged index gives the slot that Kafka's search would give.
 */
static bool bisect(search *s, int64_t target, int64_t *lower, int64_t *upper) {
    const int64_t count = (int64_t)s->entries;
    const int64_t warm = (int64_t)(SLG_WARM_BYTES / s->width);
    const int64_t first_hot = count - 1 - warm > 0 ? count - 1 - warm : 0;
    int64_t lo = 0;
    int64_t hi = first_hot;
    int64_t value;
    *lower = *upper = -1;
    if (count == 0) {
        return true;
    }
    if (!value_at(s, first_hot, &value)) {
        return false;
    }
    if (value < target) {
        lo = first_hot;
        hi = count - 1;
    } else {
        if (!value_at(s, 0, &value)) {
            return false;
        }
        if (value > target) {
            *upper = 0;
            return true;
        }
    }
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo + 1) / 2;
        if (!value_at(s, mid, &value)) {
            return false;
        }
        if (value == target) {
            *lower = *upper = mid;
            return true;
        }
        if (value > target) {
            hi = mid - 1;
        } else {
            lo = mid;
        }
    }
    /* Kafka does not look at the last slot for equality: `lower` is the same, `upper` is not. */
    *lower = lo;
    *upper = lo == count - 1 ? -1 : lo + 1;
    return true;
}

static slg_status find(search *s, int64_t target, slg_index_found *found) {
    const slg_index_file *file = s->file;
    int64_t lower;
    int64_t upper;
    if (!bisect(s, target, &lower, &upper)) {
        return s->status;
    }
    found->slot = s->bound == SLG_INDEX_UPPER_VALUE ? upper : lower;
    found->next = (slg_index_entry){file->base_offset, -1};
    const size_t following = (size_t)(found->slot + 1);
    if (following >= s->first && following < s->first + s->count) {
        entry_of(s, following, &found->next);
    }
    if (found->slot < 0) {
        found->entry = file->kind == SLG_INDEX_KIND_OFFSET
                           ? (slg_index_entry){file->base_offset, 0}
                           : (slg_index_entry){-1, file->base_offset};
        return SLG_OK;
    }
    return entry_of(s, (size_t)found->slot, &found->entry) ? SLG_OK : s->status;
}

static bool is_detached(const slg_index_file *file) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&file->detached, __ATOMIC_SEQ_CST) != 0;
}

slg_status slg_index_file_search(const slg_index_file *file, size_t entries, slg_index_bound bound,
                                 int64_t target, slg_index_found *found, slg_error *error) {
    search s;
    s.file = file;
    s.bound = bound;
    s.error = error;
    s.status = SLG_OK;
    s.width = slg_index_entry_size(file->kind);
    s.entries = file->fd < 0 && entries > file->entries ? file->entries : entries;
    s.first = 0;
    const bool is_copied = file->fd < 0 && file->source.read == NULL;
    if (is_copied || (s.entries * s.width <= file->held && !is_detached(file))) {
        s.data = file->data;
        s.count = s.entries;
        const slg_status status = find(&s, target, found);
        if (is_copied || !is_detached(file)) {
            return status;
        }
    }
    s.data = s.block;
    s.first = s.count = 0;
    return find(&s, target, found);
}
