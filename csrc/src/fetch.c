#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#else
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, which strict C11 hides */
#endif

#include "seglog/fetch.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "entry.h"
#include "index_search.h"
#include "seglog/file.h"

/* ---- a mapped index ------------------------------------------------------------------------- */

slg_status slg_fetch_map_open(slg_fetch_map *map, int fd, size_t size, slg_error *error) {
    *map = (slg_fetch_map){NULL, 0, 0};
    if (size == 0) {
        return SLG_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return slg_fail_errno(error, SLG_IO, 0, errno);
    }
    *map = (slg_fetch_map){data, size, 0};
    return SLG_OK;
}

/*
 * The flag first, then the pages: a search that read zeros of the new pages finds the flag set when
 * it asks at its end. The kernel flushes the translations of all threads before mmap returns.
 */
slg_status slg_fetch_map_detach(slg_fetch_map *map, slg_error *error) {
    __atomic_store_n(&map->detached, 1, __ATOMIC_SEQ_CST);
    if (map->size > 0 && mmap((void *)(uintptr_t)map->data, map->size, PROT_READ,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return slg_fail_errno(error, SLG_IO, 0, errno);
    }
    return SLG_OK;
}

void slg_fetch_map_close(slg_fetch_map *map) {
    if (map->size > 0) {
        munmap((void *)(uintptr_t)map->data, map->size);
    }
    *map = (slg_fetch_map){NULL, 0, 1};
}

static bool is_detached(const slg_fetch_map *map) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&map->detached, __ATOMIC_SEQ_CST) != 0;
}

/* ---- the index ------------------------------------------------------------------------------ */

/* Entries of an index file, a block at a time: the last probes of a search are close together. */
enum { BLOCK_BYTES = 4096 };

typedef struct blocks {
    const slg_fetch_index *index;
    slg_fetch_bound bound;
    slg_error *error;
    slg_status status;
    size_t width;
    size_t first; /* entries [first, first + count) are at `data` */
    size_t count;
    const uint8_t *data;
    uint8_t block[BLOCK_BYTES];
} blocks;

static bool entry_of(blocks *b, size_t n, slg_index_entry *entry) {
    if (n < b->first || n >= b->first + b->count) {
        const size_t capacity = BLOCK_BYTES / b->width;
        const size_t first = n - n % capacity;
        const size_t left = b->index->entries - first;
        const size_t count = left < capacity ? left : capacity;
        b->count = 0;
        b->status = slg_pread_exact(b->index->fd, b->block, count * b->width,
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

static slg_status search(blocks *b, size_t entries, int64_t target, int64_t *slot,
                         slg_index_entry *entry, slg_index_entry *next) {
    const slg_fetch_index *index = b->index;
    slg_slots found;
    if (!slg_search_index(entries, b->width, target, value_at, b, &found)) {
        return b->status;
    }
    *slot = b->bound == SLG_FETCH_LOWER ? found.lower : found.upper;
    *next = (slg_index_entry){index->base_offset, -1};
    const size_t following = (size_t)(*slot + 1);
    if (following >= b->first && following < b->first + b->count) {
        entry_of(b, following, next);
    }
    if (*slot < 0) {
        *entry = index->kind == SLG_INDEX_KIND_OFFSET ? (slg_index_entry){index->base_offset, 0}
                                                      : (slg_index_entry){-1, index->base_offset};
        return SLG_OK;
    }
    return entry_of(b, (size_t)*slot, entry) ? SLG_OK : b->status;
}

slg_status slg_fetch_search(const slg_fetch_index *index, slg_fetch_bound bound, int64_t target,
                            int64_t *slot, slg_index_entry *entry, slg_index_entry *next,
                            slg_error *error) {
    const size_t entries = index->fd < 0 ? 0 : index->entries;
    const slg_fetch_map *map = index->map;
    blocks b;
    b.index = index;
    b.bound = bound;
    b.error = error;
    b.status = SLG_OK;
    b.width = slg_index_entry_size(index->kind);
    b.first = 0;
    if (map != NULL && entries * b.width <= map->size && !is_detached(map)) {
        b.data = map->data;
        b.count = entries;
        const slg_status status = search(&b, entries, target, slot, entry, next);
        if (!is_detached(map)) {
            return status;
        }
    }
    b.data = b.block;
    b.first = b.count = 0;
    return search(&b, entries, target, slot, entry, next);
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
