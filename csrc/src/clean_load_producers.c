#define _GNU_SOURCE /* st_mtim under -std=c11 */

#include <stdlib.h>
#include <string.h>

#include "clean_load_internal.h"
#include "java.h"
#include "producers_internal.h"
#include "seglog/wire.h"

/* ---- the table ------------------------------------------------------------------------------ */

static slg_status add_timestamps(slg_clean_table *table, const uint8_t *data, size_t count,
                                 slg_error *error) {
    const slg_status status = SLG_MAKE_ROOM(table->timestamps, table->timestamp_capacity,
                                            table->timestamp_count, count, error);
    for (size_t n = 0; n < count && status == SLG_OK; n++) {
        table->timestamps[table->timestamp_count++] = slg_snapshot_entry(data, n).last_timestamp;
    }
    return status;
}

slg_status slg_clean_add_content(slg_clean_loader *l, const uint8_t *data, size_t size, int64_t *at,
                                 slg_error *error) {
    slg_clean_table *table = l->table;
    const slg_status status =
        SLG_MAKE_ROOM(table->contents, table->contents_capacity, table->contents_size, size, error);
    *at = (int64_t)table->contents_size;
    if (status == SLG_OK && size > 0) {
        memcpy(table->contents + table->contents_size, data, size);
        table->contents_size += size;
    }
    return status;
}

/* ---- one snapshot --------------------------------------------------------------------------- */

/* Whether each producer appears once. */
static bool are_ids_unique(slg_clean_loader *l, const uint8_t *data, size_t count) {
    for (size_t n = 0; n < count; n++) {
        l->producer_ids[n] = (uint64_t)slg_snapshot_entry(data, n).id;
    }
    qsort(l->producer_ids, count, sizeof l->producer_ids[0], slg_by_number);
    for (size_t n = 1; n < count; n++) {
        if (l->producer_ids[n] == l->producer_ids[n - 1]) {
            return false;
        }
    }
    return true;
}

/* Reads the snapshot at `offset` into the buffer. */
static bool read_snapshot(slg_clean_loader *l, int64_t offset, size_t *size, size_t *count) {
    char name[SLG_NAME_SIZE];
    return slg_clean_read_small(l, slg_segment_name(name, offset, ".snapshot"), size) == SLG_OK &&
           slg_snapshot_is_sound(l->buffer, *size, count) && are_ids_unique(l, l->buffer, *count);
}

static bool is_expired(const slg_clean_table *table, const slg_producer *producer) {
    return table->producer_idle_ms > 0 && !producer->in_txn &&
           slg_java_subtract(table->now_ms, producer->last_timestamp) >= table->producer_idle_ms;
}

bool slg_clean_begin_producers(slg_clean_loader *l, const slg_clean_partition *p) {
    size_t size;
    size_t count;
    slg_error error;
    slg_producers_clear(&l->producers);
    if (p->segments == 1 || p->last_base_offset <= p->log_start_offset) {
        return true;
    }
    if (!read_snapshot(l, p->last_base_offset, &size, &count)) {
        return false;
    }
    for (size_t n = 0; n < count; n++) {
        const slg_producer producer = slg_snapshot_entry(l->buffer, n);
        if (!is_expired(l->table, &producer) &&
            slg_producers_load(&l->producers, &producer, &error) != SLG_OK) {
            return false; /* out of memory, which the loader reports if it fails too */
        }
    }
    return true;
}

bool slg_clean_apply_producers(slg_clean_loader *l, int fd, size_t count) {
    size_t taken;
    size_t aborted_count;
    slg_marker aborted;
    slg_error error;
    return slg_producers_apply(&l->producers, fd, l->batches, count, &taken, &aborted, 1,
                               &aborted_count, &error) == SLG_OK &&
           aborted_count == 0;
}

/* ---- the snapshots of a partition ----------------------------------------------------------- */

/*
 * Makes the snapshot that the recovery of the last segment writes, in l->rebuilt. An earlier
 * shutdown or recovery may have written another one at the log's end: since then producers of
 * earlier segments may have expired, and expired producers of this segment return.
 */
static bool make_snapshot(slg_clean_loader *l, size_t *size, size_t *count, slg_status *status,
                          slg_error *error) {
    *size = slg_snapshot_size(&l->producers);
    *count = l->producers.producers.count;
    return *size <= SLG_CLEAN_BUFFER &&
           (*status = slg_snapshot_write(&l->producers, l->rebuilt, error)) == SLG_OK;
}

/* Whether the snapshot at the log's end has these bytes. */
static bool has_snapshot(slg_clean_loader *l, const slg_clean_partition *p, const uint8_t *data,
                         size_t size) {
    size_t there;
    size_t ignored;
    return p->has_snapshot && read_snapshot(l, p->log_end_offset, &there, &ignored) &&
           there == size && memcmp(l->buffer, data, size) == 0;
}

/* Reads or rebuilds the snapshot at the log's end. False if a transaction is open in it. */
static bool read_producers(slg_clean_loader *l, slg_clean_partition *p, bool is_rebuilt,
                           slg_status *status, slg_error *error) {
    const uint8_t *data = is_rebuilt ? l->rebuilt : l->buffer;
    size_t size;
    size_t count;
    if (!(is_rebuilt ? make_snapshot(l, &size, &count, status, error)
                     : read_snapshot(l, p->log_end_offset, &size, &count))) {
        return false;
    }
    for (size_t n = 0; n < count; n++) {
        if (slg_snapshot_entry(data, n).in_txn) {
            return false;
        }
    }
    p->producers = (int64_t)count;
    p->producers_at = (int64_t)l->table->timestamp_count;
    *status = add_timestamps(l->table, data, count, error);
    if (*status == SLG_OK && is_rebuilt && !has_snapshot(l, p, data, size)) {
        p->snapshot_size = (int64_t)size;
        *status = slg_clean_add_content(l, data, size, &p->snapshot_at, error);
    }
    return *status == SLG_OK;
}

bool slg_clean_producers(slg_clean_loader *l, slg_clean_partition *p, bool is_rebuilt,
                         slg_status *status, slg_error *error) {
    const slg_listing *listing = &l->listing;
    int64_t last = -1;
    p->producers = p->producers_at = p->snapshot_size = 0;
    p->stray_snapshot = p->snapshot_at = -1;
    p->has_snapshot = 0;
    for (size_t row = 0; row < listing->numbered_count; row++) {
        const slg_numbered *one = &listing->numbered[row];
        if ((one->has & SLG_HAS_SNAPSHOT) == 0) {
            continue;
        }
        if ((one->has & SLG_HAS_LOG) == 0 && one->number != p->log_end_offset) {
            if (p->stray_snapshot >= 0) {
                return false;
            }
            p->stray_snapshot = one->number;
        } else if (one->number <= p->log_start_offset || one->number > p->log_end_offset) {
            return false;
        }
        p->has_snapshot |= one->number == p->log_end_offset;
        last = one->number;
    }
    if (!is_rebuilt && last != p->log_end_offset) {
        return last < 0 && p->log_end_offset == 0;
    }
    return read_producers(l, p, is_rebuilt, status, error);
}
