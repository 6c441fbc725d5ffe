#include "seglog/arrow.h"

#include <stdlib.h>

/* ---- schema -------------------------------------------------------------------------------- */

/* `private_data` is one block: the children, then the pointers to them. */
static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
    }
    free(schema->private_data);
    schema->release = NULL;
}

static bool make_schema(struct ArrowSchema *out, const char *format, const char *name,
                        int64_t flags, size_t children) {
    struct ArrowSchema *all = NULL;
    struct ArrowSchema **pointers = NULL;
    if (children > 0) {
        all = calloc(children, sizeof *all + sizeof *pointers);
        if (all == NULL) {
            out->release = NULL;
            return false;
        }
        pointers = (struct ArrowSchema **)(void *)(all + children);
        for (size_t i = 0; i < children; i++) {
            pointers[i] = all + i;
        }
    }
    *out = (struct ArrowSchema){.format = format,
                                .name = name,
                                .flags = flags,
                                .n_children = (int64_t)children,
                                .children = pointers,
                                .release = release_schema,
                                .private_data = all};
    return true;
}

static bool make_headers_schema(slg_layout layout, struct ArrowSchema *list) {
    struct ArrowSchema *item = list->children[0];
    const char *name = layout == SLG_LAYOUT_SPARK ? "element" : "item"; /* as either writes it */
    return make_schema(item, "+s", name, ARROW_FLAG_NULLABLE, 2) &&
           make_schema(item->children[0], "u", "key", ARROW_FLAG_NULLABLE, 0) &&
           make_schema(item->children[1], "z", "value", ARROW_FLAG_NULLABLE, 0);
}

bool slg_export_schema(slg_layout layout, const slg_column *order, size_t count,
                       struct ArrowSchema *out) {
    if (!make_schema(out, "+s", "", ARROW_FLAG_NULLABLE, count)) {
        return false;
    }
    bool made = true;
    for (size_t i = 0; made && i < count; i++) {
        struct ArrowSchema *child = out->children[i];
        const bool headers = order[i] == SLG_COLUMN_HEADERS;
        made = make_schema(child, slg_column_format(layout, order[i]),
                           slg_column_name(layout, order[i]), ARROW_FLAG_NULLABLE,
                           headers ? 1 : 0) &&
               (!headers || make_headers_schema(layout, child));
    }
    if (!made) {
        out->release(out);
    }
    return made;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* One per array: a consumer may move a child out and drop the parent first. The children and the
 * pointers to them follow the node. */
typedef struct array_node {
    slg_columns *columns; /* one reference, or NULL */
    void *values;         /* the array's own, or NULL */
    const void *buffers[3];
} array_node;

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    array_node *node = array->private_data;
    if (node->columns != NULL) {
        slg_columns_release(node->columns);
    }
    free(node->values);
    free(node);
    array->release = NULL;
}

static bool make_array(struct ArrowArray *out, slg_columns *columns, int64_t length,
                       int64_t buffers, size_t children) {
    const size_t each = sizeof(struct ArrowArray) + sizeof(struct ArrowArray *);
    array_node *node = calloc(1, sizeof *node + children * each);
    if (node == NULL) {
        return false;
    }
    struct ArrowArray *all = (struct ArrowArray *)(void *)(node + 1);
    struct ArrowArray **pointers = (struct ArrowArray **)(void *)(all + children);
    for (size_t i = 0; i < children; i++) {
        pointers[i] = all + i;
    }
    if (columns != NULL) {
        slg_columns_retain(columns);
    }
    node->columns = columns;
    *out = (struct ArrowArray){
        .length = length,
        .n_buffers = buffers,
        .n_children = (int64_t)children,
        .buffers = node->buffers,
        .children = children > 0 ? pointers : NULL,
        .release = release_array,
        .private_data = node,
    };
    return true;
}

static bool export_fixed(slg_columns *columns, const slg_buffer *values, struct ArrowArray *out) {
    if (!make_array(out, columns, columns->rows, 2, 0)) {
        return false;
    }
    out->buffers[1] = values->data;
    return true;
}

