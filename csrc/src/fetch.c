#include "seglog/fetch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "entry.h"
#include "index_search.h"
#include "seglog/file.h"

/* ---- the index ------------------------------------------------------------------------------ */

/* Entries of an index file, a block at a time: the last probes of a search are close together. */
enum { BLOCK_BYTES = 4096 };

typedef struct blocks {
    const slg_fetch_index *index;
    slg_fetch_bound bound;
    slg_error *error;
    slg_status status;
    size_t width;
    size_t first; /* entries [first, first + count) are in `data` */
    size_t count;
    uint8_t data[BLOCK_BYTES];
} blocks;

static bool entry_of(blocks *b, size_t n, slg_index_entry *entry) {
    const size_t capacity = BLOCK_BYTES / b->width;
    if (n < b->first || n >= b->first + b->count) {
        const size_t first = n - n % capacity;
        const size_t left = b->index->entries - first;
        const size_t count = left < capacity ? left : capacity;
        b->count = 0;
        b->status = slg_pread_exact(b->index->fd, b->data, count * b->width,
                                    (int64_t)(first * b->width), b->error);
        if (b->status != SLG_OK) {
            return false;
        }
        b->first = first;
        b->count = count;
    }
    *entry = slg_index_entry_at(b->index->kind, b->data, n - b->first, b->index->base_offset);
    return true;
}

static inline bool value_at(void *source, size_t n, int64_t *value) {
    blocks *b = source;
    slg_index_entry entry;
    if (!entry_of(b, n, &entry)) {
        return false;
    }
    *value = b->bound == SLG_FETCH_LOWER ? entry.key : entry.value;
    return true;
}

slg_status slg_fetch_search(const slg_fetch_index *index, slg_fetch_bound bound, int64_t target,
                            int64_t *slot, slg_index_entry *entry, slg_error *error) {
    blocks b;
    slg_slots found;
    b.index = index;
    b.bound = bound;
    b.error = error;
    b.status = SLG_OK;
    b.width = slg_index_entry_size(index->kind);
    b.first = 0;
    b.count = 0;
    const size_t entries = index->fd < 0 ? 0 : index->entries;
    if (!slg_search_index(entries, b.width, target, value_at, &b, &found)) {
        return b.status;
    }
    *slot = bound == SLG_FETCH_LOWER ? found.lower : found.upper;
    if (*slot < 0) {
        *entry = index->kind == SLG_INDEX_KIND_OFFSET ? (slg_index_entry){index->base_offset, 0}
                                                      : (slg_index_entry){-1, index->base_offset};
        return SLG_OK;
    }
    return entry_of(&b, (size_t)*slot, entry) ? SLG_OK : b.status;
}

/* ---- samples -------------------------------------------------------------------------------- */

enum { ENTRY = SLG_OFFSET_ENTRY_SIZE, CHUNK_ENTRIES = 512, UNCOVERED_MIN = 64 };

void slg_fetch_samples_free(slg_fetch_samples *samples) {
    free(samples->data);
    *samples = (slg_fetch_samples){NULL, 0, 0, 0, 0};
}

bool slg_fetch_samples_serve(const slg_fetch_samples *samples, size_t entries) {
    const size_t added = samples->covered / 64;
    const size_t most = added < SLG_FETCH_UNCOVERED_MAX ? added : SLG_FETCH_UNCOVERED_MAX;
    return entries <= samples->covered + (most > UNCOVERED_MIN ? most : UNCOVERED_MIN);
}

/* Allocates the samples and copies those of `before`, thinned out if they are too dense. */
static bool begin_samples(const slg_fetch_samples *before, size_t entries,
                          slg_fetch_samples *samples) {
    const size_t had = before == NULL ? 0 : before->count;
    size_t stride = had > 0 ? before->stride : 1;
    const size_t thinner = had > 0 ? before->stride : 1;
    while (entries / stride >= SLG_FETCH_SAMPLES_MAX) {
        stride *= 2;
    }
    *samples = (slg_fetch_samples){malloc((entries / stride + 1) * ENTRY), 0, stride, 0, 0};
    if (samples->data == NULL) {
        return false;
    }
    if (had > 0) {
        for (size_t n = 0; n < had; n += stride / thinner) {
            memcpy(samples->data + samples->count++ * ENTRY, before->data + n * ENTRY, ENTRY);
        }
        samples->covered = before->covered;
        samples->last_key = before->last_key;
    }
    return true;
}

