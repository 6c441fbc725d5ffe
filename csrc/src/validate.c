#include "seglog/validate.h"

#include <string.h>

#include "seglog/format.h"
#include "seglog/utf8.h"

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
    analysis->a = analysis->b = 0;
}

static slg_refusal refuse(int64_t *to_a, int64_t *to_b, slg_refusal refusal, int64_t a, int64_t b) {
    *to_a = a;
    *to_b = b;
    return refusal;
}

static slg_refusal refuse_batch(slg_analysis *analysis, slg_refusal refusal, int64_t a) {
    return refuse(&analysis->a, &analysis->b, refusal, a, 0);
}

/* The extent of the entry at the position; the magic is known when this accepts. */
static slg_refusal frame(slg_analysis *analysis, const uint8_t *data, size_t size,
                         int32_t *batch_size) {
    const size_t left = size - analysis->position;
    const uint8_t *at = data + analysis->position;
    if (left < SLG_PREFIX_SIZE) {
        return SLG_NO_MORE;
    }
    const int32_t length = slg_load_i32(at + SLG_PREFIX_LENGTH_AT);
    if (length < SLG_LEGACY_LENGTH_MIN) {
        return refuse_batch(analysis, SLG_REFUSE_LENGTH, length);
    }
    if (left < SLG_PREFIX_AND_MAGIC_SIZE) {
        return SLG_NO_MORE;
    }
    const int8_t magic = slg_load_i8(at + SLG_MAGIC_AT);
    if (magic < 0 || magic > SLG_MAGIC_MAX) {
        return refuse_batch(analysis, SLG_REFUSE_MAGIC, magic);
    }
    const int64_t whole = (int64_t)length + SLG_PREFIX_SIZE;
    if (whole > INT32_MAX) {
        /* Java adds in 32 bits, and less than nothing is always there. */
        return refuse_batch(analysis, SLG_REFUSE_OVERFLOW, whole - (INT64_C(1) << 32));
    }
    if ((uint64_t)whole > left) {
        return SLG_NO_MORE;
    }
    *batch_size = (int32_t)whole;
    return SLG_ACCEPTED;
}

/* A batch of magic 2 that ends inside its header, as far as Kafka reads it before its CRC. */
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

/* A batch that counts: what it adds to the outcome, with Kafka's checks in between. */
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
    /* Wraps as in Java. */
    const int64_t range =
        (int64_t)((uint64_t)batch->last_offset - (uint64_t)batch->base_offset + 1U);
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

/* ---- records of magic 2 -------------------------------------------------------------------- */

void slg_record_walk_init(slg_record_walk *walk, const slg_batch *batch, const uint8_t *records,
                          size_t size, slg_record_source source, const slg_record_rules *rules) {
    memset(walk, 0, sizeof *walk);
    walk->bytes = slg_cursor_of(records, size);
    walk->source = source;
    walk->base_offset = batch->base_offset;
    walk->base_timestamp = batch->base_timestamp;
    walk->append_time = batch->max_timestamp;
    walk->has_append_time = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
    walk->count = batch->record_count;
    walk->rules = rules;
    walk->max_timestamp = -1;
    walk->is_sequential = true;
}

static slg_refusal refuse_record(slg_record_walk *walk, slg_refusal refusal, int64_t a, int64_t b) {
    return refuse(&walk->a, &walk->b, refusal, a, b);
}

static inline int64_t wrapping_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

/*
 * The length of a record. A buffer that ends inside it is another refusal than a varint without an
 * end; a stream gives 0xff behind its end, so that there both are one.
 */
static slg_refusal read_length(slg_record_walk *walk, int32_t *length) {
    if (slg_read_varint(&walk->bytes, length)) {
        return SLG_ACCEPTED;
    }
    if (walk->source != SLG_RECORDS_BUFFER ||
        slg_cursor_left(&walk->bytes) < SLG_VARINT_SIZE_MAX) {
        return SLG_REFUSE_PREMATURE_END;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < SLG_VARINT_SIZE_MAX; i++) {
        value |= (uint64_t)(walk->bytes.pos[i] & (i < 4 ? 0x7fU : 0xffU)) << (7U * i);
    }
    return refuse_record(walk, SLG_REFUSE_VARINT, (int64_t)(uint32_t)value, 0);
}

/* A key, a value: null when negative. Jumping over bytes that are not there has its own words. */
static inline slg_refusal read_bytes(slg_record_walk *walk, slg_cursor *bytes, int32_t *size,
                                     const uint8_t **data) {
    *data = NULL;
    if (!slg_read_varint(bytes, size)) {
        return SLG_REFUSE_STRUCTURE;
    }
    if (*size > 0) {
        if (!slg_take(bytes, *size, data)) {
            return walk->source == SLG_RECORDS_SKIP
                       ? refuse_record(walk, SLG_REFUSE_SKIP,
                                       *size - (int64_t)slg_cursor_left(bytes), 0)
                       : SLG_REFUSE_STRUCTURE;
        }
    } else if (*size == 0) {
        *data = bytes->pos;
    }
    return SLG_ACCEPTED;
}

