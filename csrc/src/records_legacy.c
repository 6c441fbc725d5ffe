/*
 * Messages of magic 0 and 1: single ones, and wrappers whose compressed value is a set of messages.
 * They are old and rare, so a bounded cursor reads them one at a time.
 */
#include "message.h"
#include "records_internal.h"

/* The message must be complete. From here on a null has size -1. */
static slg_status read_message(const uint8_t *entry, size_t size, int64_t position,
                               slg_message *message, slg_error *error) {
    const slg_message_part part = slg_message_read(entry, size, message);
    const int32_t least = slg_message_size_min(message->magic);
    if (size < (size_t)least) {
        return slg_fail(error, SLG_LEGACY_SIZE, position, least, (int64_t)size);
    }
    if (part == SLG_MESSAGE_NO_KEY) {
        return slg_fail(error, SLG_RECORD_FIELD, position, (int64_t)(size - message->key_at),
                        message->key_size);
    }
    if (part == SLG_MESSAGE_NO_VALUE_SIZE) {
        return slg_fail(error, SLG_LEGACY_SIZE, position, 4,
                        (int64_t)size - (message->value_at - 4));
    }
    if (part == SLG_MESSAGE_NO_VALUE) {
        return slg_fail(error, SLG_RECORD_FIELD, position, (int64_t)size - message->value_at,
                        message->value_size);
    }
    message->key_size = message->key_size < 0 ? -1 : message->key_size;
    message->value_size = message->value_size < 0 ? -1 : message->value_size;
    return SLG_OK;
}

slg_status slg_records_begin_message(slg_records *records, const uint8_t *entry, slg_error *error) {
    const slg_batch *batch = &records->batch;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    records->at = entry;
    records->end = entry + batch->size;
    if (codec == SLG_CODEC_NONE) {
        records->base = 0;
        records->state = IN_WRAPPER;
        return SLG_OK;
    }
    slg_message wrapper;
    slg_status status = slg_batch_check_legacy_codec(batch, error);
    if (status == SLG_OK) {
        status = read_message(entry, (size_t)batch->size, batch->position, &wrapper, error);
    }
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

static slg_cursor messages_of(const slg_records *records) {
    return slg_cursor_of(records->at, (size_t)(records->end - records->at));
}

slg_status slg_records_open_wrapper(slg_records *records, slg_error *error) {
    int64_t count;
    const slg_status status =
        slg_message_open(messages_of(records), &records->batch, &count, &records->base, error);
    if (status == SLG_OK) {
        records->state = IN_WRAPPER;
    }
    return status;
}

static bool append_bytes(slg_binary *binary, int64_t row, const uint8_t *bytes, int32_t size) {
    const uint8_t valid = size >= 0;
    if (size > 0) {
        memcpy(binary->bytes.data + binary->used, bytes, (size_t)size);
        binary->used += size;
    }
    ((int32_t *)(void *)binary->offsets.data)[row + 1] = (int32_t)binary->used;
    return slg_binary_validate(binary, row, 1, &valid);
}

static slg_status append_message(slg_columns *columns, const slg_batch *batch, const slg_message *m,
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
    if ((slg_columns_want(columns, SLG_COLUMN_KEY) &&
         !append_bytes(&columns->key, row, m->key, m->key_size)) ||
        (slg_columns_want(columns, SLG_COLUMN_VALUE) &&
         !append_bytes(&columns->value, row, m->value, m->value_size))) {
        return slg_fail(error, SLG_NO_MEMORY, batch->position, row, 0);
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

/* The inner message's own time, unless the broker stamped the wrapper. */
static int8_t resolve_time(const slg_batch *wrapper, bool inner, slg_message *m) {
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

static bool is_wanted(const slg_row_filter *filter, const slg_message *m, int8_t timestamp_type) {
    return filter == NULL || ((filter->timestamp_types >> (timestamp_type + 1) & 1U) != 0 &&
                              slg_records_is_kept(filter, m->timestamp, m->key, m->key_size));
}

slg_status slg_records_decode_messages(slg_records *records, slg_columns *columns,
                                       slg_error *error) {
    const slg_batch *batch = &records->batch;
    const slg_records_options *options = &records->options;
    const bool inner = (batch->attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE;
    for (;;) {
        slg_cursor set = messages_of(records);
        const uint8_t *entry;
        slg_message m;
        size_t size;
        slg_status status = slg_message_next(&set, batch, &entry, &size, error);
        if (status != SLG_OK) {
            return status == SLG_END ? SLG_OK : status;
        }
        status = read_message(entry, size, batch->position, &m, error);
        if (status != SLG_OK) {
            return status;
        }
        if (inner && (m.attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE) {
            return slg_fail(error, SLG_LEGACY_NESTED, batch->position, 0,
                            m.attributes & SLG_ATTRIBUTE_CODEC);
        }
        const int8_t timestamp_type = resolve_time(batch, inner, &m);
        m.offset = slg_java_add(m.offset, records->base);
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
        records->at = set.pos;
    }
}
