#include "seglog/encode_columns.h"

#include <assert.h>
#include <string.h>

#include "encode_internal.h"
#include "java.h"
#include "seglog/format.h"
#include "seglog/wire.h"

/* ---- timestamps ---------------------------------------------------------------------------- */

/* False for a time that milliseconds do not hold, or that they would round to "no timestamp". */
static bool timestamp_at(const slg_encoder *encoder, const slg_input_times *times, int64_t row,
                         int64_t *out) {
    const int64_t index = times->first + row;
    if (times->data == NULL || !is_valid(times->validity, index)) {
        *out = encoder->default_timestamp;
        return true;
    }
    const int64_t time = times->data[index];
    const bool is_between = time % times->divide < 0;
    *out = time / times->divide - (is_between ? 1 : 0);
    return !(is_between && *out == -1) && !__builtin_mul_overflow(*out, times->multiply, out);
}

/* ---- headers ------------------------------------------------------------------------------- */

static slg_status header_at(const slg_input_headers *headers, int64_t item, slg_value *key,
                            slg_value *content, slg_error *error) {
    if (!value_at(&headers->key, item, key) || !value_at(&headers->value, item, content)) {
        return slg_fail(error, SLG_ARROW_LAYOUT, 0, 0, item);
    }
    if (key->size < 0 || !is_valid(headers->item_validity, headers->item_first + item)) {
        return slg_fail(error, SLG_ENCODE_HEADER_KEY, 0, 0, item);
    }
    return SLG_OK;
}

/* The items [*from, *to) of a row, and their size in a record. */
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
        slg_value key, content;
        const slg_status status = header_at(headers, item, &key, &content, error);
        if (status != SLG_OK) {
            return status;
        }
        *size += (int64_t)(slg_encode_field(key.size) + slg_encode_field(content.size));
        /* Stop long before a sum of such sizes can exceed 63 bits. */
        if (*size > INT32_MAX) {
            return slg_fail(error, SLG_ENCODE_SIZE, 0, INT32_MAX, *size);
        }
    }
    return SLG_OK;
}

/* The sizes were checked before, so this cannot fail. */
static void put_headers(const slg_input_headers *headers, int64_t from, int64_t to, uint8_t *p) {
    for (int64_t item = from; item < to; item++) {
        slg_value key, content;
        (void)header_at(headers, item, &key, &content, NULL);
        p = slg_put_field(p, key.data, key.size);
        p = slg_put_field(p, content.data, content.size);
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

/* Begins the next batch after the whole ones, with the next offset and sequence. */
static void open_next(slg_encoder *encoder) {
    const slg_encode_batch *done = &encoder->batch;
    if (encoder->fields.base_sequence >= 0) {
        encoder->fields.base_sequence =
            slg_java_sequence(encoder->fields.base_sequence, done->record_count);
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
    slg_value key, content;
    slg_encode_record record;
    int64_t from, to;
    uint8_t *headers;
    if (!value_at(&input->key, row, &key) || !value_at(&input->value, row, &content)) {
        return slg_fail(error, SLG_ARROW_LAYOUT, row, 0, row);
    }
    if (!timestamp_at(encoder, &input->timestamp, row, &record.timestamp)) {
        return slg_fail(error, SLG_ENCODE_TIMESTAMP, row, -1,
                        input->timestamp.data[input->timestamp.first + row]);
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

/* The row of the columns that the next row of the input is; -1 for a wrong selection. */
static int64_t next_row(const slg_input *input) {
    if (input->selection == NULL) {
        return input->row;
    }
    const int64_t row = input->selection[input->row];
    return row < input->selectable ? row : -1;
}

slg_status slg_encoder_feed(slg_encoder *encoder, slg_input *input, slg_error *error) {
    if (input->rows - input->row > INT64_MAX - 1 - encoder->batch.last_offset) {
        return slg_fail(error, SLG_ENCODE_DELTA, input->row, encoder->batch.base_offset, INT64_MAX);
    }
    for (; input->row < input->rows; input->row++) {
        const int64_t row = next_row(input);
        const slg_status status = row < 0
                                      ? slg_fail(error, SLG_ARROW_LAYOUT, input->row,
                                                 input->selectable, input->selection[input->row])
                                      : encode_row(encoder, input, row, error);
        if (status != SLG_OK) {
            if (status != SLG_CODEC && error != NULL) {
                error->position = input->row;
            }
            return status;
        }
    }
    return SLG_OK;
}
