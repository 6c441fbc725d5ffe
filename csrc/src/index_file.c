#define _POSIX_C_SOURCE 200809L /* AT_FDCWD */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "index_search.h"
#include "seglog/file.h"
#include "seglog/index.h"

/* What an index is opened from: a descriptor, or, if `data` is set, its whole content. */
typedef struct origin {
    int fd;
    const uint8_t *data;
} origin;

static slg_status read_exact(const origin *from, uint8_t *into, size_t size, size_t position,
                             slg_error *error) {
    if (from->data == NULL) {
        return slg_pread_exact(from->fd, into, size, (int64_t)position, error);
    }
    memcpy(into, from->data + position, size);
    return SLG_OK;
}

static slg_status is_zero_at(const origin *from, size_t width, size_t n, bool *zero,
                             slg_error *error) {
    uint8_t entry[SLG_TXN_ENTRY_SIZE];
    const slg_status status = read_exact(from, entry, width, n * width, error);
    *zero = true;
    for (size_t i = 0; status == SLG_OK && i < width; i++) {
        *zero = *zero && entry[i] == 0;
    }
    return status;
}

/*
 * An index that its broker never trimmed is 10 MiB of which the end is zeros. Bisecting for the
 * boundary takes twenty reads of an entry. Zeros in the middle of a damaged index may give an
 * earlier boundary: a search then answers with an earlier entry, which is slower and not wrong.
 * A time index of one entry of zeros has one entry: timestamp 0 at the base offset is legal.
 */
