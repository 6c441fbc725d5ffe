#include "seglog/records.h"

#include <stdlib.h>

#include "entry.h"
#include "records_internal.h"
#include "seglog/framing.h"

/*
 * CRC and decoder find the bytes of the last pread in L2, and calls are few. Measured with 16 KiB
 * batches of 100 B values (M records/s): 64 KiB 35, 256 KiB 38, 1 MiB 43, 2 MiB 44.
 */
enum { WINDOW_BYTES = 1 << 20 };

static void begin_at(slg_records *records, int64_t start, const slg_records_options *options) {
    records->options = *options;
    records->position = start;
    records->next_offset = options->base_offset;
    records->state = BETWEEN_ENTRIES;
    records->done = false;
    records->passed = false;
}

slg_records *slg_records_new(slg_source source, int64_t start, int64_t end,
                             const slg_records_options *options) {
    slg_records *records = calloc(1, sizeof *records);
    if (records == NULL) {
        return NULL;
    }
    slg_window_init(&records->window, source, end, WINDOW_BYTES);
    begin_at(records, start, options);
    return records;
}

void slg_records_restart(slg_records *records, slg_source source, int64_t start, int64_t end,
                         const slg_records_options *options) {
    slg_window_restart(&records->window, source, end, WINDOW_BYTES);
    begin_at(records, start, options);
}

void slg_records_free(slg_records *records) {
    if (records != NULL) {
        slg_window_free(&records->window);
        free(records);
    }
}

int64_t slg_records_position(const slg_records *records) { return records->position; }

slg_payload slg_records_payload(const slg_records *records) { return records->payload; }

void slg_records_set_room(slg_records *records, uint8_t *room, size_t size) {
    records->room = room;
    records->room_size = size;
}

void slg_records_resume(slg_records *records, const uint8_t *data, size_t size) {
    records->at = data;
    records->end = data + size;
    records->state = slg_batch_is_legacy(&records->batch) ? OPENS_WRAPPER : IN_BATCH;
}

/* ---- the choice of entries ----------------------------------------------------------------- */

