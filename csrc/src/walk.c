#include "seglog/walk.h"

#include "seglog/format.h"

void slg_walk_init(slg_walk *walk, slg_window *window, int64_t position, int64_t end) {
    *walk = (slg_walk){.window = window, .position = position, .end = end,
                       .kernel = slg_crc32c_best()};
}

/* Kafka reads 61 bytes for a v2 header whatever the entry's size: bytes of the next one serve. */
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
    if (walk->end - position <= SLG_PREFIX_AND_MAGIC_SIZE) {
        return SLG_END;
    }
    slg_status status =
        slg_window_need(walk->window, position, SLG_PREFIX_AND_MAGIC_SIZE, error);
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
    walk->batch = (slg_batch){.position = position, .size = size,
                              .magic = slg_load_i8(data + SLG_MAGIC_AT)};
    walk->batch.base_offset = walk->batch.last_offset = slg_load_i64(data);
    walk->valid = false;
    walk->records_left = 0;
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

/* A field with its length before it: null when negative. */
static bool read_field(slg_cursor *c, const uint8_t **data, int32_t *size) {
    if (!slg_read_varint(c, size)) {
        return false;
    }
    *data = NULL;
    if (*size < 0) {
        *size = -1;
        return true;
    }
    return slg_take(c, *size, data);
}

bool slg_walk_header_next(slg_cursor *headers, slg_walk_header *header) {
    return slg_read_varint(headers, &header->key_size) &&
           slg_take(headers, header->key_size, &header->key) &&
           read_field(headers, &header->value, &header->value_size);
}

