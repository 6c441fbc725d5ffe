#include "seglog/encode.h"

#include <assert.h>
#include <string.h>

#include "entry.h"

enum { MAGIC = 2, NO_TIMESTAMP = -1 };

void slg_encode_open(slg_encode_batch *batch, uint8_t *data, size_t capacity, int64_t base_offset) {
    *batch = (slg_encode_batch){
        .data = data,
        .capacity = capacity,
        .size = SLG_BATCH_HEADER_SIZE,
        .base_offset = base_offset,
        .base_timestamp = NO_TIMESTAMP,
        .max_timestamp = NO_TIMESTAMP,
        .offset_of_max_timestamp = -1,
        .max_size = INT64_MAX,
        .max_records = INT32_MAX,
        .last_offset = slg_java_subtract(base_offset, 1),
    };
}

/* A delta between timestamps may wrap: readers add it back the same way. */
static int64_t time_delta(const slg_encode_batch *batch, int64_t timestamp) {
    return batch->has_base_timestamp ? slg_java_subtract(timestamp, batch->base_timestamp) : 0;
}

static int32_t offset_delta(const slg_encode_batch *batch, int64_t offset) {
    return slg_java_int(slg_java_subtract(offset, batch->base_offset));
}

/* The value of the record's length field. slg_encode_field bounds its parts, so no sum wraps. */
static uint64_t body_size(const slg_encode_batch *batch, const slg_encode_record *record) {
    return 1U + slg_varlong_size(time_delta(batch, record->timestamp)) +
           slg_varint_size(offset_delta(batch, record->offset)) +
           slg_encode_field(record->key_size) + slg_encode_field(record->value_size) +
           slg_varint_size(record->header_count) + (uint64_t)record->headers_size;
}

uint64_t slg_encode_size(const slg_encode_batch *batch, const slg_encode_record *record) {
    const uint64_t size = body_size(batch, record);
    return size + slg_uvarlong_size(size << 1);
}

/* Kafka's checks, in its order (MemoryRecordsBuilder.appendWithOffset, recordWritten). */
static slg_status check(const slg_encode_batch *batch, int64_t offset, int64_t timestamp,
                        slg_error *error) {
    if (batch->record_count > 0 && offset <= batch->last_offset) {
        return slg_fail(error, SLG_ENCODE_OFFSET, 0, batch->last_offset, offset);
    }
    if (timestamp < 0 && timestamp != NO_TIMESTAMP) {
        return slg_fail(error, SLG_ENCODE_TIMESTAMP, 0, NO_TIMESTAMP, timestamp);
    }
    /* Java's difference: an offset below the base has a negative delta, which the cleaner keeps. */
    if (slg_java_subtract(offset, batch->base_offset) > INT32_MAX) {
        return slg_fail(error, SLG_ENCODE_DELTA, 0, batch->base_offset, offset);
    }
    return SLG_OK;
}

/* Whether there is room for a record of `body` bytes after its length. */
static slg_status check_room(const slg_encode_batch *batch, uint64_t body, slg_error *error) {
    const uint64_t size = batch->size + body + slg_uvarlong_size(body << 1);
    if (batch->record_count > 0 &&
        (size > (uint64_t)batch->max_size || batch->record_count >= batch->max_records)) {
        return slg_fail(error, SLG_FULL, 0, batch->max_size, (int64_t)size);
    }
    if (size > INT32_MAX) {
        return slg_fail(error, SLG_ENCODE_SIZE, 0, INT32_MAX, (int64_t)size);
    }
    if (size > batch->capacity) {
        return slg_fail(error, SLG_MORE, 0, (int64_t)size, (int64_t)batch->capacity);
    }
    return SLG_OK;
}

/* Writes what comes before the key. */
static uint8_t *put_start(const slg_encode_batch *batch, uint64_t body, int64_t offset,
                          int64_t timestamp) {
    uint8_t *p = slg_put_varint(batch->data + batch->size, (int32_t)body);
    *p++ = 0; /* a record has no attributes */
    p = slg_put_varlong(p, time_delta(batch, timestamp));
    return slg_put_varint(p, offset_delta(batch, offset));
}