/* The last range of the producer that begins at or before the batch's end decides. */
static bool is_aborted(const slg_records_options *options, const slg_batch *batch) {
    size_t low = 0;
    size_t high = options->aborted_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const slg_aborted *range = &options->aborted[middle];
        if (range->producer_id < batch->producer_id ||
            (range->producer_id == batch->producer_id &&
             range->first_offset <= batch->last_offset)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && options->aborted[low - 1].producer_id == batch->producer_id &&
           options->aborted[low - 1].last_offset >= batch->base_offset;
}

static bool is_left_out(const slg_records *records) {
    const slg_batch *batch = &records->batch;
    if (slg_batch_is_legacy(batch)) {
        return false;
    }
    const slg_row_filter *filter = records->options.filter;
    const int type = slg_batch_has(batch, SLG_ATTRIBUTE_LOG_APPEND_TIME);
    if (filter != NULL && (filter->timestamp_types >> (type + 1) & 1U) == 0) {
        return true;
    }
    if (slg_batch_has(batch, SLG_ATTRIBUTE_CONTROL)) {
        return (records->options.flags & SLG_RECORDS_CONTROL) == 0;
    }
    return slg_batch_has(batch, SLG_ATTRIBUTE_TRANSACTIONAL) &&
           is_aborted(&records->options, batch);
}

/*
 * True if this entry and all after it are beyond end_offset. A wrapper's first offset is inside it.
 */
static bool is_beyond(const slg_records *records) {
    const slg_batch *batch = &records->batch;
    const bool wrapper = slg_batch_is_legacy(batch) && batch->record_count < 0;
    return batch->base_offset >= records->options.end_offset && !wrapper;
}

/* Whether the header shows that the filter skips every record. */
static bool is_filtered_out(const slg_records *records) {
    const slg_row_filter *filter = records->options.filter;
    const slg_batch *batch = &records->batch;
    /* A wrapper's timestamp need not be the largest of its messages. */
    if (filter == NULL || (records->options.flags & SLG_RECORDS_HEADERS) == 0 ||
        slg_batch_is_legacy(batch)) {
        return false;
    }
    const bool append_time = slg_batch_has(batch, SLG_ATTRIBUTE_LOG_APPEND_TIME);
    /* The header has no smallest create time: a record may be older than the first. */
    return (filter->timestamp_types >> (append_time + 1) & 1U) == 0 ||
           batch->max_timestamp < filter->first_timestamp ||
           (append_time && batch->max_timestamp > filter->last_timestamp);
}

bool slg_records_is_kept(const slg_row_filter *filter, int64_t timestamp, const uint8_t *key,
                         int64_t key_size) {
    if (timestamp < filter->first_timestamp || timestamp > filter->last_timestamp) {
        return false;
    }
    if (!filter->by_key || key_size < 0) {
        return !filter->by_key || filter->null_key;
    }
    for (size_t i = 0; i < filter->key_count; i++) {
        if (filter->keys[i].size == (size_t)key_size &&
            memcmp(filter->keys[i].data, key, (size_t)key_size) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- from entry to entry ------------------------------------------------------------------- */

/* check_order has refused the largest offset. */
static void pass_entry(slg_records *records) {
    records->position += records->batch.size;
    records->next_offset = records->batch.last_offset + 1;
    records->state = BETWEEN_ENTRIES;
    records->done = records->next_offset >= records->options.end_offset;
}

static slg_status frame_entry(slg_records *records, slg_error *error) {
    slg_window *window = &records->window;
    const int64_t position = records->position;
    const int64_t rest = window->end - position;
    if (rest <= 0 || records->done) {
        return SLG_END;
    }
    const size_t least = rest < SLG_BATCH_HEADER_SIZE ? (size_t)rest : SLG_BATCH_HEADER_SIZE;
    /* After a skipped batch the next is likely skipped too: read only its header. */
    const size_t target = window->target;
    window->target = records->passed ? least : target;
    slg_status status = slg_window_need(window, position, least, error);
    window->target = target;
    if (status != SLG_OK) {
        return status;
    }
    const uint8_t *data = slg_window_at(window, position);
    const size_t left = slg_window_left(window, position);
    int32_t size;
    status = slg_batch_frame(data, left, position, window->end, &size, error);
    if (status == SLG_BATCH_LENGTH || status == SLG_TORN_TAIL) {
        const slg_status zero = slg_window_zero_tail(window, position, error);
        return zero == SLG_OK ? status : zero;
    }
    if (status != SLG_OK) {
        return status;
    }
    return slg_batch_parse(data, left, position, size, &records->batch, error);
}

static slg_status begin_batch(slg_records *records, const uint8_t *entry, slg_error *error) {
    const slg_batch *batch = &records->batch;
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    const uint8_t *data = entry + SLG_BATCH_HEADER_SIZE;
    const size_t size = (size_t)batch->size - SLG_BATCH_HEADER_SIZE;
    records->left = batch->record_count;
    if (batch->record_count < 0) {
        return slg_fail(error, SLG_BATCH_RECORD_COUNT, batch->position, 0, batch->record_count);
    }
    if (batch->record_count == 0) {
        /* Compaction left only the header; Kafka ignores bytes after it, and the codec. */
        pass_entry(records);
        return SLG_OK;
    }
    if (codec > SLG_CODEC_MAX) {
        return slg_fail(error, SLG_BATCH_CODEC, batch->position, SLG_CODEC_MAX, codec);
    }
    if (codec != SLG_CODEC_NONE) {
        records->payload = (slg_payload){data, size, codec, batch->magic};
        records->state = NEEDS_PAYLOAD;
        return SLG_OK;
    }
    records->at = data;
    records->end = data + size;
    records->state = IN_BATCH;
    return SLG_OK;
}

/*
 * The CRC does not cover the base offset, so only decreasing offsets reveal a damaged one. A
 * wrapper's base offset is unknown; its last offset must increase.
 */
static slg_status check_order(const slg_records *records, slg_error *error) {
    const slg_batch *batch = &records->batch;
    if (batch->last_offset < batch->base_offset || batch->last_offset == INT64_MAX) {
        return slg_fail(error, SLG_BATCH_LAST_OFFSET, batch->position, 0,
                        slg_java_subtract(batch->last_offset, batch->base_offset));
    }
    if (batch->base_offset < records->next_offset) {
        return slg_fail(error, SLG_BATCH_OFFSET_ORDER, batch->position, records->next_offset,
                        batch->base_offset);
    }
    return SLG_OK;
}

/* SLG_OK: the current entry is begun, or was skipped. */
static slg_status begin_entry(slg_records *records, slg_error *error) {
    slg_status status = frame_entry(records, error);
    if (status != SLG_OK) {
        return status;
    }
    const slg_batch *batch = &records->batch;
    slg_error disorder;
    const slg_status order = check_order(records, &disorder);
    if (order == SLG_OK && batch->last_offset < records->options.start_offset) {
        /* Before the CRC: the broker seeks by headers too and never sends these bytes. */
        pass_entry(records);
        return SLG_OK;
    }
    if (batch->magic < 0 || batch->magic > SLG_MAGIC_MAX) {
        return slg_fail(error, SLG_BATCH_MAGIC, batch->position, SLG_MAGIC_MAX, batch->magic);
    }
    if (order == SLG_OK && is_beyond(records)) {
        return SLG_END;
    }
    records->passed = order == SLG_OK && is_filtered_out(records);
    if (records->passed) {
        pass_entry(records);
        return SLG_OK;
    }
    status = slg_window_need(&records->window, records->position, (size_t)batch->size, error);
    if (status != SLG_OK) {
        return status;
    }
    const uint8_t *entry = slg_window_at(&records->window, records->position);
    if ((records->options.flags & SLG_RECORDS_CRC) != 0) {
        status = slg_batch_check_crc(batch, entry, records->options.kernel, error);
        if (status != SLG_OK) {
            return status;
        }
    }
    if (order != SLG_OK) {
        /* After the CRC, which detects a last offset that is wrong because of damage. */
        if (error != NULL) {
            *error = disorder;
        }
        return order;
    }
    if (is_left_out(records)) {
        pass_entry(records);
        return SLG_OK;
    }
    return slg_batch_is_legacy(batch) ? slg_records_begin_message(records, entry, error)
                                      : begin_batch(records, entry, error);
}

/* Whether the payload could be decompressed here. */
static bool unframe(slg_records *records) {
    const slg_payload *payload = &records->payload;
    const ptrdiff_t size = records->room == NULL
                               ? -1
                               : slg_unframe(payload->codec, payload->data, payload->size,
                                             records->room, records->room_size);
    if (size < 0) {
        return false;
    }
    slg_records_resume(records, records->room, (size_t)size);
    return true;
}

slg_status slg_records_next(slg_records *records, slg_columns *columns, slg_error *error) {
    for (;;) {
        slg_status status;
        switch (records->state) {
        case NEEDS_PAYLOAD:
            if (!unframe(records)) {
                return SLG_CODEC;
            }
            continue;
        case IN_BATCH: status = slg_records_decode_batch(records, columns, error); break;
        case OPENS_WRAPPER:
            status = slg_records_open_wrapper(records, error);
            if (status != SLG_OK) {
                return status;
            }
            continue;
        case IN_WRAPPER: status = slg_records_decode_messages(records, columns, error); break;
        case BETWEEN_ENTRIES:
        default:
            status = begin_entry(records, error);
            if (status != SLG_OK) {
                return status;
            }
            continue;
        }
        if (status != SLG_OK) {
            return status;
        }
        pass_entry(records);
    }
}

/* ---- set after set ------------------------------------------------------------------------ */

slg_status slg_record_sets_end(slg_record_sets *sets, slg_error *error) {
    slg_columns *columns = sets->filling;
    if (columns == NULL || columns->rows == 0) {
        return SLG_OK;
    }
    if (!slg_columns_finish(columns, &sets->shape)) {
        return slg_fail(error, SLG_NO_MEMORY, 0, columns->rows, 0);
    }
    columns->next = NULL;
    if (sets->first == NULL) {
        sets->first = columns;
    } else {
        sets->last->next = columns;
    }
    sets->last = columns;
    sets->nbytes += slg_columns_nbytes(columns);
    sets->filling = NULL;
    return SLG_OK;
}

slg_columns *slg_record_sets_pop(slg_record_sets *sets) {
    slg_columns *columns = sets->first;
    if (columns != NULL) {
        sets->first = columns->next;
        sets->nbytes -= slg_columns_nbytes(columns);
    }
    return columns;
}

void slg_record_sets_clear(slg_record_sets *sets) {
    slg_columns *columns;
    while ((columns = slg_record_sets_pop(sets)) != NULL) {
        slg_columns_release(columns);
    }
    if (sets->filling != NULL) {
        slg_columns_release(sets->filling);
        sets->filling = NULL;
    }
}

slg_status slg_records_fill(slg_records *records, slg_pool *pool, int64_t nbytes,
                            slg_record_sets *sets, slg_error *error) {
    const uint32_t decoded = sets->shape.wanted & ((1U << SLG_COLUMNS) - 1);
    slg_status status;
    do {
        if (sets->filling == NULL) {
            sets->filling = slg_pool_take(pool, decoded, sets->shape.layout);
        }
        if (sets->filling == NULL) {
            const int64_t wanted_bytes = sizeof(slg_columns);
            return slg_fail(error, SLG_NO_MEMORY, records->position, wanted_bytes, 0);
        }
        status = slg_records_next(records, sets->filling, error);
        if (status == SLG_CODEC) {
            return status;
        }
        const slg_status ended = slg_record_sets_end(sets, error);
        if (ended != SLG_OK) {
            return ended;
        }
    } while (status == SLG_FULL && sets->nbytes < nbytes);
    return status;
}

/* ---- columns that the batch determines ----------------------------------------------------- */

static void fill_i64(uint8_t *data, int64_t row, int64_t count, int64_t value) {
    int64_t *out = (int64_t *)(void *)data + row;
    for (int64_t i = 0; i < count; i++) {
        out[i] = value;
    }
}

static void fill_i32(uint8_t *data, int64_t row, int64_t count, int32_t value) {
    int32_t *out = (int32_t *)(void *)data + row;
    for (int64_t i = 0; i < count; i++) {
        out[i] = value;
    }
}

static void fill_i16(uint8_t *data, int64_t row, int64_t count, int16_t value) {
    int16_t *out = (int16_t *)(void *)data + row;
    for (int64_t i = 0; i < count; i++) {
        out[i] = value;
    }
}

static void fill_sequences(slg_columns *columns, const slg_batch *batch, int64_t row, int64_t count,
                           const int64_t *offsets) {
    int32_t *out = (int32_t *)(void *)columns->fixed[SLG_COLUMN_SEQUENCE].data + row;
    for (int64_t i = 0; i < count; i++) {
        const int64_t delta = slg_java_subtract(offsets[i], batch->base_offset);
        out[i] = slg_record_sequence(batch, slg_java_int(delta));
    }
}

void slg_records_add_rows(slg_columns *columns, const slg_batch *batch, int64_t row, int64_t count,
                          int8_t timestamp_type, const int64_t *offsets) {
    slg_buffer *fixed = columns->fixed;
    const int bits = slg_batch_is_legacy(batch) ? 0 : batch->attributes;
    if (count == 0) {
        return;
    }
    if (columns->rows == 0) {
        columns->first_offset = offsets[0];
    }
    columns->last_offset = offsets[count - 1];
    columns->rows = row + count;
    if (slg_columns_want(columns, SLG_COLUMN_TIMESTAMP_TYPE)) {
        uint8_t *types = fixed[SLG_COLUMN_TIMESTAMP_TYPE].data;
        if (columns->layout == SLG_LAYOUT_SPARK) {
            fill_i32(types, row, count, timestamp_type);
        } else {
            memset(types + row, timestamp_type, (size_t)count);
        }
    }
    if (columns->wanted >> SLG_COLUMN_PRODUCER_ID == 0) {
        return;
    }
    if (slg_columns_want(columns, SLG_COLUMN_PRODUCER_ID)) {
        fill_i64(fixed[SLG_COLUMN_PRODUCER_ID].data, row, count, batch->producer_id);
    }
    if (slg_columns_want(columns, SLG_COLUMN_PRODUCER_EPOCH)) {
        fill_i16(fixed[SLG_COLUMN_PRODUCER_EPOCH].data, row, count, batch->producer_epoch);
    }
    if (slg_columns_want(columns, SLG_COLUMN_SEQUENCE)) {
        fill_sequences(columns, batch, row, count, offsets);
    }
    if (slg_columns_want(columns, SLG_COLUMN_LEADER_EPOCH)) {
        fill_i32(fixed[SLG_COLUMN_LEADER_EPOCH].data, row, count, batch->partition_leader_epoch);
    }
    if (slg_columns_want(columns, SLG_COLUMN_IS_TRANSACTIONAL)) {
        slg_bits_fill(fixed[SLG_COLUMN_IS_TRANSACTIONAL].data, row, count,
                      (bits & SLG_ATTRIBUTE_TRANSACTIONAL) != 0);
    }
    if (slg_columns_want(columns, SLG_COLUMN_IS_CONTROL)) {
        slg_bits_fill(fixed[SLG_COLUMN_IS_CONTROL].data, row, count,
                      (bits & SLG_ATTRIBUTE_CONTROL) != 0);
    }
    if (slg_columns_want(columns, SLG_COLUMN_POSITION)) {
        fill_i64(fixed[SLG_COLUMN_POSITION].data, row, count, batch->position);
    }
}
