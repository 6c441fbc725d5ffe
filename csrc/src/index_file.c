#if defined(__APPLE__)
#define _DARWIN_C_SOURCE
#else
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, which strict C11 hides */
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

static slg_status copy(slg_index_file *file, const origin *from, slg_error *error) {
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
    file->held = file->size;
    return SLG_OK;
}

static slg_status fill(slg_index_file *file, const origin *from, slg_error *error) {
    const bool is_txn = file->kind == SLG_INDEX_KIND_TXN;
    /* Relative offsets and positions are 31 bits wide, so no index needs more than this. */
    const int64_t limit = is_txn ? SLG_TXN_INDEX_MAX : INT32_MAX;
    const size_t width = slg_index_entry_size(file->kind);
    slg_status status;
    if (file->file_size > limit) {
        return slg_fail(error, SLG_LIMIT, 0, limit, file->file_size);
    }
    status =
        entries_in_use(from, file->kind, (size_t)file->file_size / width, &file->entries, error);
    if (status != SLG_OK) {
        return status;
    }
    file->size = file->entries * width;
    if (file->size == 0) {
        return SLG_OK;
    }
    if (is_txn || from->data != NULL || file->size <= SLG_INDEX_COPY_MAX) {
        return copy(file, from, error);
    }
    file->fd = from->fd;
    return SLG_OK;
}

slg_index_file slg_index_file_over(slg_index_kind kind, int64_t base_offset, const uint8_t *data,
                                   size_t entries) {
    const size_t size = entries * slg_index_entry_size(kind);
    return (slg_index_file){.kind = kind,
                            .base_offset = base_offset,
                            .entries = entries,
                            .size = size,
                            .file_size = (int64_t)size,
                            .fd = -1,
                            .data = data,
                            .held = size};
}

slg_index_file slg_index_file_through(slg_index_kind kind, int64_t base_offset, slg_source source,
                                      size_t entries) {
    slg_index_file file = slg_index_file_over(kind, base_offset, NULL, entries);
    file.held = 0; /* nothing is in memory */
    file.source = source;
    return file;
}

static void reset(slg_index_file *file) {
    file->entries = file->size = file->held = 0;
    file->file_size = -1;
    file->fd = -1;
    file->data = NULL;
}

slg_status slg_index_file_open(slg_index_file *file, slg_index_kind kind, int64_t base_offset,
                               slg_index_policy policy, const char *path, slg_error *error) {
    slg_status status;
    int64_t size;
    int fd;
    *file = slg_index_file_over(kind, base_offset, NULL, 0);
    file->file_size = -1;
    status = slg_open_read(AT_FDCWD, path, false, &fd, &size, error);
    if (status != SLG_OK) {
        return status == SLG_FILE_MISSING ? SLG_OK : status;
    }
    file->file_size = size;
    if (policy == SLG_INDEX_TRUSTING) {
        file->entries = (size_t)size / slg_index_entry_size(kind);
        file->size = file->entries * slg_index_entry_size(kind);
        file->fd = fd;
        return SLG_OK;
    }
    status = fill(file, &(origin){.fd = fd}, error);
    if (file->fd < 0) {
        close(fd);
    }
    if (status != SLG_OK) {
        reset(file);
    }
    return status;
}

slg_status slg_index_file_copy(slg_index_file *file, slg_index_kind kind, int64_t base_offset,
                               const uint8_t *data, size_t size, slg_error *error) {
    slg_status status;
    *file = slg_index_file_over(kind, base_offset, NULL, 0);
    file->file_size = (int64_t)size;
    status = fill(file, &(origin){.fd = -1, .data = data}, error);
    if (status != SLG_OK) {
        reset(file);
    }
    return status;
}

slg_status slg_index_file_map(slg_index_file *file, size_t size, slg_error *error) {
    if (file->fd < 0 || size == 0) {
        return SLG_OK;
    }
    void *data = mmap(NULL, size, PROT_READ, MAP_SHARED, file->fd, 0);
    if (data == MAP_FAILED) {
        return slg_fail_errno(error, SLG_IO, 0, errno);
    }
    file->data = data;
    file->held = size;
    return SLG_OK;
}

/*
 * The flag first, then the pages: a search that read zeros of the new pages finds the flag set when
 * it asks at its end. The kernel flushes the translations of all threads before mmap returns.
 */
slg_status slg_index_file_detach(slg_index_file *file, slg_error *error) {
    __atomic_store_n(&file->detached, 1, __ATOMIC_SEQ_CST);
    if (file->fd >= 0 && file->held > 0 &&
        mmap((void *)(uintptr_t)file->data, file->held, PROT_READ,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return slg_fail_errno(error, SLG_IO, 0, errno);
    }
    return SLG_OK;
}

slg_status slg_index_file_entry(const slg_index_file *file, size_t n, slg_index_entry *entry,
                                slg_error *error) {
    const size_t width = slg_index_entry_size(file->kind);
    uint8_t stored[SLG_TXN_ENTRY_SIZE];
    const uint8_t *at = file->fd < 0 ? file->data + n * width : stored;
    slg_status status = SLG_OK;
    if (file->fd >= 0) {
        status = slg_pread_exact(file->fd, stored, width, (int64_t)(n * width), error);
    }
    if (status == SLG_OK) {
        *entry = slg_index_entry_at(file->kind, at, 0, file->base_offset);
    }
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
    if (file->fd < 0) {
        free((void *)(uintptr_t)file->data);
    } else {
        if (file->held > 0) {
            munmap((void *)(uintptr_t)file->data, file->held);
        }
        close(file->fd);
    }
    reset(file);
}
