#include "seglog/validate.h"

#include <string.h>

#include "entry.h"

/* ---- batches ------------------------------------------------------------------------------- */

void slg_analysis_init(slg_analysis *analysis) {
    analysis->position = 0;
    analysis->first_offset = analysis->last_offset = analysis->last_offset_of_first_batch = -1;
    analysis->max_timestamp = -1;
    analysis->last_leader_epoch = -1;
    analysis->valid_bytes = 0;
    analysis->codec = SLG_CODEC_NONE;
    analysis->is_skipping = analysis->has_batch = false;
    analysis->is_ordered = true;
    analysis->a = 0;
}

static slg_refusal refuse_batch(slg_analysis *analysis, slg_refusal refusal, int64_t a) {
    analysis->a = a;
    return refusal;
}

/* The size of the entry at the position; if accepted, its magic is known too. */
static slg_refusal frame(slg_analysis *analysis, const uint8_t *data, size_t size,
                         int32_t *batch_size) {
    const size_t left = size - analysis->position;
    const uint8_t *at = data + analysis->position;
    if (left < SLG_PREFIX_SIZE) {
        return SLG_NO_MORE;
    }
    int64_t whole;
    if (!slg_frame(at, &whole)) {
        return refuse_batch(analysis, SLG_REFUSE_LENGTH, slg_frame_length(whole));
    }
    if (left < SLG_PREFIX_AND_MAGIC_SIZE) {
        return SLG_NO_MORE;
    }
    const int8_t magic = slg_load_i8(at + SLG_MAGIC_AT);
    if (magic < 0 || magic > SLG_MAGIC_MAX) {
        return refuse_batch(analysis, SLG_REFUSE_MAGIC, magic);
    }
    if (whole > INT32_MAX) {
        /* Java adds in 32 bits, and a negative size never exceeds the bytes that remain. */
        return refuse_batch(analysis, SLG_REFUSE_OVERFLOW, slg_java_int(whole));
    }
    if ((uint64_t)whole > left) {
        return SLG_NO_MORE;
    }
    *batch_size = (int32_t)whole;
    return SLG_ACCEPTED;
}

/* Checks a batch of magic 2 that ends inside its header, as Kafka does before the CRC. */
static slg_refusal judge_short(slg_analysis *analysis, const uint8_t *at, int32_t size) {
    const int64_t base_offset = slg_load_i64(at + SLG_BATCH_BASE_OFFSET_AT);
    const int32_t epoch = slg_load_i32(at + SLG_BATCH_LEADER_EPOCH_AT);
    if (analysis->origin == SLG_ORIGIN_RAFT_LEADER && epoch != analysis->leader_epoch) {
        return refuse_batch(analysis, SLG_REFUSE_RAFT_EPOCH, epoch);
    }
    if (analysis->origin == SLG_ORIGIN_CLIENT && base_offset != 0) {
        return refuse_batch(analysis, SLG_REFUSE_BASE_OFFSET, base_offset);
    }
    if (size < SLG_BATCH_BASE_TIMESTAMP_AT) {
        return refuse_batch(analysis, SLG_REFUSE_SHORT, size);
    }
    if (size > analysis->batch_bytes_max) {
        return refuse_batch(analysis, SLG_REFUSE_SIZE, size);
    }
    return refuse_batch(analysis, SLG_REFUSE_CRC, slg_load_u32(at + SLG_BATCH_CRC_AT));
}

static bool is_above_epoch(const slg_analysis *analysis, const slg_batch *batch) {
    return analysis->origin == SLG_ORIGIN_REPLICATION && batch->partition_leader_epoch != -1 &&
           batch->partition_leader_epoch > analysis->leader_epoch;
}

/* Adds an accepted batch to the result, with Kafka's checks in between. */
static slg_refusal judge(slg_analysis *analysis, const uint8_t *at, const slg_batch *batch) {
    slg_error error;
    if (!analysis->has_batch) {
        analysis->first_offset = slg_batch_is_legacy(batch) ? -1 : batch->base_offset;
        analysis->last_offset_of_first_batch = batch->last_offset;
        analysis->has_batch = true;
    }
    if (analysis->last_offset >= batch->last_offset) {
        analysis->is_ordered = false;
    }
    analysis->last_offset = batch->last_offset;
    analysis->last_leader_epoch = batch->partition_leader_epoch;
    if (batch->size > analysis->batch_bytes_max) {
        return refuse_batch(analysis, SLG_REFUSE_SIZE, batch->size);
    }
    if (slg_batch_check_crc(batch, at, analysis->kernel, &error) != SLG_OK) {
        return refuse_batch(analysis, SLG_REFUSE_CRC, batch->crc);
    }
    if (batch->max_timestamp > analysis->max_timestamp) {
        analysis->max_timestamp = batch->max_timestamp;
    }
    analysis->valid_bytes += batch->size;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    if (codec > SLG_CODEC_MAX) {
        return refuse_batch(analysis, SLG_REFUSE_CODEC, codec);
    }
    if (codec != SLG_CODEC_NONE) {
        analysis->codec = codec;
    }
    return SLG_ACCEPTED;
}

