#include <string.h>

#include "seglog/encode_sources.h"

slg_input_column slg_input_named(const char *name) {
    static const char *const NAMES[] = {"key", "value", "timestamp", "headers"};
    for (unsigned i = 0; name != NULL && i < SLG_INPUT_OTHER; i++) {
        if (strcmp(name, NAMES[i]) == 0) {
            return (slg_input_column)i;
        }
    }
    return SLG_INPUT_OTHER;
}

static slg_status wrong_type(slg_error *error) { return slg_fail(error, SLG_ARROW_TYPE, 0, 0, 0); }

static slg_status wrong_layout(slg_error *error, int64_t expected, int64_t found) {
    return slg_fail(error, SLG_ARROW_LAYOUT, 0, expected, found);
}

/* Checks that rows [first, first + rows) and this number of buffers exist. */
static slg_status check_array(const struct ArrowArray *array, int64_t first, int64_t rows,
                              int64_t buffers, slg_error *error) {
    if (array->dictionary != NULL) {
        return wrong_type(error);
    }
    if (array->offset < 0 || array->length < 0 || first < 0 || rows > array->length - first ||
        array->offset > INT64_MAX / 16 - array->length) {
        return wrong_layout(error, rows, array->length);
    }
    if (array->n_buffers < buffers) {
        return wrong_layout(error, buffers, array->n_buffers);
    }
    return SLG_OK;
}

static const uint8_t *validity_of(const struct ArrowArray *array) {
    return array->null_count == 0 || array->n_buffers == 0 ? NULL : array->buffers[0];
}

/* ---- byte strings -------------------------------------------------------------------------- */

static bool kind_of(const char *format, slg_input_kind *kind, int64_t *width) {
    *width = 0;
    if (strcmp(format, "n") == 0) {
        *kind = SLG_INPUT_NULLS;
    } else if (strcmp(format, "z") == 0 || strcmp(format, "u") == 0) {
        *kind = SLG_INPUT_BINARY;
    } else if (strcmp(format, "Z") == 0 || strcmp(format, "U") == 0) {
        *kind = SLG_INPUT_LARGE;
    } else if (strcmp(format, "vz") == 0 || strcmp(format, "vu") == 0) {
        *kind = SLG_INPUT_VIEW;
    } else if (strncmp(format, "w:", 2) == 0) {
        *kind = SLG_INPUT_FIXED;
        for (const char *digit = format + 2; *digit != '\0'; digit++) {
            if (*digit < '0' || *digit > '9' || *width > INT32_MAX) {
                return false;
            }
            *width = *width * 10 + (*digit - '0');
        }
        return *width <= INT32_MAX && format[2] != '\0';
    } else {
        return false;
    }
    return true;
}

/* The last offset of the rows, against which each row is checked. */
static slg_status end_of(const struct ArrowArray *array, int64_t index, bool is_large, int64_t *end,
                         slg_error *error) {
    const void *offsets = array->buffers[1];
    if (offsets == NULL) {
        return wrong_layout(error, 1, 0);
    }
    *end = is_large ? ((const int64_t *)offsets)[index] : ((const int32_t *)offsets)[index];
    return *end < 0 ? wrong_layout(error, 0, *end) : SLG_OK;
}

static slg_status binary_of(slg_input_binary *out, const struct ArrowSchema *schema,
                            const struct ArrowArray *array, int64_t first, int64_t rows,
                            slg_error *error) {
    static const int64_t BUFFERS[] = {0, 3, 3, 3, 2};
    slg_input_binary column = {.first = 0};
    if (!kind_of(schema->format, &column.kind, &column.width)) {
        return wrong_type(error);
    }
    slg_status status = check_array(array, first, rows, BUFFERS[column.kind], error);
    if (status != SLG_OK) {
        return status;
    }
    column.first = array->offset + first;
    column.validity = validity_of(array);
    if (rows == 0) {
        column.kind = SLG_INPUT_NULLS; /* Empty arrays may have no buffers at all. */
    }
    switch (column.kind) {
    case SLG_INPUT_BINARY:
    case SLG_INPUT_LARGE:
        column.offsets = array->buffers[1];
        column.data = array->buffers[2];
        status =
            end_of(array, column.first + rows, column.kind == SLG_INPUT_LARGE, &column.end, error);
        break;
    case SLG_INPUT_VIEW:
        column.offsets = array->buffers[1];
        column.blocks = (const void *const *)array->buffers + 2;
        column.block_count = array->n_buffers - 3;
        column.block_sizes = array->buffers[array->n_buffers - 1];
        status = column.offsets == NULL || (column.block_count > 0 && column.block_sizes == NULL)
                     ? wrong_layout(error, 1, 0)
                     : SLG_OK;
        break;
    case SLG_INPUT_FIXED:
        column.data = array->buffers[1];
        if (column.width == 0) {
            column.data = (const uint8_t *)""; /* Arithmetic on NULL is undefined. */
        }
        status = column.data == NULL ? wrong_layout(error, 1, 0) : SLG_OK;
        break;
    default: break;
    }
    *out = column;
    return status;
}