static int64_t add64(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* As Kafka's incrementSequence, which wraps like Java where the numbers make no sense. */
static int32_t add_sequence(int32_t sequence, int32_t delta) {
    const int32_t room = (int32_t)((uint32_t)INT32_MAX - (uint32_t)delta);
    if (sequence > room) {
        return (int32_t)((uint32_t)delta - ((uint32_t)INT32_MAX - (uint32_t)sequence) - 1U);
    }
    return (int32_t)((uint32_t)sequence + (uint32_t)delta);
}

static slg_status parse_body(const slg_batch *batch, slg_cursor *c, slg_walk_record *record,
                             slg_error *error) {
    const int64_t at = batch->position;
    int8_t attributes;
    int64_t timestamp_delta;
    int32_t offset_delta;
    if (!slg_read_i8(c, &attributes) || !slg_read_varlong(c, &timestamp_delta) ||
        !slg_read_varint(c, &offset_delta)) {
        return slg_fail(error, SLG_RECORD_VARINT, at, 0, 0);
    }
    if (!read_field(c, &record->key, &record->key_size)) {
        return slg_fail(error, SLG_RECORD_FIELD, at, (int64_t)slg_cursor_left(c), record->key_size);
    }
    if (!read_field(c, &record->value, &record->value_size)) {
        return slg_fail(error, SLG_RECORD_FIELD, at, (int64_t)slg_cursor_left(c),
                        record->value_size);
    }
    const int64_t left = (int64_t)slg_cursor_left(c);
    if (!slg_read_varint(c, &record->header_count) || record->header_count < 0 ||
        record->header_count > left) {
        return slg_fail(error, SLG_RECORD_HEADERS, at, left, record->header_count);
    }
    record->headers = c->pos;
    for (int32_t i = 0; i < record->header_count; i++) {
        slg_walk_header header;
        if (!slg_walk_header_next(c, &header)) {
            return slg_fail(error, SLG_RECORD_FIELD, at, (int64_t)slg_cursor_left(c), i);
        }
    }
    record->headers_size = (size_t)(c->pos - record->headers);
    if (slg_cursor_left(c) != 0) {
        return slg_fail(error, SLG_RECORD_SIZE, at, (int64_t)(c->end - c->begin),
                        (int64_t)slg_cursor_read(c));
    }
    record->offset = add64(batch->base_offset, offset_delta);
    record->timestamp = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0
                            ? batch->max_timestamp
                            : add64(batch->base_timestamp, timestamp_delta);
    record->sequence =
        batch->base_sequence < 0 ? -1 : add_sequence(batch->base_sequence, offset_delta);
    record->crc = 0;
    record->valid = true;
    return SLG_OK;
}

/* The record at the cursor; `last` of its batch must be followed by nothing. */
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

/* Kafka adds up the places of key and value in 32 bits; sums that overflow are out of bounds. */
static slg_status parse_message(const slg_batch *batch, const uint8_t *data, size_t size,
                                slg_walk_record *record, slg_error *error) {
    const bool v0 = slg_load_i8(data + SLG_LEGACY_MAGIC_AT) == 0;
    const size_t key_at = (v0 ? SLG_V0_KEY_LENGTH_AT : SLG_V1_KEY_LENGTH_AT) + (size_t)4;
    *record = (slg_walk_record){.sequence = -1};
    record->crc = slg_load_u32(data + SLG_LEGACY_CRC_AT);
    record->valid = record->crc == slg_crc32(0, data + SLG_LEGACY_CRC_FROM,
                                             size - SLG_LEGACY_CRC_FROM);
    record->offset = slg_load_i64(data);
    record->timestamp = v0 ? -1 : slg_load_i64(data + SLG_V1_TIMESTAMP_AT);
    if (key_at > size) {
        return slg_fail(error, SLG_LEGACY_SIZE, batch->position, (int64_t)key_at, (int64_t)size);
    }
    record->key_size = slg_load_i32(data + key_at - 4);
    const size_t key_size = record->key_size < 0 ? 0 : (size_t)record->key_size;
    const size_t left = size - key_at;
    if (key_size > left || left - key_size < 4) {
        return slg_fail(error, SLG_RECORD_FIELD, batch->position, (int64_t)left,
                        record->key_size);
    }
    record->key = record->key_size < 0 ? NULL : data + key_at;
    const uint8_t *value = data + key_at + key_size + 4;
    record->value_size = slg_load_i32(value - 4);
    if (record->value_size >= 0 && (size_t)record->value_size <= left - key_size - 4) {
        record->value = value;
    }
    return SLG_OK;
}

static bool is_wrapped(const uint8_t *inner) {
    return (slg_load_i8(inner + SLG_LEGACY_ATTRIBUTES_AT) & SLG_ATTRIBUTE_CODEC) != 0;
}

/* The next message of a wrapper; NULL when no whole one is left, or when it is none (status). */
static const uint8_t *next_inner(const slg_walk *walk, slg_cursor *c, size_t *size,
                                 slg_status *status, slg_error *error) {
    *status = SLG_OK;
    if (slg_cursor_left(c) < SLG_PREFIX_SIZE) {
        return NULL;
    }
    const uint8_t *data = c->pos;
    const int32_t length = slg_load_i32(data + SLG_PREFIX_LENGTH_AT);
    if (length < SLG_LEGACY_LENGTH_MIN) {
        *status = slg_fail(error, SLG_LEGACY_SIZE, walk->batch.position, SLG_LEGACY_LENGTH_MIN,
                           length);
        return NULL;
    }
    *size = (size_t)length + SLG_PREFIX_SIZE;
    return slg_skip(c, (int64_t)*size) ? data : NULL;
}

static slg_status check_wrapper(slg_walk *walk, slg_error *error) {
    slg_cursor c = walk->records;
    const slg_batch *batch = &walk->batch;
    slg_status status;
    size_t size;
    int64_t last = 0;
    walk->records_left = 0;
    for (const uint8_t *inner; (inner = next_inner(walk, &c, &size, &status, error)) != NULL;) {
        last = slg_load_i64(inner);
        walk->records_left++;
    }
    if (status != SLG_OK) {
        return status;
    }
    if (walk->records_left == 0) {
        return slg_fail(error, SLG_LEGACY_EMPTY_WRAPPER, batch->position, 1, 0);
    }
    walk->inner_base = 0;
    /* Some librdkafka wrote wrappers of magic 1 with offset 0 and absolute offsets inside. */
    if (batch->magic == 1 && batch->last_offset != 0) {
        if (batch->last_offset < last) {
            return slg_fail(error, SLG_LEGACY_OFFSET, batch->position, last, batch->last_offset);
        }
        walk->inner_base = (int64_t)((uint64_t)batch->last_offset - (uint64_t)last);
    }
    return SLG_OK;
}

static slg_status inner_next(slg_walk *walk, slg_walk_record *record, slg_error *error) {
    slg_status status;
    size_t size;
    const uint8_t *inner = next_inner(walk, &walk->records, &size, &status, error);
    if (inner == NULL) {
        return status == SLG_OK ? SLG_END : status;
    }
    if (is_wrapped(inner)) {
        return slg_fail(error, SLG_LEGACY_NESTED, walk->batch.position, 0,
                        slg_load_i8(inner + SLG_LEGACY_ATTRIBUTES_AT));
    }
    status = parse_message(&walk->batch, inner, size, record, error);
    record->offset = add64(record->offset, walk->inner_base);
    const bool appended = walk->batch.magic == 1 &&
                          (walk->batch.attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
    if (appended && slg_load_i8(inner + SLG_LEGACY_MAGIC_AT) == 1) {
        record->timestamp = walk->batch.max_timestamp;
    }
    return status;
}

/* ---- entries ------------------------------------------------------------------------------- */

static slg_status enter_message(slg_walk *walk, const uint8_t *data, slg_error *error) {
    const slg_batch *batch = &walk->batch;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    slg_walk_record wrapper;
    walk->single = codec == SLG_CODEC_NONE;
    if (walk->single) {
        walk->records_left = 1;
        return SLG_OK;
    }
    if (codec > SLG_CODEC_LEGACY_MAX) {
        return slg_fail(error, SLG_LEGACY_CODEC, batch->position, SLG_CODEC_LEGACY_MAX, codec);
    }
    const slg_status status = parse_message(batch, data, (size_t)batch->size, &wrapper, error);
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
        return check_wrapper(walk, error);
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
        return parse_message(batch, slg_window_at(walk->window, batch->position),
                             (size_t)batch->size, record, error);
    }
    if (slg_batch_is_legacy(&walk->batch)) {
        return inner_next(walk, record, error);
    }
    return parse_record(&walk->batch, &walk->records, walk->records_left == 0, record, error);
}