/* Counts a record that ends at `end`. */
static void note_record(slg_encode_batch *batch, const uint8_t *end, int64_t offset,
                        int64_t timestamp) {
    batch->size = (size_t)(end - batch->data);
    batch->last_offset = offset;
    batch->record_count++;
    if (!batch->has_base_timestamp) {
        batch->base_timestamp = timestamp;
        batch->has_base_timestamp = true;
    }
    if (timestamp > batch->max_timestamp) {
        batch->max_timestamp = timestamp;
        batch->offset_of_max_timestamp = offset;
    }
}

slg_status slg_encode_add(slg_encode_batch *batch, const slg_encode_record *record,
                          uint8_t **headers, slg_error *error) {
    assert(record->header_count >= 0 && record->headers_size >= 0);
    const uint64_t body = body_size(batch, record);
    slg_status status = check(batch, record->offset, record->timestamp, error);
    if (status == SLG_OK) {
        status = check_room(batch, body, error);
    }
    if (status != SLG_OK) {
        return status;
    }
    uint8_t *p = put_start(batch, body, record->offset, record->timestamp);
    p = slg_put_field(p, record->key, record->key_size);
    p = slg_put_field(p, record->value, record->value_size);
    *headers = slg_put_varint(p, record->header_count);
    note_record(batch, *headers + record->headers_size, record->offset, record->timestamp);
    return SLG_OK;
}

slg_status slg_encode_add_encoded(slg_encode_batch *batch, int64_t offset, int64_t timestamp,
                                  const uint8_t *fields, size_t size, slg_error *error) {
    const uint64_t body = 1U + slg_varlong_size(time_delta(batch, timestamp)) +
                          slg_varint_size(offset_delta(batch, offset)) + (uint64_t)size;
    slg_status status = check(batch, offset, timestamp, error);
    if (status == SLG_OK) {
        status = check_room(batch, body, error);
    }
    if (status == SLG_OK) {
        uint8_t *p = put_start(batch, body, offset, timestamp);
        memcpy(p, fields, size);
        note_record(batch, p + size, offset, timestamp);
    }
    return status;
}

void slg_encode_seal(uint8_t *header, const slg_encode_batch *batch,
                     const slg_encode_fields *fields, const uint8_t *payload, size_t payload_size,
                     slg_crc32c_kernel kernel) {
    assert(payload_size <= INT32_MAX - SLG_BATCH_HEADER_SIZE);
    slg_store_i64(header + SLG_BATCH_BASE_OFFSET_AT, batch->base_offset);
    slg_store_i32(header + SLG_BATCH_LENGTH_AT, (int32_t)(payload_size + SLG_BATCH_LENGTH_MIN));
    slg_store_i32(header + SLG_BATCH_LEADER_EPOCH_AT, fields->partition_leader_epoch);
    header[SLG_BATCH_MAGIC_AT] = MAGIC;
    slg_store_i16(header + SLG_BATCH_ATTRIBUTES_AT, fields->attributes);
    slg_store_i32(header + SLG_BATCH_LAST_OFFSET_DELTA_AT, fields->last_offset_delta);
    slg_store_i64(header + SLG_BATCH_BASE_TIMESTAMP_AT, batch->base_timestamp);
    slg_store_i64(header + SLG_BATCH_MAX_TIMESTAMP_AT, fields->max_timestamp);
    slg_store_i64(header + SLG_BATCH_PRODUCER_ID_AT, fields->producer_id);
    slg_store_i16(header + SLG_BATCH_PRODUCER_EPOCH_AT, fields->producer_epoch);
    slg_store_i32(header + SLG_BATCH_BASE_SEQUENCE_AT, fields->base_sequence);
    slg_store_i32(header + SLG_BATCH_RECORD_COUNT_AT, batch->record_count);
    uint32_t crc = slg_crc32c(kernel, 0, header + SLG_BATCH_CRC_FROM,
                              SLG_BATCH_HEADER_SIZE - SLG_BATCH_CRC_FROM);
    crc = slg_crc32c(kernel, crc, payload, payload_size);
    slg_store_u32(header + SLG_BATCH_CRC_AT, crc);
}