slg_refusal slg_analyze_next(slg_analysis *analysis, const uint8_t *data, size_t size,
                             slg_batch *batch) {
    int32_t batch_size = 0;
    slg_error error;
    slg_refusal refusal = frame(analysis, data, size, &batch_size);
    if (refusal != SLG_ACCEPTED) {
        return refusal;
    }
    const uint8_t *at = data + analysis->position;
    if (slg_batch_parse(at, (size_t)batch_size, (int64_t)analysis->position, batch_size, batch,
                        &error) != SLG_OK) {
        return analysis->is_plain ? refuse_batch(analysis, SLG_REFUSE_SHORT, batch_size)
                                  : judge_short(analysis, at, batch_size);
    }
    if (analysis->is_plain) {
        analysis->position += (size_t)batch_size;
        return SLG_ACCEPTED;
    }
    if (analysis->origin == SLG_ORIGIN_RAFT_LEADER &&
        batch->partition_leader_epoch != analysis->leader_epoch) {
        return refuse_batch(analysis, SLG_REFUSE_RAFT_EPOCH, batch->partition_leader_epoch);
    }
    if (!slg_batch_is_legacy(batch) && analysis->origin == SLG_ORIGIN_CLIENT &&
        batch->base_offset != 0) {
        return refuse_batch(analysis, SLG_REFUSE_BASE_OFFSET, batch->base_offset);
    }
    analysis->is_skipping = analysis->is_skipping || is_above_epoch(analysis, batch);
    if (!analysis->is_skipping) {
        refusal = judge(analysis, at, batch);
        if (refusal != SLG_ACCEPTED) {
            return refusal;
        }
    }
    if (analysis->needs_order && !analysis->is_ordered) {
        return refuse_batch(analysis, SLG_REFUSE_ORDER, batch->last_offset);
    }
    analysis->position += (size_t)batch_size;
    return SLG_ACCEPTED;
}

slg_refusal slg_check_client_header(const slg_batch *batch) {
    const int64_t range =
        slg_java_add(slg_java_subtract(batch->last_offset, batch->base_offset), 1);
    if (range <= 0) {
        return SLG_REFUSE_RANGE;
    }
    if (batch->record_count <= 0) {
        return SLG_REFUSE_COUNT;
    }
    if (range != batch->record_count) {
        return SLG_REFUSE_COUNT_OF_RANGE;
    }
    if ((batch->attributes & SLG_ATTRIBUTE_CONTROL) != 0) {
        return SLG_REFUSE_CONTROL;
    }
    if (batch->producer_id > -1 && batch->base_sequence < 0) {
        return SLG_REFUSE_SEQUENCE;
    }
    return SLG_ACCEPTED;
}

/* ---- what an append changes ---------------------------------------------------------------- */

void slg_assign(uint8_t *header, const uint8_t *records, const slg_assignment *assignment,
                int64_t count, slg_crc32c_kernel kernel, slg_batch *batch) {
    const int64_t delta = slg_java_subtract(batch->last_offset, batch->base_offset);
    batch->last_offset = slg_java_add(assignment->next_offset, count - 1);
    batch->base_offset = slg_java_subtract(batch->last_offset, delta);
    batch->partition_leader_epoch = assignment->leader_epoch;
    slg_store_i64(header + SLG_BATCH_BASE_OFFSET_AT, batch->base_offset);
    slg_store_i32(header + SLG_BATCH_LEADER_EPOCH_AT, assignment->leader_epoch);

    const bool had_append_time = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
    if (had_append_time == assignment->has_append_time &&
        batch->max_timestamp == assignment->max_timestamp) {
        return;
    }
    /* Kafka writes only the attributes that it knows. */
    int attributes = batch->attributes & (SLG_ATTRIBUTE_CODEC | SLG_ATTRIBUTE_TRANSACTIONAL |
                                          SLG_ATTRIBUTE_CONTROL | SLG_ATTRIBUTE_DELETE_HORIZON);
    if (assignment->has_append_time) {
        attributes |= SLG_ATTRIBUTE_LOG_APPEND_TIME;
    }
    batch->attributes = (int16_t)attributes;
    batch->max_timestamp = assignment->max_timestamp;
    slg_store_u16(header + SLG_BATCH_ATTRIBUTES_AT, (uint16_t)attributes);
    slg_store_i64(header + SLG_BATCH_MAX_TIMESTAMP_AT, batch->max_timestamp);
    batch->crc = slg_crc32c(kernel, 0, header + SLG_BATCH_CRC_FROM,
                            SLG_BATCH_HEADER_SIZE - SLG_BATCH_CRC_FROM);
    batch->crc =
        slg_crc32c(kernel, batch->crc, records, (size_t)batch->size - SLG_BATCH_HEADER_SIZE);
    slg_store_u32(header + SLG_BATCH_CRC_AT, batch->crc);
}