slg_status slg_fetch_sample(const slg_fetch_index *index, const slg_fetch_samples *before,
                            slg_fetch_samples *samples, slg_error *error) {
    uint8_t chunk[CHUNK_ENTRIES * ENTRY];
    if (!begin_samples(before, index->entries, samples)) {
        return slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
    }
    while (samples->covered < index->entries) {
        const size_t left = index->entries - samples->covered;
        const size_t count = left < CHUNK_ENTRIES ? left : CHUNK_ENTRIES;
        const slg_status status = slg_pread_exact(index->fd, chunk, count * ENTRY,
                                                  (int64_t)(samples->covered * ENTRY), error);
        if (status != SLG_OK) {
            slg_fetch_samples_free(samples);
            return status;
        }
        for (size_t n = 0; n < count; n++) {
            const int64_t key = slg_load_i32(chunk + n * ENTRY + SLG_OFFSET_ENTRY_OFFSET_AT);
            if (samples->covered > 0 && key <= samples->last_key) {
                const int64_t at = (int64_t)(samples->covered * ENTRY);
                const int64_t last_key = samples->last_key;
                slg_fetch_samples_free(samples);
                return slg_fail(error, SLG_INDEX_OFFSET_ORDER, at, last_key, key);
            }
            if (samples->covered % samples->stride == 0) {
                memcpy(samples->data + samples->count++ * ENTRY, chunk + n * ENTRY, ENTRY);
            }
            samples->last_key = key;
            samples->covered++;
        }
    }
    return SLG_OK;
}

/* The last of `count` increasing entries with a key of at most `target`; the first one has. */
static size_t floor_entry(const uint8_t *data, size_t count, int64_t target) {
    size_t lo = 0;
    while (count > 1) {
        const size_t half = count / 2;
        const int64_t key = slg_load_i32(data + (lo + half) * ENTRY + SLG_OFFSET_ENTRY_OFFSET_AT);
        lo = key <= target ? lo + half : lo;
        count -= half;
    }
    return lo;
}

static slg_index_entry entry_at(const uint8_t *data, size_t n, int64_t base_offset) {
    return slg_index_entry_at(SLG_INDEX_KIND_OFFSET, data, n, base_offset);
}

slg_status slg_fetch_lookup(const slg_fetch_index *index, const slg_fetch_samples *samples,
                            int64_t target, slg_index_entry *entry, slg_index_entry *next,
                            slg_error *error) {
    uint8_t block[(SLG_FETCH_UNCOVERED_MAX + CHUNK_ENTRIES) * ENTRY];
    const int64_t base = index->base_offset;
    if (samples->count == 0 || index->entries < samples->covered || target < 0 || base < 0 ||
        base > INT64_MAX - INT32_MAX) {
        return SLG_MORE;
    }
    const int64_t relative = target - base;
    *entry = (slg_index_entry){base, 0};
    *next = (slg_index_entry){base, -1};
    if (slg_load_i32(samples->data + SLG_OFFSET_ENTRY_OFFSET_AT) > relative) {
        *next = entry_at(samples->data, 0, base);
        return SLG_OK;
    }
    const size_t sample = floor_entry(samples->data, samples->count, relative);
    const size_t first = sample * samples->stride;
    const bool is_last = sample + 1 == samples->count;
    const size_t stop = is_last ? index->entries : first + samples->stride;
    if (stop - first <= 1) {
        *entry = entry_at(samples->data, sample, base);
        if (!is_last) {
            *next = entry_at(samples->data, sample + 1, base);
        }
        return SLG_OK;
    }
    if (stop - first > sizeof block / ENTRY) {
        return SLG_MORE;
    }
    const slg_status status =
        slg_pread_exact(index->fd, block, (stop - first) * ENTRY, (int64_t)(first * ENTRY), error);
    if (status == SLG_OK) {
        const size_t found = floor_entry(block, stop - first, relative);
        *entry = entry_at(block, found, base);
        if (found + 1 < stop - first) {
            *next = entry_at(block, found + 1, base);
        } else if (!is_last) {
            *next = entry_at(samples->data, sample + 1, base);
        }
    }
    return status;
}

/* ---- the log -------------------------------------------------------------------------------- */

/*
 * Loads the header at `position` into the window, as far as the file has it, and more of the valid
 * bytes up to `wanted` in all.
 */
static slg_status need(int fd, int64_t position, int64_t end, size_t wanted,
                       slg_fetch_window *window, slg_error *error) {
    const int64_t skip = position - window->position;
    if (skip >= 0 && (uint64_t)skip + SLG_BATCH_HEADER_SIZE <= window->size) {
        return SLG_OK;
    }
    const int64_t left = end - position;
    if ((int64_t)wanted > left) {
        wanted = (size_t)left;
    }
    if (wanted > SLG_FETCH_WINDOW) {
        wanted = SLG_FETCH_WINDOW;
    }
    if (wanted < SLG_BATCH_HEADER_SIZE) {
        wanted = SLG_BATCH_HEADER_SIZE;
    }
    window->size = 0;
    window->position = position;
    return slg_pread(fd, window->data, wanted, position, &window->size, error);
}

