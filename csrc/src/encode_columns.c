#include "seglog/encode_columns.h"

#include <assert.h>
#include <string.h>

#include "seglog/format.h"
#include "seglog/wire.h"

enum { VIEW_BYTES = 16, VIEW_INLINE_MAX = 12 };

/* A value in place; size -1 is null. */
typedef struct value {
    const uint8_t *data;
    int64_t size;
} value;

static const value NONE = {NULL, -1};

static bool is_valid(const uint8_t *validity, int64_t index) {
    return validity == NULL || (validity[index >> 3] >> (index & 7) & 1) != 0;
}

/* ---- values -------------------------------------------------------------------------------- */

static int64_t offset_at(const void *offsets, bool is_large, int64_t index) {
    if (is_large) {
        return ((const int64_t *)offsets)[index];
    }
    return ((const int32_t *)offsets)[index];
}

/* [*from, *to) of entry `index`, inside of [0, end]. */
static bool bounds_of(const void *offsets, bool is_large, int64_t index, int64_t end,
                      int64_t *from, int64_t *to) {
    *from = offset_at(offsets, is_large, index);
    *to = offset_at(offsets, is_large, index + 1);
    return *from >= 0 && *from <= *to && *to <= end;
}

static bool view_at(const slg_input_binary *column, int64_t index, value *out) {
    const uint8_t *view = (const uint8_t *)column->offsets + index * VIEW_BYTES;
    int32_t size, block, at;
    memcpy(&size, view, sizeof size);
    if (size >= 0 && size <= VIEW_INLINE_MAX) {
        *out = (value){view + 4, size};
        return true;
    }
    memcpy(&block, view + 8, sizeof block);
    memcpy(&at, view + 12, sizeof at);
    if (size < 0 || block < 0 || block >= column->block_count || at < 0 ||
        at > column->block_sizes[block] - size) {
        return false;
    }
    *out = (value){(const uint8_t *)column->blocks[block] + at, size};
    return true;
}

/* False when what the column says of this row contradicts itself. */
static inline bool value_at(const slg_input_binary *column, int64_t row, value *out) {
    const int64_t index = column->first + row;
    int64_t from, to;
    if (column->kind == SLG_INPUT_NULLS || !is_valid(column->validity, index)) {
        *out = NONE;
        return true;
    }
    switch (column->kind) {
    case SLG_INPUT_BINARY:
    case SLG_INPUT_LARGE:
        if (!bounds_of(column->offsets, column->kind == SLG_INPUT_LARGE, index, column->end, &from,
                       &to)) {
            return false;
        }
        *out = (value){column->data == NULL ? NULL : column->data + from, to - from};
        return column->data != NULL || from == to;
    case SLG_INPUT_VIEW:
        return view_at(column, index, out);
    default:
        *out = (value){column->data + index * column->width, column->width};
        return true;
    }
}

/* ---- timestamps ---------------------------------------------------------------------------- */

static bool timestamp_at(const slg_encoder *encoder, const slg_input_times *times, int64_t row,
                         int64_t *out) {
    const int64_t index = times->first + row;
    if (times->data == NULL || !is_valid(times->validity, index)) {
        *out = encoder->default_timestamp;
        return true;
    }
    const int64_t time = times->data[index];
    *out = time / times->divide - (time % times->divide < 0 ? 1 : 0);
    return !__builtin_mul_overflow(*out, times->multiply, out);
}

/* ---- headers ------------------------------------------------------------------------------- */

static uint8_t *put_field(uint8_t *p, const value *field) {
    p = slg_put_varint(p, (int32_t)field->size);
    if (field->size > 0) {
        memcpy(p, field->data, (size_t)field->size);
        p += field->size;
    }
    return p;
}

static slg_status header_at(const slg_input_headers *headers, int64_t item, value *key,
                            value *content, slg_error *error) {
    if (!value_at(&headers->key, item, key) || !value_at(&headers->value, item, content)) {
        return slg_fail(error, SLG_ARROW_LAYOUT, 0, 0, item);
    }
    if (key->size < 0 || !is_valid(headers->item_validity, headers->item_first + item)) {
        return slg_fail(error, SLG_ENCODE_HEADER_KEY, 0, 0, item);
    }
    return SLG_OK;
}

/* The items [*from, *to) of a row, and what they take in a record. */
static slg_status measure_headers(const slg_input_headers *headers, int64_t row, int64_t *from,
                                  int64_t *to, int64_t *size, slg_error *error) {
    const int64_t index = headers->first + row;
    *from = *to = *size = 0;
    if (headers->offsets == NULL || !is_valid(headers->validity, index)) {
        return SLG_OK;
    }
    if (!bounds_of(headers->offsets, headers->is_large, index, headers->end, from, to)) {
        return slg_fail(error, SLG_ARROW_LAYOUT, 0, headers->end, *to);
    }
    for (int64_t item = *from; item < *to; item++) {
        value key, content;
        const slg_status status = header_at(headers, item, &key, &content, error);
        if (status != SLG_OK) {
            return status;
        }
        *size += (int64_t)(slg_encode_field(key.size) + slg_encode_field(content.size));
        /* Far before a sum of such sizes can pass 63 bits. */
        if (*size > INT32_MAX) {
            return slg_fail(error, SLG_ENCODE_SIZE, 0, INT32_MAX, *size);
        }
    }
    return SLG_OK;
}

