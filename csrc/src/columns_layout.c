/* The names and types of columns, and the completion of a set. */
#include "seglog/columns.h"

/* ---- the layouts --------------------------------------------------------------------------- */

typedef struct column_kind {
    const char *name;
    const char *format; /* of the Arrow C data interface */
    uint8_t width;
} column_kind;

static const column_kind KINDS[SLG_COLUMNS_ALL] = {
    [SLG_COLUMN_OFFSET] = {"offset", "l", 8},
    [SLG_COLUMN_TIMESTAMP] = {"timestamp", "tsm:UTC", 8},
    [SLG_COLUMN_TIMESTAMP_TYPE] = {"timestamp_type", "c", 1},
    [SLG_COLUMN_KEY] = {"key", "z", 0},
    [SLG_COLUMN_VALUE] = {"value", "z", 0},
    [SLG_COLUMN_HEADERS] = {"headers", "+l", 0},
    [SLG_COLUMN_PRODUCER_ID] = {"producer_id", "l", 8},
    [SLG_COLUMN_PRODUCER_EPOCH] = {"producer_epoch", "s", 2},
    [SLG_COLUMN_SEQUENCE] = {"sequence", "i", 4},
    [SLG_COLUMN_LEADER_EPOCH] = {"partition_leader_epoch", "i", 4},
    [SLG_COLUMN_IS_TRANSACTIONAL] = {"is_transactional", "b", 0},
    [SLG_COLUMN_IS_CONTROL] = {"is_control", "b", 0},
    [SLG_COLUMN_POSITION] = {"position", "l", 8},
    [SLG_COLUMN_TOPIC] = {"topic", "u", 0},
    [SLG_COLUMN_PARTITION] = {"partition", "i", 4},
};

/* KafkaRecordToRowConverter.schema, where it differs. */
static const column_kind SPARK_TIMESTAMP = {"timestamp", "tsu:UTC", 8};
static const column_kind SPARK_TIMESTAMP_TYPE = {"timestampType", "i", 4};

static const column_kind *kind_of(slg_layout layout, slg_column column) {
    if (layout == SLG_LAYOUT_SPARK) {
        if (column == SLG_COLUMN_TIMESTAMP) {
            return &SPARK_TIMESTAMP;
        }
        if (column == SLG_COLUMN_TIMESTAMP_TYPE) {
            return &SPARK_TIMESTAMP_TYPE;
        }
    }
    return &KINDS[column];
}

const char *slg_column_name(slg_layout layout, slg_column column) {
    return kind_of(layout, column)->name;
}

const char *slg_column_format(slg_layout layout, slg_column column) {
    return kind_of(layout, column)->format;
}

size_t slg_column_width(slg_layout layout, slg_column column) {
    return kind_of(layout, column)->width;
}

/* ---- the partition of rows ----------------------------------------------------------------- */

/* Whether the buffers already hold this topic: sets are often reused for one partition. */
static bool has_topic(const slg_columns *columns, const char *topic, size_t size) {
    if (columns->topic_rows < columns->rows || columns->topic.offsets.data == NULL) {
        return false;
    }
    const int32_t *offsets = (const int32_t *)(const void *)columns->topic.offsets.data;
    return columns->topic_rows == 0 ||
           ((size_t)offsets[1] == size && memcmp(columns->topic.bytes.data, topic, size) == 0);
}

static bool mark_topic(slg_columns *columns, const char *topic, size_t size) {
    const size_t rows = (size_t)columns->rows;
    slg_binary *out = &columns->topic;
    if (size > 0 && rows > INT32_MAX / size) {
        return false;
    }
    out->used = (int64_t)(rows * size);
    if (has_topic(columns, topic, size)) {
        return true;
    }
    columns->topic_rows = 0;
    if (!slg_buffer_reserve(&out->offsets, 0, (rows + 1) * sizeof(int32_t)) ||
        !slg_buffer_reserve(&out->bytes, 0, rows * size)) {
        return false;
    }
    int32_t *offsets = (int32_t *)(void *)out->offsets.data;
    for (size_t i = 0; i <= rows; i++) {
        offsets[i] = (int32_t)(i * size);
    }
    /* Each copy doubles what is there. */
    size_t filled = rows > 0 ? size : 0;
    memcpy(out->bytes.data, topic, filled);
    while (filled < rows * size) {
        const size_t left = rows * size - filled;
        const size_t more = filled < left ? filled : left;
        memcpy(out->bytes.data + filled, out->bytes.data, more);
        filled += more;
    }
    columns->topic_rows = columns->rows;
    return true;
}

static bool mark_partition(slg_columns *columns, int32_t partition) {
    const int32_t *held = (const int32_t *)(const void *)columns->partition.data;
    if (held != NULL && columns->partition_rows >= columns->rows &&
        (columns->rows == 0 || held[0] == partition)) {
        return true;
    }
    columns->partition_rows = 0;
    if (!slg_buffer_reserve(&columns->partition, 0, (size_t)columns->rows * sizeof(int32_t))) {
        return false;
    }
    int32_t *out = (int32_t *)(void *)columns->partition.data;
    for (int64_t i = 0; i < columns->rows; i++) {
        out[i] = partition;
    }
    columns->partition_rows = columns->rows;
    return true;
}

/* Spark's source has a null if a record has no headers. */
static bool mark_empty_headers(slg_columns *columns) {
    const int32_t *ends = (const int32_t *)(const void *)columns->header_lists.data;
    const int64_t rows = columns->rows;
    if (!slg_buffer_reserve(&columns->header_validity, 0, (size_t)(rows + 7) / 8)) {
        return false;
    }
    uint8_t *bits = columns->header_validity.data;
    int64_t nulls = 0;
    for (int64_t row = 0; row < rows; row += 8) {
        const int64_t here = rows - row < 8 ? rows - row : 8;
        unsigned byte = 0;
        for (int64_t i = 0; i < here; i++) {
            const unsigned valid = ends[row + i + 1] != ends[row + i];
            byte |= valid << i;
            nulls += !valid;
        }
        bits[row >> 3] = (uint8_t)byte;
    }
    columns->header_nulls = nulls;
    return true;
}

bool slg_columns_finish(slg_columns *columns, const slg_shape *shape) {
    const uint32_t with_topic = shape->wanted & 1U << SLG_COLUMN_TOPIC;
    const uint32_t with_partition = shape->wanted & 1U << SLG_COLUMN_PARTITION;
    if ((with_topic != 0 && !mark_topic(columns, shape->topic, shape->topic_size)) ||
        (with_partition != 0 && !mark_partition(columns, shape->partition))) {
        return false;
    }
    columns->wanted |= with_topic | with_partition;
    return columns->layout != SLG_LAYOUT_SPARK || columns->rows == 0 ||
           !slg_columns_want(columns, SLG_COLUMN_HEADERS) || mark_empty_headers(columns);
}
