/*
 * Records of v2 batches. One loop emits rows. It is compiled once per projection, reads varints
 * without bounds (the slack after every payload makes that safe) and checks each record before it
 * adds it. It stops at any other record; slg_records_explain reads that again through a bounded
 * cursor and names the cause.
 */
#include "entry.h"
#include "record_fields.h"
#include "records_internal.h"
#include "seglog/utf8.h"

/* ---- copies with slack --------------------------------------------------------------------- */

/*
 * Copies move whole words, up to 63 bytes too many on both sides. Keys are short, so the first 16
 * bytes are copied unconditionally. Long values use memcpy, which knows the processor. Columns are
 * larger than L2, so the lines of the next values are prefetched: 1.1 times as fast.
 */
enum { WORDWISE_MAX = 512, LINE = 64, AHEAD = 1024 };

SLG_ALWAYS_INLINE void copy_key(uint8_t *into, const uint8_t *from, size_t size) {
    memcpy(into, from, 16);
    if (size > 16) {
        memcpy(into + 16, from + 16, size - 16);
    }
}

SLG_ALWAYS_INLINE void copy_value(uint8_t *into, const uint8_t *from, size_t size) {
    if (SLG_UNLIKELY(size > WORDWISE_MAX)) {
        memcpy(into, from, size);
        return;
    }
    __builtin_prefetch(into + AHEAD, 1);
    __builtin_prefetch(into + AHEAD + LINE, 1);
    for (const uint8_t *const stop = from + size; from < stop; from += LINE, into += LINE) {
        memcpy(into, from, LINE);
    }
}

/* ---- headers ------------------------------------------------------------------------------- */

/* `count` headers that fill [p, stop) exactly. */
static bool headers_fit(const uint8_t *p, const uint8_t *stop, int32_t count, int64_t *nulls) {
    slg_cursor cursor = slg_cursor_of(p, (size_t)(stop - p));
    slg_header header;
    int32_t number;
    *nulls = 0;
    for (int32_t i = 0; i < count; i++) {
        if (slg_header_read(&cursor, &header, &number) != SLG_FIELD_NONE) {
            return false;
        }
        *nulls += header.value_size < 0;
    }
    return cursor.pos == stop;
}

static slg_status reserve_headers(slg_columns *columns, int64_t count, int64_t bytes,
                                  int64_t nulls) {
    const int64_t keys = (int64_t)slg_utf8_bound((size_t)bytes);
    if (columns->header_key.used + keys > INT32_MAX || columns->headers + count > INT32_MAX) {
        return SLG_LIMIT;
    }
    if (!slg_columns_reserve_headers(columns, count, keys, bytes)) {
        return SLG_NO_MEMORY;
    }
    if ((nulls > 0 || columns->header_value.null_count > 0) &&
        !slg_binary_cover(&columns->header_value, columns->headers, count)) {
        return SLG_NO_MEMORY;
    }
    return SLG_OK;
}

/* Headers that headers_fit has checked. */
SLG_NEVER_INLINE slg_status append_headers(slg_columns *columns, const uint8_t *p,
                                           const uint8_t *stop, int32_t count, int64_t nulls) {
    const slg_status status = reserve_headers(columns, count, stop - p, nulls);
    if (status != SLG_OK) {
        return status;
    }
    slg_binary *key = &columns->header_key;
    slg_binary *value = &columns->header_value;
    int32_t *key_ends = (int32_t *)(void *)key->offsets.data + columns->headers + 1;
    int32_t *value_ends = (int32_t *)(void *)value->offsets.data + columns->headers + 1;
    slg_cursor cursor = slg_cursor_of(p, (size_t)(stop - p));
    for (int32_t i = 0; i < count; i++) {
        slg_header header = {NULL, NULL, 0, 0};
        int32_t number;
        (void)slg_header_read(&cursor, &header, &number);
        key->used += (int64_t)slg_utf8_replace(header.key, (size_t)header.key_size,
                                               key->bytes.data + key->used);
        key_ends[i] = (int32_t)key->used;
        if (header.value_size < 0) {
            slg_binary_set_null(value, columns->headers + i);
        } else {
            memcpy(value->bytes.data + value->used, header.value, (size_t)header.value_size);
            value->used += header.value_size;
        }
        value_ends[i] = (int32_t)value->used;
    }
    columns->headers += count;
    return SLG_OK;
}

/* ---- the loop ------------------------------------------------------------------------------ */

/* The task of one span, and its result. */
typedef struct span {
    const uint8_t *end;  /* records end at or before it */
    int32_t records_max; /* records read and, at most, rows written */
    int32_t rows;
    slg_status failure;  /* of memory, not of bytes */
} span;