/* Measured before, so that nothing can be wrong. */
static void put_headers(const slg_input_headers *headers, int64_t from, int64_t to, uint8_t *p) {
    for (int64_t item = from; item < to; item++) {
        value key, content;
        (void)header_at(headers, item, &key, &content, NULL);
        p = put_field(put_field(p, &key), &content);
    }
}

/* ---- batches ------------------------------------------------------------------------------- */

void slg_encoder_init(slg_encoder *encoder, const slg_encode_fields *fields, int64_t base_offset,
                      slg_crc32c_kernel kernel) {
    *encoder = (slg_encoder){
        .fields = *fields,
        .default_timestamp = -1,
        .kernel = kernel,
        .limit = SIZE_MAX,
    };
    slg_encode_open(&encoder->batch, NULL, 0, base_offset);
}

static size_t open_size(const slg_encoder *encoder) {
    return encoder->batch.record_count > 0 ? encoder->batch.size : 0;
}

void slg_encoder_move(slg_encoder *encoder, uint8_t *out, size_t capacity) {
    const size_t size = open_size(encoder);
    assert(capacity >= size);
    if (size > 0) {
        memmove(out, encoder->batch.data, size);
    }
    encoder->out = out;
    encoder->capacity = capacity;
    encoder->used = 0;
    encoder->batch.data = out;
    encoder->batch.capacity = capacity;
}

void slg_encoder_grow(slg_encoder *encoder, uint8_t *out, size_t capacity) {
    assert(capacity >= encoder->capacity);
    encoder->out = out;
    encoder->capacity = capacity;
    encoder->batch.data = out + encoder->used;
    encoder->batch.capacity = capacity - encoder->used;
}

/* The next batch begins behind the whole ones, with the offset and sequence behind the last's. */
static void open_next(slg_encoder *encoder) {
    const slg_encode_batch *done = &encoder->batch;
    if (encoder->fields.base_sequence >= 0) {
        encoder->fields.base_sequence =
            slg_encode_sequence(encoder->fields.base_sequence, done->record_count);
    }
    encoder->batches++;
    encoder->records += done->record_count;
    const int64_t max_size = done->max_size;
    const int32_t max_records = done->max_records;
    const size_t end = encoder->capacity < encoder->limit ? encoder->capacity : encoder->limit;
    slg_encode_open(&encoder->batch, encoder->out + encoder->used,
                    end > encoder->used ? end - encoder->used : 0,
                    encoder->is_sent ? 0 : done->last_offset + 1);
    encoder->batch.max_size = max_size;
    encoder->batch.max_records = max_records;
}

bool slg_encoder_close(slg_encoder *encoder, uint8_t *header, const uint8_t *payload,
                       size_t payload_size) {
    slg_encode_batch *batch = &encoder->batch;
    if (batch->record_count == 0) {
        return false;
    }
    slg_encode_fields fields = encoder->fields;
    fields.last_offset_delta = batch->record_count - 1;
    if ((fields.attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) == 0) {
        fields.max_timestamp = batch->max_timestamp;
    }
    if ((fields.attributes & SLG_ATTRIBUTE_CODEC) == SLG_CODEC_NONE) {
        header = batch->data;
        payload = batch->data + SLG_BATCH_HEADER_SIZE;
        payload_size = batch->size - SLG_BATCH_HEADER_SIZE;
        encoder->used += batch->size;
    }
    slg_encode_seal(header, batch, &fields, payload, payload_size, encoder->kernel);
    open_next(encoder);
    return true;
}

static slg_status encode_row(slg_encoder *encoder, const slg_input *input, int64_t row,
                             slg_error *error) {
    value key, content;
    slg_encode_record record;
    int64_t from, to;
    uint8_t *headers;
    if (!value_at(&input->key, row, &key) || !value_at(&input->value, row, &content)) {
        return slg_fail(error, SLG_ARROW_LAYOUT, row, 0, row);
    }
    if (!timestamp_at(encoder, &input->timestamp, row, &record.timestamp)) {
        return slg_fail(error, SLG_ENCODE_TIMESTAMP, row, -1, input->timestamp.data[row]);
    }
    slg_status status =
        measure_headers(&input->headers, row, &from, &to, &record.headers_size, error);
    if (status != SLG_OK) {
        return status;
    }
    record.key = key.data;
    record.key_size = key.size;
    record.value = content.data;
    record.value_size = content.size;
    record.header_count = (int32_t)(to - from);
    record.offset = encoder->batch.last_offset + 1;
    status = slg_encode_add(&encoder->batch, &record, &headers, error);
    if (status == SLG_FULL) {
        if ((encoder->fields.attributes & SLG_ATTRIBUTE_CODEC) != SLG_CODEC_NONE) {
            return SLG_CODEC;
        }
        slg_encoder_close(encoder, NULL, NULL, 0);
        record.offset = encoder->batch.last_offset + 1;
        status = slg_encode_add(&encoder->batch, &record, &headers, error);
    }
    if (status == SLG_OK && to > from) {
        put_headers(&input->headers, from, to, headers);
    }
    return status;
}

slg_status slg_encoder_feed(slg_encoder *encoder, slg_input *input, slg_error *error) {
    if (input->rows - input->row > INT64_MAX - 1 - encoder->batch.last_offset) {
        return slg_fail(error, SLG_ENCODE_DELTA, input->row, encoder->batch.base_offset, INT64_MAX);
    }
    for (; input->row < input->rows; input->row++) {
        const slg_status status = encode_row(encoder, input, input->row, error);
        if (status != SLG_OK) {
            if (status != SLG_CODEC && error != NULL) {
                error->position = input->row;
            }
            return status;
        }
    }
    return SLG_OK;
}