static slg_refusal read_headers(slg_record_walk *walk, slg_cursor *bytes) {
    slg_record *record = &walk->record;
    if (!slg_read_varint(bytes, &record->header_count)) {
        return SLG_REFUSE_STRUCTURE;
    }
    record->headers = *bytes;
    if (record->header_count == 0) {
        return SLG_ACCEPTED;
    }
    if (record->header_count < 0) {
        return refuse_record(walk, SLG_REFUSE_HEADER_COUNT, record->header_count, 0);
    }
    if (walk->source != SLG_RECORDS_SKIP &&
        (size_t)record->header_count > slg_cursor_left(bytes)) {
        return refuse_record(walk, SLG_REFUSE_HEADERS_LEFT, record->header_count, 0);
    }
    for (int32_t i = 0; i < record->header_count; i++) {
        int32_t size;
        const uint8_t *data;
        const slg_cursor before = *bytes;
        if (!slg_read_varint(bytes, &size)) {
            return SLG_REFUSE_STRUCTURE;
        }
        if (size < 0) {
            return refuse_record(walk, SLG_REFUSE_HEADER_KEY, size, 0);
        }
        *bytes = before;
        slg_refusal refusal = read_bytes(walk, bytes, &size, &data);
        if (refusal == SLG_ACCEPTED) {
            refusal = read_bytes(walk, bytes, &size, &data);
        }
        if (refusal != SLG_ACCEPTED) {
            return refusal;
        }
    }
    record->headers.end = bytes->pos;
    return SLG_ACCEPTED;
}

/* The fields behind the length, from bytes that end where Kafka's reader of them would. */
static slg_refusal read_fields(slg_record_walk *walk, slg_cursor *bytes) {
    slg_record *record = &walk->record;
    int64_t timestamp_delta;
    int8_t attributes;
    if (!slg_read_i8(bytes, &attributes) || !slg_read_varlong(bytes, &timestamp_delta) ||
        !slg_read_varint(bytes, &record->offset_delta)) {
        return SLG_REFUSE_STRUCTURE;
    }
    record->timestamp = walk->has_append_time
                            ? walk->append_time
                            : wrapping_add(walk->base_timestamp, timestamp_delta);
    record->offset = wrapping_add(walk->base_offset, record->offset_delta);
    slg_refusal refusal = read_bytes(walk, bytes, &record->key_size, &record->key);
    if (refusal == SLG_ACCEPTED) {
        refusal = read_bytes(walk, bytes, &record->value_size, &record->value);
    }
    return refusal == SLG_ACCEPTED ? read_headers(walk, bytes) : refusal;
}

static slg_refusal read_record(slg_record_walk *walk) {
    int32_t length;
    const slg_refusal refusal = read_length(walk, &length);
    if (refusal != SLG_ACCEPTED) {
        return refusal;
    }
    if (walk->source == SLG_RECORDS_SKIP) {
        /* Kafka does not hold the length against what it jumps over. */
        return read_fields(walk, &walk->bytes);
    }
    const int64_t left = (int64_t)slg_cursor_left(&walk->bytes);
    slg_cursor body = {walk->bytes.pos, walk->bytes.pos, walk->bytes.end};
    if (walk->source == SLG_RECORDS_STREAM) {
        if (length < 0) {
            return SLG_REFUSE_PREMATURE_END;
        }
        if (length > left) {
            return refuse_record(walk, SLG_REFUSE_BODY_END, length, 0);
        }
        body.end = body.begin + length;
    } else if (length > left) {
        return refuse_record(walk, SLG_REFUSE_BODY, length, left);
    }
    const slg_refusal fields = read_fields(walk, &body);
    if (fields != SLG_ACCEPTED) {
        return fields;
    }
    const int64_t read = (int64_t)slg_cursor_read(&body);
    if (read != length) {
        return refuse_record(walk, SLG_REFUSE_BODY_SIZE, length, read);
    }
    walk->bytes.pos = body.pos;
    return SLG_ACCEPTED;
}

static inline slg_refusal check_rules(const slg_record_walk *walk) {
    const slg_record_rules *rules = walk->rules;
    const slg_record *record = &walk->record;
    if (rules->needs_key && record->key_size < 0) {
        return SLG_REFUSE_NO_KEY;
    }
    if (rules->has_create_time && record->timestamp != -1) {
        const int64_t age = (int64_t)((uint64_t)rules->now - (uint64_t)record->timestamp);
        if (age > rules->before_max || (int64_t)(0U - (uint64_t)age) > rules->after_max) {
            return SLG_REFUSE_TIMESTAMP;
        }
    } else if (walk->has_append_time) {
        return SLG_REFUSE_TIMESTAMP_TYPE;
    }
    return SLG_ACCEPTED;
}