/* The bits of what one compiled loop does. */
enum { P_KEY = 1, P_VALUE = 2, P_HEADERS = 4, P_FILTER = 8, PROJECTIONS = 16 };

static bool is_wanted(const slg_records *records, slg_peeked record) {
    const slg_batch *batch = &records->batch;
    const slg_row_filter *filter = records->options.filter;
    const int64_t offset =
        slg_java_add(batch->base_offset, slg_zigzag32((uint32_t)record.offset_delta));
    if (offset < records->options.start_offset || offset >= records->options.end_offset) {
        return false;
    }
    return filter == NULL ||
           slg_records_is_kept(filter, slg_record_timestamp(batch, slg_zigzag64(record.time_delta)),
                               record.key, record.key_is_null ? -1 : record.key_length);
}

static inline int32_t *ends_of(const slg_binary *binary, int64_t row) {
    return (int32_t *)(void *)binary->offsets.data + row + 1;
}

/* Decodes from records->at; stops before the first record that does not fit or is invalid. */
SLG_ALWAYS_INLINE void decode_span(slg_records *records, slg_columns *columns, span *work,
                                   const unsigned wants) {
    const uint8_t *const end = work->end;
    uint8_t *key_into = wants & P_KEY ? columns->key.bytes.data + columns->key.used : NULL;
    uint8_t *value_into = wants & P_VALUE ? columns->value.bytes.data + columns->value.used : NULL;
    const uint8_t *const key_bytes = wants & P_KEY ? columns->key.bytes.data : NULL;
    const uint8_t *const value_bytes = wants & P_VALUE ? columns->value.bytes.data : NULL;
    int32_t *const key_ends = wants & P_KEY ? ends_of(&columns->key, columns->rows) : NULL;
    int32_t *const value_ends = wants & P_VALUE ? ends_of(&columns->value, columns->rows) : NULL;
    const uint8_t *at = records->at;
    int32_t left = work->records_max;
    size_t row = 0;
    for (; left > 0; left--) {
        slg_peeked record;
        if (SLG_UNLIKELY(!slg_peek_key(at, end, &record))) {
            break;
        }
        const bool kept = !(wants & P_FILTER) || is_wanted(records, record);
        if ((wants & P_KEY) && kept) {
            copy_key(key_into, record.key, (size_t)record.key_length);
        }
        if (SLG_UNLIKELY(!slg_peek_value(&record))) {
            break;
        }
        if ((wants & P_VALUE) && kept) {
            copy_value(value_into, record.value, (size_t)record.value_length);
        }
        if (SLG_UNLIKELY(*record.tail != 0 || record.tail + 1 != record.stop)) {
            uint64_t header_count;
            int64_t nulls;
            const uint8_t *p = slg_peek_varint(record.tail, SLG_VARINT_SIZE_MAX, &header_count);
            const int32_t count = slg_zigzag32((uint32_t)header_count);
            if (p == NULL || p > record.stop || count < 0 ||
                !headers_fit(p, record.stop, count, &nulls)) {
                break;
            }
            if ((wants & P_HEADERS) && kept) {
                work->failure = append_headers(columns, p, record.stop, count, nulls);
                if (work->failure != SLG_OK) {
                    break;
                }
            }
        }
        at = record.stop;
        if ((wants & P_FILTER) && !kept) {
            continue;
        }
        records->span.time_deltas[row] = record.time_delta;
        records->span.offset_deltas[row] = (uint32_t)record.offset_delta;
        if (wants & P_KEY) {
            key_into += record.key_length;
            key_ends[row] = (int32_t)(key_into - key_bytes);
            records->span.key_nulls[row] = record.key_is_null;
        }
        if (wants & P_VALUE) {
            value_into += record.value_length;
            value_ends[row] = (int32_t)(value_into - value_bytes);
            records->span.value_nulls[row] = record.value_is_null;
        }
        if (wants & P_HEADERS) {
            records->span.list_ends[row] = (int32_t)columns->headers;
        }
        row++;
    }
    records->left -= work->records_max - left;
    records->at = at;
    work->rows = (int32_t)row;
}

#define PROJECTION(n)                                                                \
    SLG_NEVER_INLINE void decode_span_##n(slg_records *r, slg_columns *c, span *w) { \
        decode_span(r, c, w, n);                                                     \
    }
// clang-format off
PROJECTION(0) PROJECTION(1) PROJECTION(2) PROJECTION(3) PROJECTION(4) PROJECTION(5)
PROJECTION(6) PROJECTION(7) PROJECTION(8) PROJECTION(9) PROJECTION(10) PROJECTION(11)
PROJECTION(12) PROJECTION(13) PROJECTION(14) PROJECTION(15)
typedef void decode_function(slg_records *, slg_columns *, span *);
// clang-format on

