#include "seglog/rebuild.h"

#include "entry.h"

void slg_rebuild_init(slg_rebuild *rebuild, int64_t base_offset, int64_t start,
                      int64_t interval_bytes, int64_t index_bytes) {
    *rebuild = (slg_rebuild){
        .base_offset = base_offset,
        .start = start,
        .interval_bytes = interval_bytes,
        .offset_entries_max = index_bytes / SLG_OFFSET_ENTRY_SIZE,
        .time_entries_max = index_bytes / SLG_TIME_ENTRY_SIZE,
        .last_offset = -1,
        .max_timestamp = -1,
        .offset_of_max_timestamp = base_offset,
        .last_time = -1,
        .last_time_offset = base_offset,
        .highest_base_offset = INT64_MIN,
    };
}

static int32_t relative(const slg_rebuild *rebuild, int64_t offset) {
    return slg_java_int(slg_java_subtract(offset, rebuild->base_offset));
}

static slg_status refuse(slg_rebuild *rebuild, slg_index_kind kind, slg_status status,
                         int64_t position, int64_t expected, int64_t found, slg_error *error) {
    rebuild->failed = kind;
    return slg_fail(error, status, position, expected, found);
}

static slg_status add_offset(slg_rebuild *rebuild, int64_t offset, uint8_t *entry,
                             slg_error *error) {
    const int64_t at = rebuild->start + rebuild->size;
    if (rebuild->offset_entries >= rebuild->offset_entries_max) {
        return refuse(rebuild, SLG_INDEX_KIND_OFFSET, SLG_INDEX_FULL, at,
                      rebuild->offset_entries_max, rebuild->offset_entries + 1, error);
    }
    if (rebuild->offset_entries > 0 && offset <= rebuild->last_indexed_offset) {
        return refuse(rebuild, SLG_INDEX_KIND_OFFSET, SLG_INDEX_OFFSET_ORDER, at,
                      rebuild->last_indexed_offset, offset, error);
    }
    if (rebuild->size > INT32_MAX) {
        return refuse(rebuild, SLG_INDEX_KIND_OFFSET, SLG_LIMIT, at, INT32_MAX, rebuild->size,
                      error);
    }
    slg_store_i32(entry + SLG_OFFSET_ENTRY_OFFSET_AT, relative(rebuild, offset));
    slg_store_i32(entry + SLG_OFFSET_ENTRY_POSITION_AT, (int32_t)rebuild->size);
    rebuild->offset_entries++;
    rebuild->last_indexed_offset = offset;
    return SLG_OK;
}

static slg_status time_index_full(slg_rebuild *rebuild, int64_t room, slg_error *error) {
    return refuse(rebuild, SLG_INDEX_KIND_TIME, SLG_INDEX_FULL, rebuild->start + rebuild->size,
                  room, rebuild->time_entries + 1, error);
}

/* Writes the largest timestamp so far, unless the index has it; *written is 0 or 1. */
static slg_status add_time(slg_rebuild *rebuild, uint8_t *entry, size_t *written,
                           slg_error *error) {
    const int64_t at = rebuild->start + rebuild->size;
    *written = 0;
    /* Timestamps never decrease here, so only the offset can be out of order. */
    if (rebuild->time_entries > 0 && rebuild->offset_of_max_timestamp < rebuild->last_time_offset) {
        return refuse(rebuild, SLG_INDEX_KIND_TIME, SLG_INDEX_OFFSET_ORDER, at,
                      rebuild->last_time_offset, rebuild->offset_of_max_timestamp, error);
    }
    if (rebuild->max_timestamp <= rebuild->last_time) {
        return SLG_OK;
    }
    if (rebuild->time_entries >= rebuild->time_entries_max) {
        return time_index_full(rebuild, rebuild->time_entries_max, error);
    }
    slg_store_i64(entry + SLG_TIME_ENTRY_TIMESTAMP_AT, rebuild->max_timestamp);
    slg_store_i32(entry + SLG_TIME_ENTRY_OFFSET_AT,
                  relative(rebuild, rebuild->offset_of_max_timestamp));
    rebuild->time_entries++;
    rebuild->last_time = rebuild->max_timestamp;
    rebuild->last_time_offset = rebuild->offset_of_max_timestamp;
    *written = 1;
    return SLG_OK;
}

/* Writes both entries of a batch, in Kafka's order: the second may fail after the first. */
static slg_status add_entries(slg_rebuild *rebuild, const slg_batch *batch, uint8_t **offsets,
                              uint8_t **times, slg_error *error) {
    size_t written;
    slg_status status = add_offset(rebuild, batch->last_offset, *offsets, error);
    if (status != SLG_OK) {
        return status;
    }
    *offsets += SLG_OFFSET_ENTRY_SIZE;
    rebuild->highest_base_offset = INT64_MIN;
    /* The last slot is reserved for slg_rebuild_finish. */
    if (rebuild->time_entries >= rebuild->time_entries_max - 1) {
        return time_index_full(rebuild, rebuild->time_entries_max - 1, error);
    }
    status = add_time(rebuild, *times, &written, error);
    *times += written * SLG_TIME_ENTRY_SIZE;
    rebuild->last_entry_position = rebuild->size;
    return status;
}

slg_status slg_rebuild_feed(slg_rebuild *rebuild, const slg_batch *batches, size_t count,
                            uint8_t *offsets, uint8_t *times, size_t *taken, slg_error *error) {
    for (*taken = 0; *taken < count; ++*taken) {
        const slg_batch *batch = batches + *taken;
        /* Unsigned, so that an offset below the base is out of range too. */
        const uint64_t distance = (uint64_t)batch->last_offset - (uint64_t)rebuild->base_offset;
        if (distance > INT32_MAX) {
            return slg_fail(error, SLG_BATCH_OFFSET_RANGE, batch->position, rebuild->base_offset,
                            batch->last_offset);
        }
        if (batch->max_timestamp > rebuild->max_timestamp) {
            rebuild->max_timestamp = batch->max_timestamp;
            rebuild->offset_of_max_timestamp = batch->last_offset;
        }
        if (rebuild->size - rebuild->last_entry_position > rebuild->interval_bytes) {
            const slg_status status = add_entries(rebuild, batch, &offsets, &times, error);
            if (status != SLG_OK) {
                return status;
            }
        }
        if (batch->base_offset > rebuild->highest_base_offset) {
            rebuild->highest_base_offset = batch->base_offset;
        }
        rebuild->batch_count++;
        rebuild->record_count += batch->record_count < 0 ? 1 : batch->record_count;
        rebuild->last_offset = batch->last_offset;
        rebuild->size += batch->size;
    }
    return SLG_OK;
}

slg_status slg_rebuild_finish(slg_rebuild *rebuild, uint8_t *time, size_t *written,
                              slg_error *error) {
    return add_time(rebuild, time, written, error);
}

int64_t slg_rebuild_next_offset(const slg_rebuild *rebuild) {
    const int64_t target = rebuild->offset_entries > 0 ? rebuild->last_indexed_offset
                                                       : rebuild->base_offset;
    if (rebuild->batch_count == 0 ||
        (rebuild->last_offset < target && rebuild->highest_base_offset < target)) {
        return rebuild->base_offset;
    }
    return slg_java_add(rebuild->last_offset, 1);
}