slg_refusal slg_record_next(slg_record_walk *walk) {
    if (walk->count < 0) {
        return refuse_record(walk, SLG_REFUSE_RECORD_COUNT, walk->count, 0);
    }
    if (walk->index >= walk->count) {
        return SLG_NO_MORE;
    }
    const slg_refusal refusal = read_record(walk);
    if (refusal != SLG_ACCEPTED) {
        return refusal;
    }
    if (walk->record.offset != walk->index) {
        walk->is_sequential = false;
    }
    walk->index++;
    if (walk->index == walk->count && slg_cursor_left(&walk->bytes) != 0) {
        return SLG_REFUSE_BYTES_LEFT;
    }
    if (walk->record.timestamp > walk->max_timestamp) {
        walk->max_timestamp = walk->record.timestamp;
    }
    return walk->rules == NULL ? SLG_ACCEPTED : check_rules(walk);
}

slg_refusal slg_record_walk_run(slg_record_walk *walk) {
    slg_refusal refusal;
    do {
        refusal = slg_record_next(walk);
    } while (refusal == SLG_ACCEPTED);
    return refusal;
}

/* ---- what an append changes ---------------------------------------------------------------- */

void slg_assign(uint8_t *header, const uint8_t *records, const slg_assignment *assignment,
                int64_t count, slg_crc32c_kernel kernel, slg_batch *batch) {
    const int64_t delta = batch->last_offset - batch->base_offset;
    batch->last_offset = wrapping_add(assignment->next_offset, count - 1);
    batch->base_offset = wrapping_add(batch->last_offset, -delta);
    batch->partition_leader_epoch = assignment->leader_epoch;
    slg_store_i64(header + SLG_BATCH_BASE_OFFSET_AT, batch->base_offset);
    slg_store_i32(header + SLG_BATCH_LEADER_EPOCH_AT, assignment->leader_epoch);

    const bool had_append_time = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
    if (had_append_time == assignment->has_append_time &&
        batch->max_timestamp == assignment->max_timestamp) {
        return;
    }
    /* Kafka writes the attributes that it knows and no others. */
    int attributes = batch->attributes &
                     (SLG_ATTRIBUTE_CODEC | SLG_ATTRIBUTE_TRANSACTIONAL | SLG_ATTRIBUTE_CONTROL |
                      SLG_ATTRIBUTE_DELETE_HORIZON);
    if (assignment->has_append_time) {
        attributes |= SLG_ATTRIBUTE_LOG_APPEND_TIME;
    }
    batch->attributes = (int16_t)attributes;
    batch->max_timestamp = assignment->max_timestamp;
    slg_store_u16(header + SLG_BATCH_ATTRIBUTES_AT, (uint16_t)attributes);
    slg_store_i64(header + SLG_BATCH_MAX_TIMESTAMP_AT, batch->max_timestamp);
    batch->crc = slg_crc32c(kernel, 0, header + SLG_BATCH_CRC_FROM,
                            SLG_BATCH_HEADER_SIZE - SLG_BATCH_CRC_FROM);
    batch->crc = slg_crc32c(kernel, batch->crc, records,
                            (size_t)batch->size - SLG_BATCH_HEADER_SIZE);
    slg_store_u32(header + SLG_BATCH_CRC_AT, batch->crc);
}

size_t slg_headers_rewrite(const slg_record *record, uint8_t *into) {
    slg_cursor bytes = record->headers;
    uint8_t *to = into;
    for (int32_t i = 0; i < record->header_count; i++) {
        int32_t size = 0;
        const uint8_t *data = NULL;
        /* The walk has read them once: nothing here can be missing. */
        if (!slg_read_varint(&bytes, &size) || !slg_take(&bytes, size, &data)) {
            break;
        }
        /* The length comes first and is known last: the key waits behind the longest of lengths. */
        const size_t key_size =
            slg_utf8_replace(data, (size_t)size, to + SLG_VARINT_SIZE_MAX);
        uint8_t *key = slg_put_varint(to, (int32_t)key_size);
        memmove(key, to + SLG_VARINT_SIZE_MAX, key_size);
        to = key + key_size;
        if (!slg_read_varint(&bytes, &size) || (size > 0 && !slg_take(&bytes, size, &data))) {
            break;
        }
        to = slg_put_varint(to, size < 0 ? -1 : size);
        if (size > 0) {
            memcpy(to, data, (size_t)size);
            to += size;
        }
    }
    return (size_t)(to - into);
}
