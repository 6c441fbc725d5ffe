#define _GNU_SOURCE /* AT_FDCWD, fstatat under -std=c11 */

#include "clean_load_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "seglog/batch.h"
#include "seglog/crc32c.h"
#include "seglog/file.h"
#include "seglog/index.h"
#include "seglog/scan.h"
#include "seglog/wire.h"

enum {
    WINDOW_SIZE = 4096,
    PROVED_SIZE_MAX = 1 << 20, /* a reader finds the end of a longer segment sooner */
    FILES_PER_SEGMENT = 4 /* log, two indexes, snapshot */
};

typedef slg_clean_loader loader;

/* The size of a regular file, -1 for anything else. */
int64_t slg_clean_size(int dir, const char *name) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode)) {
        return -1;
    }
    return (int64_t)st.st_size;
}

/* ---- the listing ---------------------------------------------------------------------------- */

/* Whether there are only segments, snapshots, leader epochs and the topic id. */
static bool are_names_plain(const slg_listing *listing, bool *has_topic_id) {
    bool has_epochs = false;
    *has_topic_id = false;
    for (size_t i = 0; i < listing->other_count; i++) {
        if (listing->classes[i] == SLG_FILE_LEADER_EPOCHS) {
            has_epochs = true;
        } else if (listing->classes[i] == SLG_FILE_PARTITION_METADATA) {
            *has_topic_id = true;
        } else {
            return false;
        }
    }
    return has_epochs;
}

/* Whether TransactionIndex.sanityCheck accepts the transaction index. */
static bool is_txn_index_sound(loader *l, int64_t base, int64_t end, int64_t log_size) {
    char name[SLG_NAME_SIZE];
    slg_index_check check;
    slg_error error;
    size_t size;
    if (slg_clean_read_small(l, slg_segment_name(name, base, ".txnindex"), &size) != SLG_OK ||
        size % slg_index_entry_size(SLG_INDEX_KIND_TXN) != 0) {
        return false;
    }
    slg_index_check_begin(&check, SLG_INDEX_KIND_TXN, base, end, log_size);
    check.strict = false;
    return slg_index_check_feed(&check, l->buffer, size, &error) == SLG_OK &&
           slg_index_check_finish(&check, (int64_t)size, &error) == SLG_OK;
}

/* The next number with a log, from row `at` on; INT64_MAX if there is none. */
static int64_t next_base(const slg_listing *listing, size_t at) {
    for (; at < listing->numbered_count; at++) {
        if ((listing->numbered[at].has & SLG_HAS_LOG) != 0) {
            return listing->numbered[at].number;
        }
    }
    return INT64_MAX;
}

static bool add_segment(loader *l, slg_clean_partition *p, size_t row, int64_t *last_size) {
    const slg_numbered *one = &l->listing.numbered[row];
    char name[SLG_NAME_SIZE];
    const int64_t size = slg_clean_size(l->dir, slg_segment_name(name, one->number, ".log"));
    if (size < 0 || size > INT32_MAX) {
        return false;
    }
    if ((one->has & SLG_HAS_TXN_INDEX) != 0 &&
        !is_txn_index_sound(l, one->number, next_base(&l->listing, row + 1), size)) {
        return false;
    }
    if (p->segments == 0) {
        p->first_base_offset = one->number;
        p->first_size = size;
    } else if (p->segments == 1) {
        p->second_base_offset = one->number;
    }
    p->last_base_offset = one->number;
    p->segments++;
    p->filled_segments += size > 0;
    p->size += size;
    *last_size = size;
    return true;
}

/* Adds all segments. False if a log lacks an index, or an index its log. */
static bool add_segments(loader *l, slg_clean_partition *p, int64_t *last_size) {
    const uint32_t whole = SLG_HAS_LOG | SLG_HAS_INDEX | SLG_HAS_TIME_INDEX;
    p->segments = p->filled_segments = p->size = 0;
    p->second_base_offset = -1;
    for (size_t row = 0; row < l->listing.numbered_count; row++) {
        const uint32_t has = l->listing.numbered[row].has;
        if ((has & whole) == whole) {
            if (!add_segment(l, p, row, last_size)) {
                return false;
            }
        } else if (has != SLG_HAS_SNAPSHOT) {
            return false;
        }
    }
    return p->segments > 0;
}

/* ---- the last segment ----------------------------------------------------------------------- */

/*
 * The last entry of the offset index, if Kafka's binary search finds it: the entries of the warm
 * section must ascend. -1 and 0 for an empty index.
 */
