#include "seglog/columns.h"

/* Moves values [from, from + count) of a binary to `to`, and their bytes after the first `used`. */
static int64_t move_binary(slg_binary *binary, int64_t to, int64_t from, int64_t count,
                           int64_t used) {
    int32_t *offsets = (int32_t *)(void *)binary->offsets.data;
    const int32_t first = offsets[from];
    const int32_t size = offsets[from + count] - first;
    memmove(binary->bytes.data + used, binary->bytes.data + first, (size_t)size);
    for (int64_t i = 1; i <= count; i++) {
        offsets[to + i] = (int32_t)used + offsets[from + i] - first;
    }
    return used + size;
}

static bool bit_at(const uint8_t *bits, int64_t at) { return (bits[at >> 3] >> (at & 7) & 1) != 0; }

static int64_t move_bits(uint8_t *bits, int64_t to, int64_t from, int64_t count) {
    int64_t zeros = 0;
    for (int64_t i = 0; i < count; i++) {
        const bool bit = bit_at(bits, from + i);
        zeros += !bit;
        slg_bits_set(bits, to + i, bit);
    }
    return zeros;
}

/* The progress of one walk over the kept rows. */
typedef struct moved {
    int64_t rows;
    int64_t headers;
    int64_t used[4]; /* bytes of the binaries below */
    int64_t nulls[4];
} moved;

enum { KEY, VALUE, HEADER_KEY, HEADER_VALUE };

static void move_values(slg_binary *binary, moved *done, int which, int64_t to, int64_t from,
                        int64_t count) {
    done->used[which] = move_binary(binary, to, from, count, done->used[which]);
    if (binary->null_count > 0) {
        done->nulls[which] += move_bits(binary->validity.data, to, from, count);
    }
}

static void move_headers(slg_columns *columns, moved *done, int64_t from, int64_t count) {
    int32_t *lists = (int32_t *)(void *)columns->header_lists.data;
    const int32_t first = lists[from];
    const int32_t size = lists[from + count] - first;
    move_values(&columns->header_key, done, HEADER_KEY, done->headers, first, size);
    move_values(&columns->header_value, done, HEADER_VALUE, done->headers, first, size);
    for (int64_t i = 1; i <= count; i++) {
        lists[done->rows + i] = (int32_t)done->headers + lists[from + i] - first;
    }
    done->headers += size;
}

static void move_fixed(slg_columns *columns, int64_t to, int64_t from, int64_t count) {
    for (unsigned i = 0; i < SLG_COLUMNS; i++) {
        if (!slg_columns_want(columns, (slg_column)i)) {
            continue;
        }
        uint8_t *data = columns->fixed[i].data;
        const size_t width = slg_column_width(columns->layout, (slg_column)i);
        if (width > 0) {
            memmove(data + (size_t)to * width, data + (size_t)from * width, (size_t)count * width);
        } else if (i == SLG_COLUMN_IS_TRANSACTIONAL || i == SLG_COLUMN_IS_CONTROL) {
            move_bits(data, to, from, count);
        }
    }
}

static void move_rows(slg_columns *columns, moved *done, int64_t from, int64_t count) {
    move_fixed(columns, done->rows, from, count);
    if (slg_columns_want(columns, SLG_COLUMN_KEY)) {
        move_values(&columns->key, done, KEY, done->rows, from, count);
    }
    if (slg_columns_want(columns, SLG_COLUMN_VALUE)) {
        move_values(&columns->value, done, VALUE, done->rows, from, count);
    }
    if (slg_columns_want(columns, SLG_COLUMN_HEADERS)) {
        move_headers(columns, done, from, count);
    }
    done->rows += count;
}

static void shrink(slg_binary *binary, const moved *done, int which) {
    binary->used = done->used[which];
    binary->null_count = done->nulls[which];
}

void slg_columns_keep_times(slg_columns *columns, int64_t first, int64_t last) {
    /* Rows only move down, so rows that are not read yet stay intact. */
    const int64_t *times = (const int64_t *)(const void *)columns->fixed[SLG_COLUMN_TIMESTAMP].data;
    const int64_t rows = columns->rows;
    moved done = {0};
    int64_t row = 0;
    while (row < rows) {
        int64_t end = row;
        while (end < rows && times[end] >= first && times[end] <= last) {
            end++;
        }
        if (end - row == rows) {
            return;
        }
        if (end > row) {
            move_rows(columns, &done, row, end - row);
        }
        row = end + 1;
    }
    columns->rows = done.rows;
    columns->headers = done.headers;
    shrink(&columns->key, &done, KEY);
    shrink(&columns->value, &done, VALUE);
    shrink(&columns->header_key, &done, HEADER_KEY);
    shrink(&columns->header_value, &done, HEADER_VALUE);
    if (done.rows > 0) {
        const int64_t *offsets =
            (const int64_t *)(const void *)columns->fixed[SLG_COLUMN_OFFSET].data;
        columns->first_offset = offsets[0];
        columns->last_offset = offsets[done.rows - 1];
    }
}
