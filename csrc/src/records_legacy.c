/*
 * Messages of magic 0 and 1: single ones, and wrappers whose compressed value is a set of messages.
 * They are old and rare, so they are read by bounded cursor, one at a time.
 */
#include "records_internal.h"
#include "seglog/format.h"
#include "seglog/wire.h"

/* Fields of one message; key and value point into it. */
typedef struct message {
    int64_t offset;
    int64_t timestamp;
    int8_t magic;
    int8_t attributes;
    int32_t key_size; /* -1 null */
    int32_t value_size;
    const uint8_t *key;
    const uint8_t *value;
} message;

static bool read_bytes(slg_cursor *cursor, int32_t *size, const uint8_t **bytes) {
    *bytes = NULL;
    if (!slg_read_i32(cursor, size)) {
        return false;
    }
    if (*size < 0) {
        *size = -1;
        return true;
    }
    return slg_take(cursor, *size, bytes);
}

/*
 * `entry` has `size` >= 26 bytes, prefix included. Anything but magic 0 has a timestamp, as in
 * Kafka.
 */
static slg_status read_message(const uint8_t *entry, size_t size, int64_t position, message *out,
                               slg_error *error) {
    slg_cursor cursor = slg_cursor_of(entry, size);
    *out = (message){
        .offset = slg_load_i64(entry + SLG_LEGACY_OFFSET_AT),
        .timestamp = -1,
        .magic = slg_load_i8(entry + SLG_LEGACY_MAGIC_AT),
        .attributes = slg_load_i8(entry + SLG_LEGACY_ATTRIBUTES_AT),
    };
    cursor.pos = entry + SLG_V0_KEY_LENGTH_AT;
    if (out->magic != 0) {
        if (size < SLG_V1_SIZE_MIN) {
            return slg_fail(error, SLG_LEGACY_SIZE, position, SLG_V1_SIZE_MIN, (int64_t)size);
        }
        out->timestamp = slg_load_i64(entry + SLG_V1_TIMESTAMP_AT);
        cursor.pos = entry + SLG_V1_KEY_LENGTH_AT;
    }
    if (!read_bytes(&cursor, &out->key_size, &out->key)) {
        return slg_fail(error, SLG_RECORD_FIELD, position, (int64_t)slg_cursor_left(&cursor),
                        out->key_size);
    }
    if (slg_cursor_left(&cursor) < 4) {
        return slg_fail(error, SLG_LEGACY_SIZE, position, 4, (int64_t)slg_cursor_left(&cursor));
    }
    if (!read_bytes(&cursor, &out->value_size, &out->value)) {
        return slg_fail(error, SLG_RECORD_FIELD, position, (int64_t)slg_cursor_left(&cursor),
                        out->value_size);
    }
    return SLG_OK;
}

slg_status slg_records_begin_message(slg_records *records, const uint8_t *entry,
                                     slg_error *error) {
    const slg_batch *batch = &records->batch;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    records->at = entry;
    records->end = entry + batch->size;
    if (codec == SLG_CODEC_NONE) {
        records->base = 0;
        records->state = IN_WRAPPER;
        return SLG_OK;
    }
    if (codec > SLG_CODEC_MAX) {
        return slg_fail(error, SLG_BATCH_CODEC, batch->position, SLG_CODEC_LEGACY_MAX, codec);
    }
    if (codec > SLG_CODEC_LEGACY_MAX) {
        return slg_fail(error, SLG_LEGACY_CODEC, batch->position, SLG_CODEC_LEGACY_MAX, codec);
    }
    message wrapper = {.offset = 0};
    const slg_status status =
        read_message(entry, (size_t)batch->size, batch->position, &wrapper, error);
    if (status != SLG_OK) {
        return status;
    }
    if (wrapper.value_size < 0) {
        return slg_fail(error, SLG_LEGACY_NULL_WRAPPER, batch->position, 0, -1);
    }
    records->payload =
        (slg_payload){wrapper.value, (size_t)wrapper.value_size, codec, batch->magic};
    records->state = NEEDS_PAYLOAD;
    return SLG_OK;
}

/* Size of the whole entry at the cursor; 0 at the end, where Kafka ignores a torn one. */
static slg_status frame_inner(const uint8_t *at, const uint8_t *end, int64_t position, size_t *size,
                              slg_error *error) {
    *size = 0;
    const size_t left = (size_t)(end - at);
    if (left < SLG_PREFIX_SIZE) {
        return SLG_OK;
    }
    const int32_t length = slg_load_i32(at + SLG_PREFIX_LENGTH_AT);
    if (length < SLG_LEGACY_LENGTH_MIN) {
        return slg_fail(error, SLG_LEGACY_SIZE, position, SLG_LEGACY_LENGTH_MIN, length);
    }
    if ((size_t)length <= left - SLG_PREFIX_SIZE) {
        *size = SLG_PREFIX_SIZE + (size_t)length;
    }
    return SLG_OK;
}

slg_status slg_records_open_wrapper(slg_records *records, slg_error *error) {
    const slg_batch *batch = &records->batch;
    const uint8_t *at = records->at;
    int64_t last_offset = 0;
    size_t size;
    for (;;) {
        const slg_status status = frame_inner(at, records->end, batch->position, &size, error);
        if (status != SLG_OK) {
            return status;
        }
        if (size == 0) {
            break;
        }
        last_offset = slg_load_i64(at + SLG_LEGACY_OFFSET_AT);
        at += size;
    }
    if (at == records->at) {
        return slg_fail(error, SLG_LEGACY_EMPTY_WRAPPER, batch->position, 1, 0);
    }
    records->base = 0;
    /* Some versions of librdkafka left the wrapper's offset 0: then the inner ones are absolute. */
    if (batch->magic == 1 && batch->last_offset != 0) {
        if (batch->last_offset < last_offset) {
            return slg_fail(error, SLG_LEGACY_OFFSET, batch->position, last_offset,
                            batch->last_offset);
        }
        records->base = (int64_t)((uint64_t)batch->last_offset - (uint64_t)last_offset);
    }
    records->state = IN_WRAPPER;
    return SLG_OK;
}