static bool export_binary(slg_columns *columns, const slg_binary *binary, int64_t length,
                          struct ArrowArray *out) {
    if (!make_array(out, columns, length, 3, 0)) {
        return false;
    }
    out->null_count = binary->null_count;
    out->buffers[0] = binary->null_count > 0 ? binary->validity.data : NULL;
    out->buffers[1] = binary->offsets.data;
    out->buffers[2] = binary->bytes.data;
    return true;
}

static bool export_headers(slg_columns *columns, struct ArrowArray *out) {
    if (!make_array(out, columns, columns->rows, 2, 1)) {
        return false;
    }
    out->null_count = columns->header_nulls;
    out->buffers[0] = columns->header_nulls > 0 ? columns->header_validity.data : NULL;
    out->buffers[1] = columns->header_lists.data;
    struct ArrowArray *item = out->children[0];
    return make_array(item, columns, columns->headers, 1, 2) &&
           export_binary(columns, &columns->header_key, columns->headers, item->children[0]) &&
           export_binary(columns, &columns->header_value, columns->headers, item->children[1]);
}

static bool export_column(slg_columns *columns, slg_column column, struct ArrowArray *out) {
    switch (column) {
    case SLG_COLUMN_KEY: return export_binary(columns, &columns->key, columns->rows, out);
    case SLG_COLUMN_VALUE: return export_binary(columns, &columns->value, columns->rows, out);
    case SLG_COLUMN_HEADERS: return export_headers(columns, out);
    case SLG_COLUMN_TOPIC: return export_binary(columns, &columns->topic, columns->rows, out);
    case SLG_COLUMN_PARTITION: return export_fixed(columns, &columns->partition, out);
    default: return export_fixed(columns, &columns->fixed[column], out);
    }
}

bool slg_export_columns(slg_columns *columns, const slg_column *order, size_t count,
                        struct ArrowArray *out) {
    if (!make_array(out, columns, columns->rows, 1, count)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!export_column(columns, order[i], out->children[i])) {
            out->release(out);
            return false;
        }
    }
    return true;
}

/* ---- headers of batches -------------------------------------------------------------------- */

typedef struct batch_field {
    const char *name;
    const char *format;
    size_t at;    /* in slg_batch */
    size_t width; /* bytes */
} batch_field;

#define FIELD(field, format) \
    {#field, format, offsetof(slg_batch, field), sizeof(((slg_batch *)0)->field)}

static const batch_field FIELDS[] = {
    FIELD(base_offset, "l"),
    FIELD(last_offset, "l"),
    FIELD(base_timestamp, "tsm:UTC"),
    FIELD(max_timestamp, "tsm:UTC"),
    FIELD(producer_id, "l"),
    FIELD(position, "l"),
    FIELD(size, "i"),
    FIELD(partition_leader_epoch, "i"),
    FIELD(base_sequence, "i"),
    FIELD(record_count, "i"),
    FIELD(crc, "I"),
    FIELD(attributes, "s"),
    FIELD(producer_epoch, "s"),
    FIELD(magic, "c"),
};

enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0] };

bool slg_export_batch_schema(struct ArrowSchema *out) {
    if (!make_schema(out, "+s", "", 0, FIELD_COUNT)) {
        return false;
    }
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        (void)make_schema(out->children[i], FIELDS[i].format, FIELDS[i].name, 0, 0);
    }
    return true;
}

/* Copies one field of all batches. */
static bool export_field(const batch_field *field, const slg_batch *batches, size_t count,
                         struct ArrowArray *out) {
    if (!make_array(out, NULL, (int64_t)count, 2, 0)) {
        return false;
    }
    array_node *node = out->private_data;
    uint8_t *values = malloc(count * field->width + 1);
    node->buffers[1] = node->values = values;
    for (size_t i = 0; values != NULL && i < count; i++) {
        memcpy(values + i * field->width, (const uint8_t *)(batches + i) + field->at, field->width);
    }
    return values != NULL;
}

bool slg_export_batches(const slg_batch *batches, size_t count, struct ArrowArray *out) {
    if (!make_array(out, NULL, (int64_t)count, 1, FIELD_COUNT)) {
        return false;
    }
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        if (!export_field(&FIELDS[i], batches, count, out->children[i])) {
            out->release(out);
            return false;
        }
    }
    return true;
}
