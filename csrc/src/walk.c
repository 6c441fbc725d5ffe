#include "seglog/walk.h"

#include "message.h"
#include "record_fields.h"

void slg_walk_init(slg_walk *walk, slg_window *window, int64_t position, int64_t end) {
    *walk =
        (slg_walk){.window = window, .position = position, .end = end, .kernel = slg_crc32c_best()};
}

/* Kafka reads 61 bytes for a v2 header whatever the entry's size, even bytes of the next entry. */
static slg_status read_header(slg_walk *walk, int64_t position, int32_t size, slg_error *error) {
    const int32_t header = walk->batch.magic < 2 ? (int32_t)SLG_V0_SIZE_MIN
                                                 : (int32_t)SLG_BATCH_HEADER_SIZE;
    if (walk->window->end - position < header) {
        return slg_fail(error, SLG_BATCH_SIZE, position, header, size);
    }
    slg_status status = slg_window_need(walk->window, position, (size_t)header, error);
    if (status != SLG_OK) {
        return status;
    }
    status = slg_batch_parse(slg_window_at(walk->window, position), (size_t)header, position,
                             size < header ? header : size, &walk->batch, error);
    walk->batch.size = size;
    return status;
}

slg_status slg_walk_next(slg_walk *walk, slg_error *error) {
    const int64_t position = walk->position;
    walk->valid = false;
    walk->records_left = 0;
    if (walk->end - position <= SLG_PREFIX_AND_MAGIC_SIZE) {
        return SLG_END;
    }
    slg_status status = slg_window_need(walk->window, position, SLG_PREFIX_AND_MAGIC_SIZE, error);
    if (status != SLG_OK) {
        return status;
    }
    const uint8_t *data = slg_window_at(walk->window, position);
    int32_t size;
    status = slg_batch_frame(data, SLG_PREFIX_AND_MAGIC_SIZE, position, walk->end, &size, error);
    if (status != SLG_OK) {
        return status == SLG_TORN_TAIL ? SLG_END : status;
    }
    walk->position = position + size;
    walk->batch =
        (slg_batch){.position = position, .size = size, .magic = slg_load_i8(data + SLG_MAGIC_AT)};
    walk->batch.base_offset = walk->batch.last_offset = slg_load_i64(data);
    return walk->batch.magic < 0 ? SLG_OK : read_header(walk, position, size, error);
}

static bool is_short(const slg_batch *batch) {
    return !slg_batch_is_legacy(batch) && batch->size < SLG_BATCH_HEADER_SIZE;
}

slg_status slg_walk_load(slg_walk *walk, slg_error *error) {
    const slg_batch *batch = &walk->batch;
    const slg_status status =
        slg_window_need(walk->window, batch->position, (size_t)batch->size, error);
    if (status != SLG_OK) {
        return status;
    }
    walk->valid = !is_short(batch) &&
                  slg_batch_check_crc(batch, slg_window_at(walk->window, batch->position),
                                      walk->kernel, NULL) == SLG_OK;
    return SLG_OK;
}

/* ---- records of magic 2 -------------------------------------------------------------------- */

/* The cause of Kafka's exception, and its numbers. */
static slg_status fail_field(const slg_batch *batch, const slg_cursor *c, slg_field fault,
                             const slg_record_fields *fields, slg_error *error) {
    const int64_t left = (int64_t)slg_cursor_left(c);
    if (fault == SLG_FIELD_DELTAS) {
        return slg_fail(error, SLG_RECORD_VARINT, batch->position, 0, 0);
    }
    if (fault < SLG_FIELD_COUNT) {
        return slg_fail(error, SLG_RECORD_FIELD, batch->position, left, fields->number);
    }
    const int64_t from_tail = c->end - fields->tail;
    if (fault == SLG_FIELD_COUNT || fault == SLG_FIELD_NEGATIVE ||
        fields->header_count > from_tail) {
        const int32_t count = fault == SLG_FIELD_COUNT ? 0 : fields->header_count;
        return slg_fail(error, SLG_RECORD_HEADERS, batch->position, from_tail, count);
    }
    return slg_fail(error, SLG_RECORD_FIELD, batch->position, left, fields->headers_read);
}