static void append_bytes(slg_binary *binary, int64_t row, const uint8_t *bytes, int32_t size) {
    if (size > 0) {
        memcpy(binary->bytes.data + binary->used, bytes, (size_t)size);
        binary->used += size;
    }
    ((int32_t *)(void *)binary->offsets.data)[row + 1] = (int32_t)binary->used;
}

static slg_status append_message(slg_columns *columns, const slg_batch *batch, const message *m,
                                 int8_t timestamp_type, slg_error *error) {
    const int64_t row = columns->rows;
    const bool micros = columns->layout == SLG_LAYOUT_SPARK;
    if (micros && slg_columns_want(columns, SLG_COLUMN_TIMESTAMP) &&
        (m->timestamp > SLG_RECORDS_MICROS_MS_MAX || m->timestamp < -SLG_RECORDS_MICROS_MS_MAX)) {
        return slg_fail(error, SLG_RECORD_TIMESTAMP, batch->position, SLG_RECORDS_MICROS_MS_MAX,
                        m->timestamp);
    }
    if (!slg_columns_reserve(columns, 1, m->key_size > 0 ? m->key_size : 0,
                             m->value_size > 0 ? m->value_size : 0)) {
        return slg_fail(error, SLG_NO_MEMORY, batch->position, m->value_size, 0);
    }
    if (slg_columns_want(columns, SLG_COLUMN_KEY)) {
        const uint8_t valid = m->key_size >= 0;
        append_bytes(&columns->key, row, m->key, m->key_size);
        if (!slg_binary_validate(&columns->key, row, 1, &valid)) {
            return slg_fail(error, SLG_NO_MEMORY, batch->position, row, 0);
        }
    }
    if (slg_columns_want(columns, SLG_COLUMN_VALUE)) {
        const uint8_t valid = m->value_size >= 0;
        append_bytes(&columns->value, row, m->value, m->value_size);
        if (!slg_binary_validate(&columns->value, row, 1, &valid)) {
            return slg_fail(error, SLG_NO_MEMORY, batch->position, row, 0);
        }
    }
    if (slg_columns_want(columns, SLG_COLUMN_HEADERS)) {
        ((int32_t *)(void *)columns->header_lists.data)[row + 1] = (int32_t)columns->headers;
    }
    if (slg_columns_want(columns, SLG_COLUMN_OFFSET)) {
        ((int64_t *)(void *)columns->fixed[SLG_COLUMN_OFFSET].data)[row] = m->offset;
    }
    if (slg_columns_want(columns, SLG_COLUMN_TIMESTAMP)) {
        ((int64_t *)(void *)columns->fixed[SLG_COLUMN_TIMESTAMP].data)[row] =
            micros ? m->timestamp * 1000 : m->timestamp;
    }
    slg_records_add_rows(columns, batch, row, 1, timestamp_type, &m->offset);
    return SLG_OK;
}

/* The inner message's own time, unless the wrapper was stamped by the broker. */
static int8_t resolve_time(const slg_batch *wrapper, bool inner, message *m) {
    if (m->magic == 0) {
        return -1;
    }
    if (inner && m->magic == 1) {
        if (wrapper->magic == 0) {
            return -1;
        }
        if ((wrapper->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0) {
            m->timestamp = wrapper->max_timestamp;
            return 1;
        }
        return 0;
    }
    return (m->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
}

static bool is_wanted(const slg_row_filter *filter, const message *m, int8_t timestamp_type) {
    return filter == NULL || ((filter->timestamp_types >> (timestamp_type + 1) & 1U) != 0 &&
                              slg_records_is_kept(filter, m->timestamp, m->key, m->key_size));
}

slg_status slg_records_decode_messages(slg_records *records, slg_columns *columns,
                                       slg_error *error) {
    const slg_batch *batch = &records->batch;
    const slg_records_options *options = &records->options;
    const bool inner = (batch->attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE;
    for (;;) {
        size_t size;
        message m = {.offset = 0};
        slg_status status = frame_inner(records->at, records->end, batch->position, &size, error);
        if (status == SLG_OK && size > 0) {
            status = read_message(records->at, size, batch->position, &m, error);
        }
        if (status != SLG_OK || size == 0) {
            return status;
        }
        if (inner && (m.attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE) {
            return slg_fail(error, SLG_LEGACY_NESTED, batch->position, 0,
                            m.attributes & SLG_ATTRIBUTE_CODEC);
        }
        const int8_t timestamp_type = resolve_time(batch, inner, &m);
        m.offset = (int64_t)((uint64_t)m.offset + (uint64_t)records->base);
        if (m.offset >= options->start_offset && m.offset < options->end_offset &&
            is_wanted(options->filter, &m, timestamp_type)) {
            if (columns->rows >= options->max_rows ||
                (columns->rows > 0 && records_used(columns) + (int64_t)size > options->max_bytes)) {
                return SLG_FULL;
            }
            status = append_message(columns, batch, &m, timestamp_type, error);
            if (status != SLG_OK) {
                return status;
            }
        }
        records->at += size;
    }
}
