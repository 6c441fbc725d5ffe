/* Exports batch headers as Arrow columns: a copy of a few bytes per batch. */
#include <stdlib.h>

#include "seglog/arrow.h"

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

/* ---- schema -------------------------------------------------------------------------------- */

typedef struct schema_block {
    struct ArrowSchema *pointers[FIELD_COUNT];
    struct ArrowSchema children[FIELD_COUNT];
} schema_block;

static void release_child_schema(struct ArrowSchema *schema) { schema->release = NULL; }

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release != NULL) {
            schema->children[i]->release(schema->children[i]);
        }
    }
    free(schema->private_data);
    schema->release = NULL;
}

bool slg_export_batch_schema(struct ArrowSchema *out) {
    schema_block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return false;
    }
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        block->children[i] = (struct ArrowSchema){
            .format = FIELDS[i].format, .name = FIELDS[i].name, .release = release_child_schema};
        block->pointers[i] = &block->children[i];
    }
    *out = (struct ArrowSchema){.format = "+s",
                                .name = "",
                                .n_children = FIELD_COUNT,
                                .children = block->pointers,
                                .release = release_schema,
                                .private_data = block};
    return true;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* A child owns its values: a consumer may move it out and drop the parent first. */
typedef struct array_block {
    const void *no_buffer;
    struct ArrowArray *pointers[FIELD_COUNT];
    struct ArrowArray children[FIELD_COUNT];
} array_block;

typedef struct child_block {
    const void *buffers[2]; /* no validity, then the values after this struct */
} child_block;

enum { VALUES_AT = 64 };

static void release_child(struct ArrowArray *array) {
    free(array->private_data);
    array->release = NULL;
}

static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release != NULL) {
            array->children[i]->release(array->children[i]);
        }
    }
    free(array->private_data);
    array->release = NULL;
}

static bool export_field(const batch_field *field, const slg_batch *batches, size_t count,
                         struct ArrowArray *out) {
    void *memory = malloc(VALUES_AT + count * field->width);
    if (memory == NULL) {
        return false;
    }
    child_block *block = memory;
    uint8_t *values = (uint8_t *)memory + VALUES_AT;
    *block = (child_block){{NULL, values}};
    for (size_t i = 0; i < count; i++) {
        memcpy(values + i * field->width, (const uint8_t *)(batches + i) + field->at, field->width);
    }
    *out = (struct ArrowArray){.length = (int64_t)count,
                               .n_buffers = 2,
                               .buffers = block->buffers,
                               .release = release_child,
                               .private_data = memory};
    return true;
}

bool slg_export_batches(const slg_batch *batches, size_t count, struct ArrowArray *out) {
    array_block *block = calloc(1, sizeof *block);
    if (block == NULL) {
        return false;
    }
    *out = (struct ArrowArray){.length = (int64_t)count,
                               .n_buffers = 1,
                               .n_children = FIELD_COUNT,
                               .buffers = &block->no_buffer,
                               .children = block->pointers,
                               .release = release_array,
                               .private_data = block};
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        block->pointers[i] = &block->children[i];
    }
    for (unsigned i = 0; i < FIELD_COUNT; i++) {
        if (!export_field(&FIELDS[i], batches, count, &block->children[i])) {
            release_array(out);
            return false;
        }
    }
    return true;
}
