/* Shared by all readers of entries: the framing, and values of records that a batch determines. */
#ifndef SEGLOG_ENTRY_H
#define SEGLOG_ENTRY_H

#include <stdbool.h>

#include "java.h"
#include "seglog/batch.h"
#include "seglog/format.h"
#include "seglog/wire.h"

/*
 * The size of the entry whose first SLG_PREFIX_SIZE bytes are at `at`, including them. False if its
 * length is below the minimum; slg_frame_length then returns the length.
 */
static inline bool slg_frame(const uint8_t *at, int64_t *size) {
    const int32_t length = slg_load_i32(at + SLG_PREFIX_LENGTH_AT);
    *size = (int64_t)length + SLG_PREFIX_SIZE;
    return length >= SLG_LEGACY_LENGTH_MIN;
}

static inline int64_t slg_frame_length(int64_t size) { return size - SLG_PREFIX_SIZE; }

static inline bool slg_batch_has(const slg_batch *batch, int attribute) {
    return (batch->attributes & attribute) != 0;
}

/* The last offset of a batch of magic 2, whose header is at `at`. */
static inline int64_t slg_last_offset_at(const uint8_t *at) {
    return slg_java_add(slg_load_i64(at + SLG_BATCH_BASE_OFFSET_AT),
                        slg_load_i32(at + SLG_BATCH_LAST_OFFSET_DELTA_AT));
}

/* The timestamp of a record of a batch of magic 2. */
static inline int64_t slg_record_timestamp(const slg_batch *batch, int64_t delta) {
    return slg_batch_has(batch, SLG_ATTRIBUTE_LOG_APPEND_TIME)
               ? batch->max_timestamp
               : slg_java_add(batch->base_timestamp, delta);
}

/* Its sequence, or -1 (Kafka: DefaultRecord.readFrom). */
static inline int32_t slg_record_sequence(const slg_batch *batch, int32_t delta) {
    return batch->base_sequence < 0 ? -1 : slg_java_sequence(batch->base_sequence, delta);
}

static inline int32_t slg_last_offset_delta(const slg_batch *batch) {
    return slg_java_int(slg_java_subtract(batch->last_offset, batch->base_offset));
}

/* The last sequence of a batch (Kafka: DefaultRecordBatch.lastSequence). */
static inline int32_t slg_last_sequence(const slg_batch *batch) {
    return batch->base_sequence == -1
               ? -1
               : slg_java_sequence(batch->base_sequence, slg_last_offset_delta(batch));
}

#endif