static decode_function *const DECODERS[PROJECTIONS] = {
    decode_span_0,  decode_span_1,  decode_span_2,  decode_span_3,  decode_span_4,  decode_span_5,
    decode_span_6,  decode_span_7,  decode_span_8,  decode_span_9,  decode_span_10, decode_span_11,
    decode_span_12, decode_span_13, decode_span_14, decode_span_15,
};

static unsigned projection_of(const slg_records *records, const slg_columns *columns) {
    const slg_batch *batch = &records->batch;
    const bool inside = records->options.filter == NULL &&
                        batch->base_offset >= records->options.start_offset &&
                        batch->last_offset < records->options.end_offset;
    return (slg_columns_want(columns, SLG_COLUMN_KEY) ? P_KEY : 0U) |
           (slg_columns_want(columns, SLG_COLUMN_VALUE) ? P_VALUE : 0U) |
           (slg_columns_want(columns, SLG_COLUMN_HEADERS) ? P_HEADERS : 0U) |
           (inside ? 0U : P_FILTER);
}

/* ---- from a span to columns ---------------------------------------------------------------- */

static void add_offsets(const slg_records *records, int64_t *into, int32_t rows) {
    const int64_t base = records->batch.base_offset;
    for (int32_t i = 0; i < rows; i++) {
        into[i] = slg_java_add(base, slg_zigzag32(records->span.offset_deltas[i]));
    }
}

static void add_timestamps(const slg_records *records, int64_t *into, int32_t rows) {
    const slg_batch batch = records->batch; /* a copy, so that no store into columns changes it */
    for (int32_t i = 0; i < rows; i++) {
        into[i] = slg_record_timestamp(&batch, slg_zigzag64(records->span.time_deltas[i]));
    }
}

/* Converts milliseconds to microseconds; returns the number before the first that does not fit. */
static int32_t to_micros(int64_t *times, int32_t rows) {
    int32_t outside = 0;
    for (int32_t i = 0; i < rows; i++) {
        outside += times[i] > SLG_RECORDS_MICROS_MS_MAX || times[i] < -SLG_RECORDS_MICROS_MS_MAX;
    }
    int32_t fit = rows;
    for (int32_t i = 0; outside > 0 && i < fit; i++) {
        if (times[i] > SLG_RECORDS_MICROS_MS_MAX || times[i] < -SLG_RECORDS_MICROS_MS_MAX) {
            fit = i;
        }
    }
    for (int32_t i = 0; i < fit; i++) {
        times[i] *= 1000;
    }
    return fit;
}

/* The loop has copied the bytes and set their ends; adds the bitmap if there is a null. */
static bool add_binary(slg_binary *binary, int64_t row, const uint8_t *nulls, int32_t rows) {
    if (rows == 0) {
        return true;
    }
    binary->used = ends_of(binary, row)[rows - 1];
    if (binary->null_count == 0 && slg_is_zero(nulls, (size_t)rows)) {
        return true;
    }
    uint8_t valid[SPAN_ROWS];
    for (int32_t i = 0; i < rows; i++) {
        valid[i] = nulls[i] ^ 1U;
    }
    return slg_binary_validate(binary, row, rows, valid);
}

/* The timestamps of a span; with SLG_RECORD_TIMESTAMP *rows is the number before that record. */
static slg_status add_times(const slg_records *records, slg_columns *columns, int32_t *rows,
                            slg_error *error) {
    int64_t *times = (int64_t *)(void *)columns->fixed[SLG_COLUMN_TIMESTAMP].data + columns->rows;
    add_timestamps(records, times, *rows);
    if (columns->layout != SLG_LAYOUT_SPARK) {
        return SLG_OK;
    }
    const int32_t fit = to_micros(times, *rows);
    if (fit == *rows) {
        return SLG_OK;
    }
    *rows = fit;
    return slg_fail(error, SLG_RECORD_TIMESTAMP, records->position, SLG_RECORDS_MICROS_MS_MAX,
                    times[fit]);
}