static slg_status parse_body(const slg_batch *batch, slg_cursor *c, slg_walk_record *record,
                             slg_error *error) {
    slg_record_fields fields;
    const slg_field fault = slg_record_read(c, &fields);
    if (fault != SLG_FIELD_NONE) {
        return fail_field(batch, c, fault, &fields, error);
    }
    if (slg_cursor_left(c) != 0) {
        return slg_fail(error, SLG_RECORD_SIZE, batch->position, (int64_t)(c->end - c->begin),
                        (int64_t)slg_cursor_read(c));
    }
    *record = (slg_walk_record){
        .offset = slg_java_add(batch->base_offset, fields.offset_delta),
        .timestamp = slg_record_timestamp(batch, fields.timestamp_delta),
        .key = fields.key,
        .value = fields.value,
        .headers = fields.headers,
        .key_size = fields.key_size < 0 ? -1 : fields.key_size,
        .value_size = fields.value_size < 0 ? -1 : fields.value_size,
        .sequence = slg_record_sequence(batch, fields.offset_delta),
        .header_count = fields.header_count,
        .valid = true,
    };
    return SLG_OK;
}

bool slg_header_next(slg_cursor *headers, slg_header *header) {
    int32_t number;
    return slg_header_read(headers, header, &number) == SLG_FIELD_NONE;
}

/* The record at the cursor; nothing may follow the `last` one of a batch. */
static slg_status parse_record(const slg_batch *batch, slg_cursor *c, bool last,
                               slg_walk_record *record, slg_error *error) {
    int32_t size;
    const uint8_t *data;
    if (!slg_read_varint(c, &size)) {
        return slg_fail(error, SLG_RECORD_VARINT, batch->position, 0, 0);
    }
    if (!slg_take(c, size, &data)) {
        return slg_fail(error, SLG_RECORD_LENGTH, batch->position, (int64_t)slg_cursor_left(c),
                        size);
    }
    slg_cursor body = slg_cursor_of(data, (size_t)size);
    const slg_status status = parse_body(batch, &body, record, error);
    if (status == SLG_OK && last && slg_cursor_left(c) != 0) {
        return slg_fail(error, SLG_RECORD_COUNT, batch->position, batch->record_count,
                        (int64_t)batch->record_count + 1);
    }
    return status;
}

/* ---- messages of magic 0 and 1 ------------------------------------------------------------- */

/* A value may lie after the end: Kafka returns it, and fails when it is read. */
static slg_status parse_message(const slg_batch *batch, const uint8_t *data, size_t size,
                                slg_walk_record *record, slg_message *message, slg_error *error) {
    const slg_message_part part = slg_message_read(data, size, message);
    const uint32_t crc = slg_load_u32(data + SLG_LEGACY_CRC_AT);
    *record = (slg_walk_record){
        .offset = message->offset,
        .timestamp = message->timestamp,
        .key = message->key,
        .value = message->value,
        .key_size = message->key_size,
        .value_size = message->value_size,
        .sequence = -1,
        .crc = crc,
        .valid = crc == slg_crc32(0, data + SLG_LEGACY_CRC_FROM, size - SLG_LEGACY_CRC_FROM),
    };
    if (part == SLG_MESSAGE_NO_KEY_SIZE) {
        return slg_fail(error, SLG_LEGACY_SIZE, batch->position, (int64_t)message->key_at,
                        (int64_t)size);
    }
    if (part == SLG_MESSAGE_NO_KEY || part == SLG_MESSAGE_NO_VALUE_SIZE) {
        return slg_fail(error, SLG_RECORD_FIELD, batch->position, (int64_t)(size - message->key_at),
                        message->key_size);
    }
    return SLG_OK;
}

