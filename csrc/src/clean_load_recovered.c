#define _GNU_SOURCE /* AT_EACCESS, syncfs under -std=c11 */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clean_load_internal.h"
#include "seglog/file.h"
#include "seglog/index.h"
#include "seglog/rebuild.h"

/*
 * After a crash Kafka recovers the segment with the recovery point and all after it, always at
 * least the last one (LogLoader.recoverLog, LogSegments.values). An idle partition keeps what it
 * had. A partition that was written to gets a last entry of the time index and a snapshot, which a
 * dying process does not write. The rebuilt entries are compared with the files, and written if
 * they differ.
 */

enum {
    RECOVERED_SIZE_MAX = 16 << 20, /* several threads share the scan of a longer segment */
    RECOVERY_WINDOW = 1 << 18,
    SYNCED_EACH_MAX = 64 /* partitions; a sync of the file system replaces that of more */
};

bool slg_clean_is_accessible(const slg_clean_loader *l, const char *name) {
    return (l->checks & SLG_CLEAN_WRITABLE) == 0 ||
           faccessat(l->dir, name, R_OK | W_OK, AT_EACCESS) == 0;
}

static bool is_batch_plain(const slg_batch *batch, int64_t last) {
    return batch->magic == 2 && batch->base_offset > last &&
           batch->last_offset >= batch->base_offset && batch->last_offset < INT64_MAX;
}

/* Rebuilds both indexes from the log into l->offset_entries and l->time_entries, and applies its
 * batches to l->producers. */
static bool rebuild_indexes(slg_clean_loader *l, int fd, int64_t size, slg_rebuild *rebuild,
                            int64_t *highest_epoch) {
    slg_batch_scan scan = {.checks = SLG_SCAN_CRC};
    slg_error error;
    size_t count, taken;
    bool is_end = false;
    int64_t last = rebuild->base_offset - 1;
    slg_clean_scan_begin(l, &scan, fd, size, RECOVERY_WINDOW);
    while (!is_end) {
        if (!slg_clean_scan_next(l, &scan, &count, &is_end) ||
            rebuild->offset_entries + (int64_t)count >= SLG_CLEAN_ENTRIES) {
            return false;
        }
        for (size_t i = 0; i < count; i++) {
            if (!is_batch_plain(&l->batches[i], last)) {
                return false;
            }
            last = l->batches[i].last_offset;
            if (l->batches[i].partition_leader_epoch > *highest_epoch) {
                *highest_epoch = l->batches[i].partition_leader_epoch;
            }
        }
        if (!slg_clean_apply_producers(l, fd, count)) {
            return false;
        }
        if (slg_rebuild_feed(rebuild, l->batches, count,
                             l->offset_entries + (size_t)rebuild->offset_entries *
                                                     slg_index_entry_size(SLG_INDEX_KIND_OFFSET),
                             l->time_entries + (size_t)rebuild->time_entries *
                                                   slg_index_entry_size(SLG_INDEX_KIND_TIME),
                             &taken, &error) != SLG_OK) {
            return false;
        }
    }
    return true;
}

/* Whether the index can be read. Clears *has_all if it does not begin with these entries. */
static bool compare_entries(slg_clean_loader *l, slg_clean_partition *p, const char *suffix,
                            const uint8_t *entries, int64_t size, bool *has_all) {
    char name[SLG_NAME_SIZE];
    slg_error error;
    int64_t length;
    int fd;
    slg_segment_name(name, p->last_base_offset, suffix);
    if (!slg_clean_is_accessible(l, name)) {
        return false;
    }
    if (size == 0) { /* the size suffices, and the last segment of most logs is empty */
        length = slg_clean_size(l->dir, name);
        p->has_longer_indexes |= length > 0;
        return length >= 0;
    }
    if (slg_open_read(l->dir, name, false, &fd, &length, &error) != SLG_OK) {
        return false;
    }
    bool same = length >= size;
    for (int64_t at = 0; same && at < size;) {
        const int64_t left = size - at;
        const size_t piece = left < SLG_CLEAN_BUFFER ? (size_t)left : SLG_CLEAN_BUFFER;
        same = slg_pread_exact(fd, l->buffer, piece, at, &error) == SLG_OK &&
               memcmp(l->buffer, entries + at, piece) == 0;
        at += (int64_t)piece;
    }
    close(fd);
    p->has_longer_indexes |= length > size;
    *has_all &= same;
    return true;
}

/* Whether both indexes can be read. Keeps their entries to be written if a file lacks some. */
static bool compare_indexes(slg_clean_loader *l, slg_clean_partition *p, slg_status *status,
                            slg_error *error) {
    bool has_all = true;
    int64_t ignored;
    p->indexes_at = -1;
    if (!compare_entries(l, p, ".index", l->offset_entries, p->index_size, &has_all) ||
        !compare_entries(l, p, ".timeindex", l->time_entries, p->time_index_size, &has_all)) {
        return false;
    }
    if (!has_all) {
        *status = slg_clean_add_content(l, l->offset_entries, (size_t)p->index_size, &p->indexes_at,
                                        error);
    }
    if (!has_all && *status == SLG_OK) {
        *status =
            slg_clean_add_content(l, l->time_entries, (size_t)p->time_index_size, &ignored, error);
    }
    return *status == SLG_OK;
}

