#include "seglog/fetch.h"

#include <stdbool.h>

#include "entry.h"
#include "seglog/file.h"

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
        /* Bytes after a header that cannot be read hide no batch before them. */
        if (status != SLG_OK && !(status == SLG_IO && window->size >= SLG_BATCH_HEADER_SIZE)) {
            if (status == SLG_IO && before.position >= 0 && before_last >= target) {
                break;
            }
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