static slg_status inner_next(slg_walk *walk, slg_walk_record *record, slg_error *error) {
    const uint8_t *inner;
    slg_message message;
    size_t size;
    slg_status status = slg_message_next(&walk->records, &walk->batch, &inner, &size, error);
    if (status != SLG_OK) {
        return status;
    }
    const int8_t attributes = slg_load_i8(inner + SLG_LEGACY_ATTRIBUTES_AT);
    if ((attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE) {
        return slg_fail(error, SLG_LEGACY_NESTED, walk->batch.position, 0, attributes);
    }
    status = parse_message(&walk->batch, inner, size, record, &message, error);
    record->offset = slg_java_add(record->offset, walk->inner_base);
    if (walk->batch.magic == 1 && message.magic == 1 &&
        slg_batch_has(&walk->batch, SLG_ATTRIBUTE_LOG_APPEND_TIME)) {
        record->timestamp = walk->batch.max_timestamp;
    }
    return status;
}

/* ---- entries ------------------------------------------------------------------------------- */

static slg_status enter_message(slg_walk *walk, const uint8_t *data, slg_error *error) {
    const slg_batch *batch = &walk->batch;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    slg_walk_record wrapper;
    slg_message message;
    walk->single = codec == SLG_CODEC_NONE;
    if (walk->single) {
        walk->records_left = 1;
        return SLG_OK;
    }
    if (codec > SLG_CODEC_LEGACY_MAX) {
        return slg_fail(error, SLG_LEGACY_CODEC, batch->position, SLG_CODEC_LEGACY_MAX, codec);
    }
    const slg_status status =
        parse_message(batch, data, (size_t)batch->size, &wrapper, &message, error);
    if (status != SLG_OK) {
        return status;
    }
    if (wrapper.value_size < 0) {
        return slg_fail(error, SLG_LEGACY_NULL_WRAPPER, batch->position, 0, wrapper.value_size);
    }
    if (wrapper.value == NULL) {
        return slg_fail(error, SLG_RECORD_FIELD, batch->position, batch->size, wrapper.value_size);
    }
    walk->payload = wrapper.value;
    walk->payload_size = (size_t)wrapper.value_size;
    return SLG_CODEC;
}

slg_status slg_walk_enter(slg_walk *walk, slg_error *error) {
    const slg_batch *batch = &walk->batch;
    const uint8_t *data = slg_window_at(walk->window, batch->position);
    walk->records = slg_cursor_of(NULL, 0);
    walk->records_left = 0;
    walk->single = false;
    if (batch->magic < 0) {
        return slg_fail(error, SLG_BATCH_MAGIC, batch->position, SLG_MAGIC_MAX, batch->magic);
    }
    if (slg_batch_is_legacy(batch)) {
        return enter_message(walk, data, error);
    }
    if (is_short(batch)) {
        return slg_fail(error, SLG_BATCH_SIZE, batch->position, SLG_BATCH_HEADER_SIZE, batch->size);
    }
    const size_t size = (size_t)batch->size - SLG_BATCH_HEADER_SIZE;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    if (batch->record_count == 0) {
        return SLG_OK;
    }
    if (batch->record_count < 0) {
        return slg_fail(error, SLG_BATCH_RECORD_COUNT, batch->position,
                        (int64_t)size / SLG_RECORD_SIZE_MIN, batch->record_count);
    }
    if (codec > SLG_CODEC_MAX) {
        return slg_fail(error, SLG_BATCH_CODEC, batch->position, SLG_CODEC_MAX, codec);
    }
    walk->records_left = batch->record_count;
    if (codec != SLG_CODEC_NONE) {
        walk->payload = data + SLG_BATCH_HEADER_SIZE;
        walk->payload_size = size;
        return SLG_CODEC;
    }
    walk->records = slg_cursor_of(data + SLG_BATCH_HEADER_SIZE, size);
    return SLG_OK;
}

slg_status slg_walk_payload(slg_walk *walk, const uint8_t *data, size_t size, slg_error *error) {
    walk->records = slg_cursor_of(data, size);
    if (slg_batch_is_legacy(&walk->batch)) {
        return slg_message_open(walk->records, &walk->batch, &walk->records_left, &walk->inner_base,
                                error);
    }
    slg_cursor c = walk->records;
    slg_walk_record record;
    slg_status status = SLG_OK;
    for (int64_t left = walk->records_left; left > 0 && status == SLG_OK; left--) {
        status = parse_record(&walk->batch, &c, left == 1, &record, error);
    }
    return status;
}

slg_status slg_walk_record_next(slg_walk *walk, slg_walk_record *record, slg_error *error) {
    if (walk->records_left == 0) {
        return SLG_END;
    }
    walk->records_left--;
    if (walk->single) {
        const slg_batch *batch = &walk->batch;
        slg_message message;
        return parse_message(batch, slg_window_at(walk->window, batch->position),
                             (size_t)batch->size, record, &message, error);
    }
    if (slg_batch_is_legacy(&walk->batch)) {
        return inner_next(walk, record, error);
    }
    return parse_record(&walk->batch, &walk->records, walk->records_left == 0, record, error);
}