static slg_status entries_in_use(const origin *from, slg_index_kind kind, size_t entries,
                                 size_t *used, slg_error *error) {
    const size_t width = slg_index_entry_size(kind);
    size_t lo = 0;
    size_t hi = entries;
    bool zero = false;
    *used = entries;
    if (kind == SLG_INDEX_KIND_TXN || entries == 0 ||
        (kind == SLG_INDEX_KIND_TIME && entries == 1)) {
        return SLG_OK;
    }
    while (lo < hi) {
        /* The last entry comes first: it is not zero in all but one index of a log. */
        const size_t mid = hi == entries ? hi - 1 : lo + (hi - lo) / 2;
        const slg_status status = is_zero_at(from, width, mid, &zero, error);
        if (status != SLG_OK) {
            return status;
        }
        if (zero) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    *used = hi;
    return SLG_OK;
}

static slg_status take(slg_index_file *file, slg_index_kind kind, const origin *from,
                       slg_error *error) {
    const bool copied = file->size <= SLG_INDEX_COPY_MAX || kind == SLG_INDEX_KIND_TXN ||
                        from->data != NULL;
    if (file->size == 0) {
        return SLG_OK;
    }
    if (copied) {
        uint8_t *data = malloc(file->size);
        slg_status status;
        if (data == NULL) {
            return slg_fail(error, SLG_NO_MEMORY, 0, 0, (int64_t)file->size);
        }
        status = read_exact(from, data, file->size, 0, error);
        if (status != SLG_OK) {
            free(data);
            return status;
        }
        file->data = data;
        return SLG_OK;
    }
    file->fd = from->fd;
    return SLG_OK;
}

static slg_status fill(slg_index_file *file, slg_index_kind kind, const origin *from,
                       slg_error *error) {
    const size_t width = slg_index_entry_size(kind);
    /* Relative offsets and positions are 31 bits wide, so no index needs more than this. */
    const int64_t limit = kind == SLG_INDEX_KIND_TXN ? SLG_TXN_INDEX_MAX : INT32_MAX;
    slg_status status;
    if (file->file_size > limit) {
        return slg_fail(error, SLG_LIMIT, 0, limit, file->file_size);
    }
    status = entries_in_use(from, kind, (size_t)file->file_size / width, &file->entries, error);
    if (status != SLG_OK) {
        return status;
    }
    file->size = file->entries * width;
    return take(file, kind, from, error);
}

slg_status slg_index_file_open(slg_index_file *file, slg_index_kind kind, const char *path,
                               slg_error *error) {
    slg_status status;
    int fd;
    *file = (slg_index_file){.file_size = -1, .fd = -1};
    status = slg_open_read(AT_FDCWD, path, false, &fd, &file->file_size, error);
    if (status != SLG_OK) {
        file->file_size = -1;
        return status == SLG_FILE_MISSING ? SLG_OK : status;
    }
    status = fill(file, kind, &(origin){.fd = fd}, error);
    if (file->fd < 0) {
        close(fd);
    }
    if (status != SLG_OK) {
        *file = (slg_index_file){.file_size = -1, .fd = -1};
    }
    return status;
}

slg_status slg_index_file_copy(slg_index_file *file, slg_index_kind kind, const uint8_t *data,
                               size_t size, slg_error *error) {
    slg_status status;
    *file = (slg_index_file){.file_size = (int64_t)size, .fd = -1};
    status = fill(file, kind, &(origin){.fd = -1, .data = data}, error);
    if (status != SLG_OK) {
        *file = (slg_index_file){.file_size = -1, .fd = -1};
    }
    return status;
}

slg_status slg_index_file_entry(const slg_index_file *file, slg_index_kind kind, size_t n,
                                int64_t base_offset, slg_index_entry *entry, slg_error *error) {
    const size_t width = slg_index_entry_size(kind);
    uint8_t stored[SLG_TXN_ENTRY_SIZE];
    if (file->fd < 0) {
        *entry = slg_index_entry_at(kind, file->data, n, base_offset);
        return SLG_OK;
    }
    const slg_status status = slg_pread_exact(file->fd, stored, width, (int64_t)(n * width), error);
    if (status == SLG_OK) {
        *entry = slg_index_entry_at(kind, stored, 0, base_offset);
    }
    return status;
}

/* What a search in a file asks for, and why it ended early. */
typedef struct question {
    const slg_index_file *file;
    slg_index_kind kind;
    int64_t base_offset;
    bool of_position;
    slg_status status;
    slg_error *error;
} question;

static bool value_in_file(void *source, size_t n, int64_t *value) {
    question *q = source;
    slg_index_entry entry;
    q->status = slg_index_file_entry(q->file, q->kind, n, q->base_offset, &entry, q->error);
    if (q->status == SLG_OK) {
        *value = q->of_position ? entry.value : entry.key;
    }
    return q->status == SLG_OK;
}

static slg_status search_file(question *q, int64_t target, slg_slots *found) {
    (void)slg_search_index(q->file->entries, slg_index_entry_size(q->kind), target, value_in_file,
                           q, found);
    return q->status;
}

slg_status slg_index_file_lookup(const slg_index_file *file, slg_index_kind kind,
                                 int64_t base_offset, int64_t target, int64_t *slot,
                                 slg_error *error) {
    question q = {.file = file, .kind = kind, .base_offset = base_offset, .error = error};
    slg_slots found;
    const slg_status status = search_file(&q, target, &found);
    *slot = found.lower;
    return status;
}

slg_status slg_index_file_upper_bound(const slg_index_file *file, int64_t position, int64_t *slot,
                                      slg_error *error) {
    question q = {.file = file, .kind = SLG_INDEX_KIND_OFFSET, .of_position = true, .error = error};
    slg_slots found;
    const slg_status status = search_file(&q, position, &found);
    *slot = found.upper;
    return status;
}

slg_status slg_index_file_read(const slg_index_file *file, uint8_t *into, slg_error *error) {
    if (file->fd >= 0) {
        return slg_pread_exact(file->fd, into, file->size, 0, error);
    }
    if (file->size > 0) {
        memcpy(into, file->data, file->size);
    }
    return SLG_OK;
}

bool slg_index_file_shrank(const slg_index_file *file) {
    int64_t size;
    return file->fd >= 0 &&
           (slg_file_size(file->fd, &size, NULL) != SLG_OK || size < (int64_t)file->size);
}

void slg_index_file_close(slg_index_file *file) {
    if (file->fd >= 0) {
        close(file->fd);
    }
    free((void *)(uintptr_t)file->data);
    *file = (slg_index_file){.file_size = -1, .fd = -1};
}