bool slg_clean_recover(slg_clean_loader *l, slg_clean_partition *p, int64_t log_size,
                       int64_t *highest_epoch, slg_status *status, slg_error *error) {
    char name[SLG_NAME_SIZE];
    slg_rebuild rebuild;
    slg_error ignored;
    size_t written;
    int64_t size;
    int fd;
    *highest_epoch = -1;
    p->has_longer_indexes = 0;
    slg_segment_name(name, p->last_base_offset, ".log");
    slg_rebuild_init(&rebuild, p->last_base_offset, 0, p->index_interval_bytes, p->index_bytes);
    if (log_size > RECOVERED_SIZE_MAX || p->last_base_offset > INT64_MAX - INT32_MAX ||
        !slg_clean_is_accessible(l, name)) {
        return false;
    }
    if (log_size > 0) {
        if (!slg_clean_begin_producers(l, p) ||
            slg_open_read(l->dir, name, false, &fd, &size, &ignored) != SLG_OK) {
            return false;
        }
        const bool is_sound =
            size == log_size && rebuild_indexes(l, fd, size, &rebuild, highest_epoch) &&
            slg_rebuild_finish(&rebuild,
                               l->time_entries + (size_t)rebuild.time_entries *
                                                     slg_index_entry_size(SLG_INDEX_KIND_TIME),
                               &written, &ignored) == SLG_OK;
        close(fd);
        if (!is_sound) {
            return false;
        }
    }
    p->log_end_offset = slg_rebuild_next_offset(&rebuild);
    p->last_batches = rebuild.batch_count;
    p->last_records = rebuild.record_count;
    p->index_size = rebuild.offset_entries * (int64_t)slg_index_entry_size(SLG_INDEX_KIND_OFFSET);
    p->time_index_size = rebuild.time_entries * (int64_t)slg_index_entry_size(SLG_INDEX_KIND_TIME);
    return compare_indexes(l, p, status, error);
}

/* ---- indexes -------------------------------------------------------------------------------- */

/* Writes `entries` (NULL: the file has them), and truncates the file after them. */
static bool write_index(int dir, const char *name, const uint8_t *entries, int64_t size) {
    slg_error error;
    const int fd = openat(dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    const bool ok =
        (entries == NULL || slg_pwrite(fd, entries, (size_t)size, 0, &error) == SLG_OK) &&
        slg_trim(fd, size, &error) == SLG_OK;
    return (close(fd) == 0) && ok;
}

static bool write_indexes(int root, const char *partition, const slg_clean_partition *p,
                          const uint8_t *contents) {
    char name[SLG_NAME_SIZE];
    const uint8_t *entries = p->indexes_at < 0 ? NULL : contents + p->indexes_at;
    int dir;
    if (slg_open_directory(root, partition, false, &dir, NULL) != SLG_OK) {
        return false;
    }
    const bool ok = write_index(dir, slg_segment_name(name, p->last_base_offset, ".index"), entries,
                                p->index_size) &&
                    write_index(dir, slg_segment_name(name, p->last_base_offset, ".timeindex"),
                                entries == NULL ? NULL : entries + p->index_size,
                                p->time_index_size);
    close(dir);
    return ok;
}

void slg_clean_write_indexes(const char *root, const char *names, slg_clean_partition *partitions,
                             size_t count, const uint8_t *contents) {
    int home;
    const bool is_open = slg_open_directory(AT_FDCWD, root, true, &home, NULL) == SLG_OK;
    for (size_t row = 0; row < count; row++, names += strlen(names) + 1) {
        slg_clean_partition *p = &partitions[row];
        if (p->plain && (p->indexes_at >= 0 || p->has_longer_indexes)) {
            p->plain = is_open && write_indexes(home, names, p, contents);
        }
    }
    if (is_open) {
        close(home);
    }
}

/* ---- durability ----------------------------------------------------------------------------- */

static slg_status sync_file(int dir, int64_t number, const char *suffix, slg_error *error) {
    char name[SLG_NAME_SIZE];
    int64_t size;
    int fd;
    slg_status status =
        slg_open_read(dir, slg_segment_name(name, number, suffix), false, &fd, &size, error);
    if (status == SLG_OK) {
        status = slg_sync(fd, true, error);
        close(fd);
    }
    return status;
}

/* Syncs the indexes of the last segment (with `logs` its log), the snapshot at the log's end, and
 * the names of all files. */
static slg_status sync_files(int dir, const slg_clean_partition *p, bool logs, slg_error *error) {
    const int64_t base = p->last_base_offset;
    slg_status status = logs ? sync_file(dir, base, ".log", error) : SLG_OK;
    if (status == SLG_OK) {
        status = sync_file(dir, base, ".index", error);
    }
    if (status == SLG_OK) {
        status = sync_file(dir, base, ".timeindex", error);
    }
    if (status == SLG_OK && (p->has_snapshot || p->snapshot_at >= 0)) {
        status = sync_file(dir, p->log_end_offset, ".snapshot", error);
    }
    return status == SLG_OK ? slg_sync(dir, true, error) : status;
}

static slg_status sync_partition(int root, const char *name, const slg_clean_partition *p,
                                 bool logs, slg_error *error) {
    int dir;
    slg_status status = slg_open_directory(root, name, false, &dir, error);
    if (status == SLG_OK) {
        status = sync_files(dir, p, logs, error);
        close(dir);
    }
    return status;
}

slg_status slg_clean_sync(const char *root, const char *names,
                          const slg_clean_partition *partitions, size_t count, bool logs,
                          size_t *failed, slg_error *error) {
    int home;
    *failed = count;
    slg_status status = slg_open_directory(AT_FDCWD, root, true, &home, error);
    if (status != SLG_OK) {
        return status;
    }
#if defined(__linux__)
    if (count > SYNCED_EACH_MAX) {
        status = syncfs(home) == 0 ? SLG_OK : slg_fail_errno(error, SLG_IO, 0, errno);
        close(home);
        return status;
    }
#endif
    for (size_t row = 0; row < count && status == SLG_OK; row++) {
        status = sync_partition(home, names, &partitions[row], logs, error);
        *failed = row;
        names += strlen(names) + 1;
    }
    close(home);
    return status;
}