static bool read_last_entry(loader *l, slg_clean_partition *p, int64_t *offset, int64_t *position) {
    const int64_t width = (int64_t)slg_index_entry_size(SLG_INDEX_KIND_OFFSET);
    char name[SLG_NAME_SIZE];
    slg_error error;
    int fd;
    slg_segment_name(name, p->last_base_offset, ".index");
    if (slg_open_read(l->dir, name, false, &fd, &p->index_size, &error) != SLG_OK) {
        return false;
    }
    const int64_t entries = p->index_size / width;
    const int64_t last = entries - 1;
    const int64_t warm = last > SLG_WARM_BYTES / width ? last - SLG_WARM_BYTES / width : 0;
    const size_t size = (size_t)((entries - warm) * width);
    bool ok = p->index_size % width == 0 && p->index_size <= INT32_MAX &&
              slg_clean_is_accessible(l, name) &&
              slg_pread_exact(fd, l->buffer, entries > 0 ? size : 0, warm * width, &error) ==
                  SLG_OK;
    close(fd);
    *offset = -1;
    *position = 0;
    for (size_t n = 0; ok && n < size / (size_t)width && entries > 0; n++) {
        const slg_index_entry entry =
            slg_index_entry_at(SLG_INDEX_KIND_OFFSET, l->buffer, n, p->last_base_offset);
        ok = entry.key >= p->last_base_offset && entry.key > *offset;
        *offset = entry.key;
        *position = entry.value;
    }
    return ok;
}

void slg_clean_scan_begin(loader *l, slg_batch_scan *scan, int fd, int64_t size,
                          size_t window_size) {
    scan->kernel = l->kernel;
    scan->end = size;
    slg_batch_scan_init(scan);
    slg_window_restart(&l->window, slg_source_of(fd), size, window_size);
}

bool slg_clean_scan_next(loader *l, slg_batch_scan *scan, size_t *count, bool *is_end) {
    const int64_t before = scan->batch_count;
    slg_error error;
    scan->batches = l->batches;
    scan->batches_left = SLG_CLEAN_BATCHES;
    const slg_status status = slg_batch_scan_file(scan, &l->window, &error);
    *count = (size_t)(scan->batch_count - before);
    *is_end = status == SLG_END;
    return status == SLG_END || status == SLG_FULL;
}

/* Reads the batches of [position, size): offsets must ascend, and the first batch hold `target`. */
static bool follow_batches(loader *l, int fd, int64_t position, int64_t size, int64_t base,
                           int64_t target, int64_t *end_offset) {
    slg_batch_scan scan = {.position = position};
    size_t count;
    bool is_end = false, is_first = true;
    int64_t last = -1;
    if ((l->checks & SLG_CLEAN_CRCS) != 0) {
        scan.checks = SLG_SCAN_CRC;
    }
    slg_clean_scan_begin(l, &scan, fd, size, WINDOW_SIZE);
    while (!is_end) {
        if (!slg_clean_scan_next(l, &scan, &count, &is_end)) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            const slg_batch *batch = &l->batches[i];
            if (batch->magic != 2 || batch->base_offset < base ||
                (!is_first && batch->base_offset <= last) ||
                batch->last_offset < batch->base_offset || batch->last_offset == INT64_MAX) {
                return false;
            }
            if (is_first && target >= 0 &&
                (batch->base_offset > target || batch->last_offset < target)) {
                return false;
            }
            last = batch->last_offset;
            is_first = false;
        }
    }
    *end_offset = last + 1;
    return scan.batch_count > 0;
}

/* Finds the end of the log as LogSegment.readNextOffset does. */
static bool find_end(loader *l, slg_clean_partition *p, int64_t log_size) {
    char name[SLG_NAME_SIZE];
    int64_t target;
    int64_t position;
    int64_t size;
    slg_error error;
    int fd;
    if (p->last_base_offset > INT64_MAX - INT32_MAX || !read_last_entry(l, p, &target, &position)) {
        return false;
    }
    slg_segment_name(name, p->last_base_offset, ".timeindex");
    p->time_index_size = slg_clean_size(l->dir, name);
    if (p->time_index_size < 0 || p->time_index_size > INT32_MAX ||
        p->time_index_size % (int64_t)slg_index_entry_size(SLG_INDEX_KIND_TIME) != 0 ||
        !slg_clean_is_accessible(l, name)) {
        return false;
    }
    if (log_size == 0) {
        p->log_end_offset = p->last_base_offset;
        return target < 0;
    }
    if (position < 0 || position >= log_size ||
        slg_open_read(l->dir, slg_segment_name(name, p->last_base_offset, ".log"), false, &fd,
                      &size, &error) != SLG_OK) {
        return false;
    }
    const bool is_proved =
        (l->checks & SLG_CLEAN_CRCS) == 0 ||
        (size <= PROVED_SIZE_MAX &&
         follow_batches(l, fd, 0, size, p->last_base_offset, -1, &p->log_end_offset));
    const bool ok =
        size == log_size && is_proved &&
        follow_batches(l, fd, position, size, p->last_base_offset, target, &p->log_end_offset);
    close(fd);
    return ok;
}

/* ---- text files ----------------------------------------------------------------------------- */

static bool are_epochs_plain(loader *l, int64_t start, slg_clean_partition *p) {
    size_t size;
    return slg_clean_read_small(l, "leader-epoch-checkpoint", &size) == SLG_OK &&
           slg_clean_epochs(l->buffer, size, start, p->log_end_offset, &p->leader_epoch);
}