static slg_status add_span(slg_records *records, slg_columns *columns, int32_t rows,
                           slg_error *error) {
    const int64_t row = columns->rows;
    int64_t *offsets = records->span.offsets;
    slg_status status = SLG_OK;
    if (slg_columns_want(columns, SLG_COLUMN_TIMESTAMP)) {
        status = add_times(records, columns, &rows, error);
    }
    if (slg_columns_want(columns, SLG_COLUMN_KEY) &&
        !add_binary(&columns->key, row, records->span.key_nulls, rows)) {
        return slg_fail(error, SLG_NO_MEMORY, records->position, rows, 0);
    }
    if (slg_columns_want(columns, SLG_COLUMN_VALUE) &&
        !add_binary(&columns->value, row, records->span.value_nulls, rows)) {
        return slg_fail(error, SLG_NO_MEMORY, records->position, rows, 0);
    }
    if (slg_columns_want(columns, SLG_COLUMN_HEADERS)) {
        memcpy((int32_t *)(void *)columns->header_lists.data + row + 1, records->span.list_ends,
               (size_t)rows * sizeof(int32_t));
    }
    if (slg_columns_want(columns, SLG_COLUMN_OFFSET)) {
        offsets = (int64_t *)(void *)columns->fixed[SLG_COLUMN_OFFSET].data + row;
    }
    add_offsets(records, offsets, rows);
    const int8_t type = slg_batch_has(&records->batch, SLG_ATTRIBUTE_LOG_APPEND_TIME);
    slg_records_add_rows(columns, &records->batch, row, rows, type, offsets);
    return status;
}

/* ---- span after span ----------------------------------------------------------------------- */

static slg_status run_span(slg_records *records, slg_columns *columns, int64_t bytes,
                           int64_t records_max, slg_error *error) {
    if (!slg_columns_reserve(columns, records_max, bytes, bytes)) {
        return slg_fail(error, SLG_NO_MEMORY, records->position, bytes, 0);
    }
    span work = {.end = records->at + bytes, .records_max = (int32_t)records_max};
    DECODERS[projection_of(records, columns)](records, columns, &work);
    const slg_status status = add_span(records, columns, work.rows, error);
    if (status != SLG_OK) {
        return status;
    }
    if (work.failure != SLG_OK) {
        return slg_fail(error, work.failure, records->position, INT32_MAX, bytes);
    }
    return SLG_OK;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* A span ended before its first record, which is too large for it, or invalid. */
static slg_status run_big_record(slg_records *records, slg_columns *columns, int64_t room,
                                 slg_error *error) {
    slg_cursor cursor = slg_cursor_of(records->at, (size_t)(records->end - records->at));
    int32_t size;
    if (!slg_read_varint(&cursor, &size) || size < 0 || (size_t)size > slg_cursor_left(&cursor)) {
        return slg_records_explain(records, error);
    }
    const int64_t whole = cursor.pos + size - records->at;
    if (whole > room && columns->rows > 0) {
        return SLG_FULL;
    }
    const uint8_t *const before = records->at;
    const slg_status status = run_span(records, columns, whole, 1, error);
    if (status == SLG_OK && records->at == before) {
        return slg_records_explain(records, error);
    }
    return status;
}

/* Makes room for the rest of the file, estimated from this batch, because growing copies. */
static bool reserve_ahead(const slg_records *records, slg_columns *columns) {
    const slg_records_options *options = &records->options;
    const int64_t payload = records->end - records->at;
    /* The count may be wrong; the bytes cannot hold more than this. */
    const int64_t count = least(records->left, payload / SLG_RECORD_SIZE_MIN + 1);
    const int64_t batches = (records->window.end - records->position) / records->batch.size + 1;
    const int64_t rows = least(options->max_rows, least(options->max_rows, batches) * count);
    const int64_t bytes = least(options->max_bytes, rows * (payload / count + 1));
    return slg_columns_reserve(columns, rows, bytes, bytes);
}

slg_status slg_records_decode_batch(slg_records *records, slg_columns *columns, slg_error *error) {
    const slg_records_options *options = &records->options;
    if (columns->rows == 0 && records->left > 0 && !reserve_ahead(records, columns)) {
        return slg_fail(error, SLG_NO_MEMORY, records->position, options->max_bytes, 0);
    }
    while (records->left > 0) {
        const int64_t rows_left = options->max_rows - columns->rows;
        int64_t room = options->max_bytes - records_used(columns);
        room = room < 0 ? 0 : room;
        if (rows_left <= 0) {
            return SLG_FULL;
        }
        const int64_t bytes = least(least(records->end - records->at, SPAN_BYTES), room);
        const int64_t records_max = least(least(records->left, rows_left), SPAN_ROWS);
        const uint8_t *const before = records->at;
        slg_status status = run_span(records, columns, bytes, records_max, error);
        if (status == SLG_OK && records->at == before) {
            status = run_big_record(records, columns, room, error);
        }
        if (status != SLG_OK) {
            return status;
        }
    }
    if (records->at != records->end) {
        return slg_fail(error, SLG_RECORD_COUNT, records->position, records->batch.record_count,
                        (int64_t)(records->end - records->at));
    }
    return SLG_OK;
}
