#define _GNU_SOURCE /* PATH_MAX under -std=c11 */

#include <stdlib.h>

#include "clean_load_internal.h"
#include "seglog/crc32c.h"
#include "seglog/wire.h"

enum {
    SNAPSHOT_HEADER = 10, /* version, CRC, number of entries */
    SNAPSHOT_CRC_FROM = 6,
    SNAPSHOT_TIMESTAMP = 26, /* bytes into an entry */
    SNAPSHOT_TXN = 38
};

static slg_status add_timestamp(slg_clean_table *table, int64_t timestamp, slg_error *error) {
    if (table->timestamp_count == table->timestamp_capacity) {
        const size_t grown = table->timestamp_capacity == 0 ? 64 : table->timestamp_capacity * 2;
        int64_t *moved = grown > SIZE_MAX / sizeof *moved
                             ? NULL
                             : realloc(table->timestamps, grown * sizeof *moved);
        if (moved == NULL) {
            return slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
        }
        table->timestamps = moved;
        table->timestamp_capacity = grown;
    }
    table->timestamps[table->timestamp_count++] = timestamp;
    return SLG_OK;
}

static int compare_ids(const void *a, const void *b) {
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* No producer is there twice. */
static bool are_ids_unique(slg_clean_loader *l, uint32_t count) {
    for (uint32_t n = 0; n < count; n++) {
        l->producer_ids[n] =
            (int64_t)slg_load_u64(l->buffer + SNAPSHOT_HEADER + n * SLG_CLEAN_PRODUCER);
    }
    qsort(l->producer_ids, count, sizeof l->producer_ids[0], compare_ids);
    for (uint32_t n = 1; n < count; n++) {
        if (l->producer_ids[n] == l->producer_ids[n - 1]) {
            return false;
        }
    }
    return true;
}

/* The snapshot at `offset` into the buffer, with as many entries as it says. */
static bool read_snapshot(slg_clean_loader *l, int64_t offset, uint32_t *count) {
    char name[SLG_NAME_SIZE];
    size_t size;
    if (slg_clean_read_small(l, slg_segment_name(name, offset, ".snapshot"), &size) != SLG_OK ||
        size < SNAPSHOT_HEADER || slg_load_u16(l->buffer) != 1) {
        return false;
    }
    *count = slg_load_u32(l->buffer + SNAPSHOT_CRC_FROM);
    return *count <= SLG_CLEAN_BUFFER &&
           SNAPSHOT_HEADER + (size_t)*count * SLG_CLEAN_PRODUCER == size &&
           slg_load_u32(l->buffer + 2) ==
               slg_crc32c(l->kernel, 0, l->buffer + SNAPSHOT_CRC_FROM, size - SNAPSHOT_CRC_FROM);
}

bool slg_clean_is_without_producers(slg_clean_loader *l, int64_t offset) {
    uint32_t count;
    return read_snapshot(l, offset, &count) && count == 0;
}

/* The snapshot at the log's end reads well, and no transaction is open in it. */
static bool read_producers(slg_clean_loader *l, slg_clean_partition *p, slg_status *status,
                           slg_error *error) {
    uint32_t count;
    if (!read_snapshot(l, p->log_end_offset, &count)) {
        return false;
    }
    for (uint32_t n = 0; n < count; n++) {
        if ((int64_t)slg_load_u64(l->buffer + SNAPSHOT_HEADER + n * SLG_CLEAN_PRODUCER +
                                  SNAPSHOT_TXN) >= 0) {
            return false;
        }
    }
    if (!are_ids_unique(l, count)) {
        return false;
    }
    p->producers = count;
    p->producers_at = (int64_t)l->table->timestamp_count;
    for (uint32_t n = 0; n < count && *status == SLG_OK; n++) {
        *status = add_timestamp(l->table,
                                (int64_t)slg_load_u64(l->buffer + SNAPSHOT_HEADER +
                                                      n * SLG_CLEAN_PRODUCER + SNAPSHOT_TIMESTAMP),
                                error);
    }
    return *status == SLG_OK;
}

bool slg_clean_producers(slg_clean_loader *l, slg_clean_partition *p, slg_status *status,
                         slg_error *error) {
    const slg_listing *listing = &l->listing;
    int64_t last = -1;
    p->producers = p->producers_at = 0;
    p->stray_snapshot = -1;
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
        last = one->number;
    }
    p->has_snapshot = last >= 0;
    if (last < 0) {
        return p->log_end_offset == 0;
    }
    return last == p->log_end_offset && read_producers(l, p, status, error);
}
