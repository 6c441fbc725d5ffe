/*
 * Exports columns through the Arrow C data interface (arrow.apache.org, "The Arrow C data
 * interface"; the structs below are its ABI). An exported array keeps its slg_columns alive until
 * it is released, by any thread. A child may be moved out of its parent and released separately.
 */
#ifndef SEGLOG_ARROW_H
#define SEGLOG_ARROW_H

#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/columns.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

#endif

/* A struct of these columns, all nullable, in the given order. False if out of memory. */
bool slg_export_schema(slg_layout layout, const slg_column *order, size_t count,
                       struct ArrowSchema *out);

/* The rows as a struct array; `columns` wants each of `order`. False if out of memory. */
bool slg_export_columns(slg_columns *columns, const slg_column *order, size_t count,
                        struct ArrowArray *out);

/*
 * Copies batch headers into a struct of columns: the fields of slg_batch, in its order and by its
 * names, timestamps in ms UTC. False if out of memory.
 */
bool slg_export_batch_schema(struct ArrowSchema *out);
bool slg_export_batches(const slg_batch *batches, size_t count, struct ArrowArray *out);

#ifdef __cplusplus
}
#endif
#endif