/* ---- timestamps ---------------------------------------------------------------------------- */

static slg_status times_of(slg_input_times *out, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, int64_t first, int64_t rows,
                           slg_error *error) {
    const char *format = schema->format;
    slg_input_times times = {.multiply = 1, .divide = 1};
    if (strcmp(format, "n") == 0) {
        *out = times;
        return check_array(array, first, rows, 0, error);
    }
    if (strcmp(format, "l") != 0 && strcmp(format, "tdm") != 0 && strncmp(format, "tsm:", 4) != 0) {
        if (strncmp(format, "tss:", 4) == 0) {
            times.multiply = 1000;
        } else if (strncmp(format, "tsu:", 4) == 0) {
            times.divide = 1000;
        } else if (strncmp(format, "tsn:", 4) == 0) {
            times.divide = 1000000;
        } else {
            return wrong_type(error);
        }
    }
    const slg_status status = check_array(array, first, rows, 2, error);
    if (status != SLG_OK) {
        return status;
    }
    if (array->buffers[1] == NULL && rows > 0) {
        return wrong_layout(error, 1, 0);
    }
    times.first = array->offset + first;
    times.validity = validity_of(array);
    times.data = rows > 0 ? array->buffers[1] : NULL;
    *out = times;
    return SLG_OK;
}

/* ---- headers ------------------------------------------------------------------------------- */

static bool is_named(const struct ArrowSchema *schema, const char *name) {
    return schema->name != NULL && strcmp(schema->name, name) == 0;
}

/* Which child is the key: by name in a list of structs, by position in a map. */
static bool key_child(const struct ArrowSchema *item, bool is_map, unsigned *key) {
    *key = 0;
    if (strcmp(item->format, "+s") != 0 || item->n_children != 2) {
        return false;
    }
    *key = !is_map && is_named(item->children[1], "key");
    return is_map ||
           (is_named(item->children[*key], "key") && is_named(item->children[1U - *key], "value"));
}

static slg_status items_of(slg_input_headers *headers, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, bool is_map, slg_error *error) {
    unsigned key;
    if (!key_child(schema, is_map, &key)) {
        return wrong_type(error);
    }
    slg_status status = check_array(array, 0, headers->end, 1, error);
    if (status != SLG_OK) {
        return status;
    }
    if (array->n_children != 2) {
        return wrong_layout(error, 2, array->n_children);
    }
    headers->item_first = array->offset;
    headers->item_validity = validity_of(array);
    status = binary_of(&headers->key, schema->children[key], array->children[key], array->offset,
                       headers->end, error);
    if (status == SLG_OK) {
        status = binary_of(&headers->value, schema->children[1U - key], array->children[1U - key],
                           array->offset, headers->end, error);
    }
    return status;
}

static slg_status headers_of(slg_input_headers *out, const struct ArrowSchema *schema,
                             const struct ArrowArray *array, int64_t first, int64_t rows,
                             slg_error *error) {
    const bool is_map = strcmp(schema->format, "+m") == 0;
    slg_input_headers headers = {.is_large = strcmp(schema->format, "+L") == 0};
    if (strcmp(schema->format, "n") == 0) {
        *out = headers;
        return check_array(array, first, rows, 0, error);
    }
    if (!is_map && !headers.is_large && strcmp(schema->format, "+l") != 0) {
        return wrong_type(error);
    }
    slg_status status = check_array(array, first, rows, 2, error);
    if (status != SLG_OK) {
        return status;
    }
    if (schema->n_children != 1 || array->n_children != 1) {
        return wrong_layout(error, 1, array->n_children);
    }
    headers.first = array->offset + first;
    headers.validity = validity_of(array);
    if (rows > 0) {
        headers.offsets = array->buffers[1];
        status = end_of(array, headers.first + rows, headers.is_large, &headers.end, error);
    }
    if (status == SLG_OK) {
        status = items_of(&headers, schema->children[0], array->children[0], is_map, error);
    }
    *out = headers;
    return status;
}

slg_status slg_input_arrow(slg_input *input, slg_input_column column,
                           const struct ArrowSchema *schema, const struct ArrowArray *array,
                           int64_t first, slg_error *error) {
    const int64_t rows = input->selection == NULL ? input->rows : input->selectable;
    if (schema->dictionary != NULL) {
        return wrong_type(error);
    }
    switch (column) {
    case SLG_INPUT_KEY: return binary_of(&input->key, schema, array, first, rows, error);
    case SLG_INPUT_VALUE: return binary_of(&input->value, schema, array, first, rows, error);
    case SLG_INPUT_TIMESTAMP: return times_of(&input->timestamp, schema, array, first, rows, error);
    case SLG_INPUT_HEADERS: return headers_of(&input->headers, schema, array, first, rows, error);
    default: return wrong_type(error);
    }
}