size_t slg_fetch_first_read(int64_t target, int64_t start, const slg_index_entry *entry,
                            const slg_index_entry *next, int64_t batch_size) {
    const int64_t apart = next->value - start;
    const uint64_t offsets = (uint64_t)next->key - (uint64_t)entry->key;
    int64_t guess = apart;
    if (batch_size > SLG_FETCH_WINDOW) {
        return SLG_BATCH_HEADER_SIZE;
    }
    if (apart <= 0 || apart > SLG_FETCH_WINDOW) {
        return SLG_FETCH_WINDOW;
    }
    if (entry->key <= target && target < next->key && offsets <= INT32_MAX) {
        const int64_t alike = apart * (target - entry->key) / (int64_t)offsets;
        guess = alike + batch_size < apart ? alike + batch_size : apart;
    }
    return (size_t)(guess + batch_size + SLG_BATCH_HEADER_SIZE);
}

slg_status slg_fetch_find(int fd, int64_t position, int64_t end, int64_t target, size_t first_read,
                          slg_fetch_window *window, slg_fetch_batch *found, slg_error *error) {
    slg_fetch_batch before = {0, -1, 0};
    int64_t before_last = INT64_MIN;
    size_t wanted = first_read;
    window->size = 0;
    window->position = 0;
    while (position < end - SLG_PREFIX_AND_MAGIC_SIZE) {
        const slg_status status = need(fd, position, end, wanted, window, error);
        if (status != SLG_OK) {
            return status;
        }
        const size_t at = (size_t)(position - window->position);
        const size_t available = window->size - at;
        const uint8_t *header = window->data + at;
        if (available < SLG_PREFIX_AND_MAGIC_SIZE) {
            return slg_fail(error, SLG_FILE_SHRANK, position, SLG_PREFIX_AND_MAGIC_SIZE,
                            (int64_t)available);
        }
        const int64_t base = slg_load_i64(header + SLG_PREFIX_OFFSET_AT);
        int64_t size;
        if (!slg_frame(header, &size)) {
            return slg_fail(error, SLG_BATCH_LENGTH, position, SLG_LEGACY_LENGTH_MIN,
                            slg_frame_length(size));
        }
        if (position > end - size) {
            break;
        }
        const int8_t magic = slg_load_i8(header + SLG_MAGIC_AT);
        if (magic < 2) {
            return slg_fail(error, SLG_BATCH_MAGIC, position, 2, magic);
        }
        if (base == target) {
            *found = (slg_fetch_batch){base, position, size};
            return SLG_OK;
        }
        if (base > target) {
            *found = before.position >= 0 && before_last >= target
                         ? before
                         : (slg_fetch_batch){base, position, size};
            return SLG_OK;
        }
        if (size < SLG_BATCH_HEADER_SIZE || available < SLG_BATCH_HEADER_SIZE) {
            return slg_fail(error, SLG_BATCH_SIZE, position, SLG_BATCH_HEADER_SIZE, size);
        }
        before = (slg_fetch_batch){base, position, size};
        before_last = slg_last_offset_at(header);
        /* Fill the window while batches fit into it: one read serves many headers. */
        wanted = size < SLG_FETCH_WINDOW ? SLG_FETCH_WINDOW : SLG_BATCH_HEADER_SIZE;
        position += size;
    }
    if (before.position >= 0 && before_last >= target) {
        *found = before;
        return SLG_OK;
    }
    return SLG_END;
}

slg_status slg_fetch_whole(const uint8_t *data, size_t size, int64_t position, int64_t stop_offset,
                           slg_fetch_span *span, slg_error *error) {
    *span = (slg_fetch_span){0, 0, 0, 0};
    size_t at = 0;
    while (size - at >= SLG_PREFIX_AND_MAGIC_SIZE) {
        const uint8_t *header = data + at;
        const int64_t base = slg_load_i64(header + SLG_PREFIX_OFFSET_AT);
        int64_t whole;
        if (!slg_frame(header, &whole)) {
            return at > 0 ? SLG_OK
                          : slg_fail(error, SLG_BATCH_LENGTH, position, SLG_LEGACY_LENGTH_MIN,
                                     slg_frame_length(whole));
        }
        const size_t bytes = (size_t)whole;
        const bool old = slg_load_i8(header + SLG_MAGIC_AT) < 2;
        if (at == 0) {
            span->first_size = bytes;
            span->base_offset = base;
        } else if (base >= stop_offset) {
            break;
        }
        if (bytes > size - at || (!old && bytes < SLG_BATCH_HEADER_SIZE)) {
            break;
        }
        span->next_offset = slg_java_add(old ? base : slg_last_offset_at(header), 1);
        at += bytes;
        span->size = at;
    }
    return SLG_OK;
}