static bool read_topic_id(loader *l, slg_clean_partition *p) {
    size_t size;
    return slg_clean_read_small(l, "partition.metadata", &size) == SLG_OK &&
           slg_clean_topic_id(l->buffer, size, p->topic_id);
}

/* ---- after a crash -------------------------------------------------------------------------- */

static bool has_txn_index(const slg_listing *listing, int64_t base) {
    for (size_t row = listing->numbered_count; row-- > 0;) {
        if (listing->numbered[row].number == base) {
            return (listing->numbered[row].has & SLG_HAS_TXN_INDEX) != 0;
        }
    }
    return false;
}

/* ---- one partition -------------------------------------------------------------------------- */

static bool load_opened(loader *l, slg_clean_partition *p, slg_status *status, slg_error *error) {
    const bool after_crash = (l->checks & SLG_CLEAN_AFTER_CRASH) != 0;
    const int64_t start = p->log_start_offset;
    int64_t last_size = 0;
    int64_t highest_epoch = -1;
    bool has_topic_id;
    if (start < 0 || !are_names_plain(&l->listing, &has_topic_id) ||
        !add_segments(l, p, &last_size)) {
        return false;
    }
    p->last_size = last_size;
    p->indexes_at = -1;
    if (after_crash ? has_txn_index(&l->listing, p->last_base_offset) ||
                          !slg_clean_recover(l, p, last_size, &highest_epoch, status, error)
                    : !find_end(l, p, last_size)) {
        return false;
    }
    if (p->log_end_offset < start || (after_crash && (p->recovery_point < p->last_base_offset ||
                                                      p->recovery_point == INT64_MAX))) {
        return false;
    }
    if (p->recovery_point > p->log_end_offset) {
        p->recovery_point = p->log_end_offset;
    }
    p->log_start_offset = start > p->first_base_offset ? start : p->first_base_offset;
    p->has_topic_id = has_topic_id;
    /* Kafka deletes the snapshot at the log's end and writes it again, if the segment has batches
     * (LogLoader.recoverSegment). */
    const bool is_rebuilt = after_crash && last_size > 0;
    const bool ok = are_epochs_plain(l, start, p) && highest_epoch <= p->leader_epoch &&
                    (!has_topic_id || read_topic_id(l, p)) &&
                    slg_clean_producers(l, p, is_rebuilt, status, error);
    if (!ok) {
        p->log_start_offset = start;
    }
    return ok;
}

/* Whether the partition is on the file system of the data directory. */
static bool is_on_device(const loader *l) {
    struct stat st;
    return fstat(l->dir, &st) == 0 && st.st_dev == l->device;
}

static slg_status load_partition(loader *l, const char *name, slg_clean_partition *p,
                                 slg_error *error) {
    slg_status status;
    slg_error ignored;
    p->plain = 0;
    if (slg_open_directory(l->root, name, false, &l->dir, &ignored) != SLG_OK) {
        return SLG_OK;
    }
    if ((l->checks & SLG_CLEAN_AFTER_CRASH) != 0 && !is_on_device(l)) {
        close(l->dir); /* slg_clean_sync would not reach it */
        return SLG_OK;
    }
    l->listing = (slg_listing){.files_max = l->files_max};
    status = slg_list_partition(l->dir, ".", &l->listing, &ignored);
    if (status == SLG_OK) {
        p->plain = load_opened(l, p, &status, error);
    } else {
        status = SLG_OK; /* the loader of single partitions lists it again and reports the error */
    }
    slg_listing_free(&l->listing);
    close(l->dir);
    return status;
}

slg_status slg_clean_load(const char *root, const char *names, size_t count, size_t segments_max,
                          unsigned checks, slg_clean_partition *partitions, slg_clean_table *table,
                          slg_error *error) {
    slg_status status = SLG_OK;
    loader *l = malloc(sizeof *l);
    if (l == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
    }
    l->table = table;
    l->checks = checks;
    l->kernel = slg_crc32c_best();
    l->files_max = segments_max > SIZE_MAX / FILES_PER_SEGMENT ? 0
                                                               : segments_max * FILES_PER_SEGMENT;
    slg_window_init(&l->window, slg_source_of(-1), 0, WINDOW_SIZE);
    slg_producers_init(&l->producers);
    struct stat st;
    const bool is_open = slg_open_directory(AT_FDCWD, root, true, &l->root, error) == SLG_OK;
    const bool is_known = is_open && fstat(l->root, &st) == 0;
    if (is_known) {
        l->device = st.st_dev;
    }
    for (size_t row = 0; row < count && status == SLG_OK; row++) {
        partitions[row].plain = 0;
        if (is_known) {
            status = load_partition(l, names, &partitions[row], error);
        }
        names += strlen(names) + 1;
    }
    if (is_open) {
        close(l->root);
    }
    slg_window_free(&l->window);
    slg_producers_free(&l->producers);
    free(l);
    return status;
}

void slg_clean_table_free(slg_clean_table *table) {
    free(table->timestamps);
    free(table->contents);
    *table = (slg_clean_table){0};
}
