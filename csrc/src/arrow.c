#include "seglog/arrow.h"

#include <stdlib.h>

/* ---- schema -------------------------------------------------------------------------------- */

/* Children live in the same block as the array of pointers to them. */
typedef struct schema_node {
    struct ArrowSchema **pointers;
    struct ArrowSchema *children;
} schema_node;

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
    }
    schema_node *node = schema->private_data;
    if (node != NULL) {
        free(node->pointers);
        free(node->children);
        free(node);
    }
    schema->release = NULL;
}

static bool make_schema(struct ArrowSchema *out, const char *format, const char *name,
                        size_t children) {
    *out = (struct ArrowSchema){
        .format = format, .name = name, .flags = ARROW_FLAG_NULLABLE, .release = release_schema};
    if (children == 0) {
        return true;
    }
    schema_node *node = calloc(1, sizeof *node);
    if (node == NULL) {
        out->release = NULL;
        return false;
    }
    node->pointers = calloc(children, sizeof *node->pointers);
    node->children = calloc(children, sizeof *node->children);
    if (node->pointers == NULL || node->children == NULL) {
        free(node->pointers);
        free(node->children);
        free(node);
        out->release = NULL;
        return false;
    }
    for (size_t i = 0; i < children; i++) {
        node->pointers[i] = &node->children[i];
    }
    out->private_data = node;
    out->children = node->pointers;
    out->n_children = (int64_t)children;
    return true;
}

static bool make_headers_schema(slg_layout layout, struct ArrowSchema *list) {
    struct ArrowSchema *item = list->children[0];
    const char *name = layout == SLG_LAYOUT_SPARK ? "element" : "item"; /* as either writes it */
    return make_schema(item, "+s", name, 2) && make_schema(item->children[0], "u", "key", 0) &&
           make_schema(item->children[1], "z", "value", 0);
}

bool slg_export_schema(slg_layout layout, const slg_column *order, size_t count,
                       struct ArrowSchema *out) {
    if (!make_schema(out, "+s", "", count)) {
        return false;
    }
    bool made = true;
    for (size_t i = 0; made && i < count; i++) {
        struct ArrowSchema *child = out->children[i];
        const bool headers = order[i] == SLG_COLUMN_HEADERS;
        made = make_schema(child, slg_column_format(layout, order[i]),
                           slg_column_name(layout, order[i]), headers ? 1 : 0) &&
               (!headers || make_headers_schema(layout, child));
    }
    if (!made) {
        out->release(out);
    }
    return made;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* One per array, children included: a consumer may move a child out and drop the parent first. */
typedef struct array_node {
    slg_columns *columns; /* one reference */
    const void *buffers[3];
    struct ArrowArray **pointers;
    struct ArrowArray *children;
} array_node;

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    array_node *node = array->private_data;
    slg_columns_release(node->columns);
    free(node->pointers);
    free(node->children);
    free(node);
    array->release = NULL;
}

static bool make_array(struct ArrowArray *out, slg_columns *columns, int64_t length,
                       int64_t buffers, size_t children) {
    array_node *node = calloc(1, sizeof *node);
    if (node == NULL) {
        return false;
    }
    if (children > 0) {
        node->pointers = calloc(children, sizeof *node->pointers);
        node->children = calloc(children, sizeof *node->children);
        if (node->pointers == NULL || node->children == NULL) {
            free(node->pointers);
            free(node->children);
            free(node);
            return false;
        }
        for (size_t i = 0; i < children; i++) {
            node->pointers[i] = &node->children[i];
        }
    }
    slg_columns_retain(columns);
    node->columns = columns;
    *out = (struct ArrowArray){
        .length = length,
        .n_buffers = buffers,
        .n_children = (int64_t)children,
        .buffers = node->buffers,
        .children = node->pointers,
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
