/* The values of an input's columns, for encode_columns and murmur2. */
#ifndef SEGLOG_ENCODE_INTERNAL_H
#define SEGLOG_ENCODE_INTERNAL_H

#include <string.h>

#include "seglog/encode_sources.h"
#include "seglog/wire.h"

enum { SLG_VIEW_BYTES = 16, SLG_VIEW_INLINE_MAX = 12 };

/* A value in place; size -1 is null. */
typedef struct slg_value {
    const uint8_t *data;
    int64_t size;
} slg_value;

static const slg_value NONE = {NULL, -1};

static inline bool is_valid(const uint8_t *validity, int64_t index) {
    return validity == NULL || (validity[index >> 3] >> (index & 7) & 1) != 0;
}

static inline int64_t offset_at(const void *offsets, bool is_large, int64_t index) {
    if (is_large) {
        return ((const int64_t *)offsets)[index];
    }
    return ((const int32_t *)offsets)[index];
}

/* [*from, *to) of entry `index`, inside [0, end]. */
static inline bool bounds_of(const void *offsets, bool is_large, int64_t index, int64_t end,
                             int64_t *from, int64_t *to) {
    *from = offset_at(offsets, is_large, index);
    *to = offset_at(offsets, is_large, index + 1);
    return *from >= 0 && *from <= *to && *to <= end;
}

static inline bool view_at(const slg_input_binary *column, int64_t index, slg_value *out) {
    const uint8_t *view = (const uint8_t *)column->offsets + index * SLG_VIEW_BYTES;
    int32_t size, block, at;
    memcpy(&size, view, sizeof size);
    if (size >= 0 && size <= SLG_VIEW_INLINE_MAX) {
        *out = (slg_value){view + 4, size};
        return true;
    }
    memcpy(&block, view + 8, sizeof block);
    memcpy(&at, view + 12, sizeof at);
    if (size < 0 || block < 0 || block >= column->block_count || at < 0 ||
        at > column->block_sizes[block] - size) {
        return false;
    }
    *out = (slg_value){(const uint8_t *)column->blocks[block] + at, size};
    return true;
}

/* False if the column is inconsistent for this row. */
static inline bool value_at(const slg_input_binary *column, int64_t row, slg_value *out) {
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
        *out = (slg_value){column->data == NULL ? NULL : column->data + from, to - from};
        return column->data != NULL || from == to;
    case SLG_INPUT_VIEW: return view_at(column, index, out);
    default: *out = (slg_value){column->data + index * column->width, column->width}; return true;
    }
}

#endif
