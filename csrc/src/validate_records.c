#include "seglog/validate.h"

#include <string.h>

#include "seglog/format.h"
#include "seglog/utf8.h"

void slg_record_walk_init(slg_record_walk *walk, const slg_batch *batch, const uint8_t *records,
                          size_t size, slg_record_source source, const slg_record_rules *rules) {
    memset(walk, 0, sizeof *walk);
    walk->bytes = slg_cursor_of(records, size);
    walk->source = source;
    walk->base_offset = batch->base_offset;
    walk->base_timestamp = batch->base_timestamp;
    walk->append_time = batch->max_timestamp;
    walk->has_append_time = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
    walk->count = batch->record_count;
    walk->rules = rules;
    walk->max_timestamp = -1;
    walk->is_sequential = true;
}

static slg_refusal refuse_record(slg_record_walk *walk, slg_refusal refusal, int64_t a, int64_t b) {
    walk->a = a;
    walk->b = b;
    return refusal;
}

/*
 * The length of a record. A buffer that ends inside it is another refusal than a varint without an
 * end; a stream gives 0xff behind its end, so that there both are one.
 */
static slg_refusal read_length(slg_record_walk *walk, int32_t *length) {
    if (slg_read_varint(&walk->bytes, length)) {
        return SLG_ACCEPTED;
    }
    if (walk->source != SLG_RECORDS_BUFFER ||
        slg_cursor_left(&walk->bytes) < SLG_VARINT_SIZE_MAX) {
        return SLG_REFUSE_PREMATURE_END;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < SLG_VARINT_SIZE_MAX; i++) {
        value |= (uint64_t)(walk->bytes.pos[i] & (i < 4 ? 0x7fU : 0xffU)) << (7U * i);
    }
    return refuse_record(walk, SLG_REFUSE_VARINT, (int64_t)(uint32_t)value, 0);
}

/* A key, a value: null when negative. Jumping over bytes that are not there has its own words. */
static inline slg_refusal read_bytes(slg_record_walk *walk, slg_cursor *bytes, int32_t *size,
                                     const uint8_t **data) {
    *data = NULL;
    if (!slg_read_varint(bytes, size)) {
        return SLG_REFUSE_STRUCTURE;
    }
    if (*size > 0) {
        if (!slg_take(bytes, *size, data)) {
            return walk->source == SLG_RECORDS_SKIP
                       ? refuse_record(walk, SLG_REFUSE_SKIP,
                                       *size - (int64_t)slg_cursor_left(bytes), 0)
                       : SLG_REFUSE_STRUCTURE;
        }
    } else if (*size == 0) {
        *data = bytes->pos;
    }
    return SLG_ACCEPTED;
}

static slg_refusal read_headers(slg_record_walk *walk, slg_cursor *bytes) {
    slg_record *record = &walk->record;
    if (!slg_read_varint(bytes, &record->header_count)) {
        return SLG_REFUSE_STRUCTURE;
    }
    record->headers = *bytes;
    if (record->header_count == 0) {
        return SLG_ACCEPTED;
    }
    if (record->header_count < 0) {
        return refuse_record(walk, SLG_REFUSE_HEADER_COUNT, record->header_count, 0);
    }
    if (walk->source != SLG_RECORDS_SKIP &&
        (size_t)record->header_count > slg_cursor_left(bytes)) {
        return refuse_record(walk, SLG_REFUSE_HEADERS_LEFT, record->header_count, 0);
    }
    for (int32_t i = 0; i < record->header_count; i++) {
        int32_t size;
        const uint8_t *data;
        const slg_cursor before = *bytes;
        if (!slg_read_varint(bytes, &size)) {
            return SLG_REFUSE_STRUCTURE;
        }
        if (size < 0) {
            return refuse_record(walk, SLG_REFUSE_HEADER_KEY, size, 0);
        }
        *bytes = before;
        slg_refusal refusal = read_bytes(walk, bytes, &size, &data);
        if (refusal == SLG_ACCEPTED) {
            refusal = read_bytes(walk, bytes, &size, &data);
        }
        if (refusal != SLG_ACCEPTED) {
            return refusal;
        }
    }
    record->headers.end = bytes->pos;
    return SLG_ACCEPTED;
}

/* The fields behind the length, from bytes that end where Kafka's reader of them would. */
static slg_refusal read_fields(slg_record_walk *walk, slg_cursor *bytes) {
    slg_record *record = &walk->record;
    int64_t timestamp_delta;
    int8_t attributes;
    if (!slg_read_i8(bytes, &attributes) || !slg_read_varlong(bytes, &timestamp_delta) ||
        !slg_read_varint(bytes, &record->offset_delta)) {
        return SLG_REFUSE_STRUCTURE;
    }
    record->timestamp = walk->has_append_time
                            ? walk->append_time
                            : slg_wrapping_add(walk->base_timestamp, timestamp_delta);
    record->offset = slg_wrapping_add(walk->base_offset, record->offset_delta);
    slg_refusal refusal = read_bytes(walk, bytes, &record->key_size, &record->key);
    if (refusal == SLG_ACCEPTED) {
        refusal = read_bytes(walk, bytes, &record->value_size, &record->value);
    }
    return refusal == SLG_ACCEPTED ? read_headers(walk, bytes) : refusal;
}

static slg_refusal read_record(slg_record_walk *walk) {
    int32_t length;
    const slg_refusal refusal = read_length(walk, &length);
    if (refusal != SLG_ACCEPTED) {
        return refusal;
    }
    if (walk->source == SLG_RECORDS_SKIP) {
        /* Kafka does not hold the length against what it jumps over. */
        return read_fields(walk, &walk->bytes);
    }
    const int64_t left = (int64_t)slg_cursor_left(&walk->bytes);
    slg_cursor body = {walk->bytes.pos, walk->bytes.pos, walk->bytes.end};
    if (walk->source == SLG_RECORDS_STREAM) {
        if (length < 0) {
            return SLG_REFUSE_PREMATURE_END;
        }
        if (length > left) {
            return refuse_record(walk, SLG_REFUSE_BODY_END, length, 0);
        }
        body.end = body.begin + length;
    } else if (length > left) {
        return refuse_record(walk, SLG_REFUSE_BODY, length, left);
    }
    const slg_refusal fields = read_fields(walk, &body);
    if (fields != SLG_ACCEPTED) {
        return fields;
    }
    const int64_t read = (int64_t)slg_cursor_read(&body);
    if (read != length) {
        return refuse_record(walk, SLG_REFUSE_BODY_SIZE, length, read);
    }
    walk->bytes.pos = body.pos;
    return SLG_ACCEPTED;
}

static inline slg_refusal check_rules(const slg_record_walk *walk) {
    const slg_record_rules *rules = walk->rules;
    const slg_record *record = &walk->record;
    if (rules->needs_key && record->key_size < 0) {
        return SLG_REFUSE_NO_KEY;
    }
    if (rules->has_create_time && record->timestamp != -1) {
        const int64_t age = (int64_t)((uint64_t)rules->now - (uint64_t)record->timestamp);
        if (age > rules->before_max || (int64_t)(0U - (uint64_t)age) > rules->after_max) {
            return SLG_REFUSE_TIMESTAMP;
        }
    } else if (walk->has_append_time) {
        return SLG_REFUSE_TIMESTAMP_TYPE;
    }
    return SLG_ACCEPTED;
}

slg_refusal slg_record_next(slg_record_walk *walk) {
    if (walk->count < 0) {
        return refuse_record(walk, SLG_REFUSE_RECORD_COUNT, walk->count, 0);
    }
    if (walk->index >= walk->count) {
        return SLG_NO_MORE;
    }
    const slg_refusal refusal = read_record(walk);
    if (refusal != SLG_ACCEPTED) {
        return refusal;
    }
    if (walk->record.offset != walk->index) {
        walk->is_sequential = false;
    }
    walk->index++;
    if (walk->index == walk->count && slg_cursor_left(&walk->bytes) != 0) {
        return SLG_REFUSE_BYTES_LEFT;
    }
    if (walk->record.timestamp > walk->max_timestamp) {
        walk->max_timestamp = walk->record.timestamp;
    }
    return walk->rules == NULL ? SLG_ACCEPTED : check_rules(walk);
}

/* A varint of one or two bytes at *p, where two exist. */
static inline bool read_short(const uint8_t **p, int32_t *out) {
    uint32_t value = (*p)[0];
    size_t size = 1;
    if (value >= 0x80U) {
        if ((*p)[1] >= 0x80U) {
            return false;
        }
        value = (value & 0x7fU) | (uint32_t)(*p)[1] << 7;
        size = 2;
    }
    *p += size;
    *out = slg_zigzag32(value);
    return true;
}

/* What one record is to the walk, when nothing is odd about it. */
typedef struct plain_record {
    const uint8_t *end;
    int64_t timestamp;
    int32_t offset_delta;
    int32_t key_size;
} plain_record;

/* Before it a length, attributes, deltas and sizes of two bytes, and a timestamp of ten. */
enum { PLAIN_BYTES_MIN = 24 };

/*
 * Reads the record at `p` if it is like nearly all: short numbers, no headers, and sizes that add
 * up. False says nothing, not even that it is wrong.
 */
static inline bool read_plain(const uint8_t *p, const uint8_t *end, int64_t base_timestamp,
                              plain_record *record) {
    int32_t length, value_size;
    if (end - p < PLAIN_BYTES_MIN || !read_short(&p, &length) || length < 0 || length > end - p) {
        return false;
    }
    record->end = p + length;
    p++; /* attributes */
    uint64_t delta = *p;
    const unsigned size = delta < 0x80U ? 1U : slg_varint_word(p, &delta);
    p += size;
    if (size == 0 || !read_short(&p, &record->offset_delta) ||
        !read_short(&p, &record->key_size)) {
        return false;
    }
    record->timestamp = slg_wrapping_add(base_timestamp, slg_zigzag64(delta));
    const int32_t key_bytes = record->key_size > 0 ? record->key_size : 0;
    if (record->end - p < (ptrdiff_t)key_bytes + 3) {
        return false;
    }
    p += key_bytes;
    if (!read_short(&p, &value_size)) {
        return false;
    }
    const int32_t value_bytes = value_size > 0 ? value_size : 0;
    return record->end - p == (ptrdiff_t)value_bytes + 1 && p[value_bytes] == 0;
}

/* Passes the records at the cursor that are plain and good. */
static void run_plain(slg_record_walk *walk) {
    static const slg_record_rules none = {false, false, 0, 0, 0};
    const slg_record_rules rules = walk->rules == NULL ? none : *walk->rules;
    const uint8_t *pos = walk->bytes.pos, *const end = walk->bytes.end;
    int64_t max_timestamp = walk->max_timestamp;
    int32_t index = walk->index;
    bool is_sequential = walk->is_sequential;
    plain_record record;
    /* The last one is for whoever knows what may be behind it. */
    while (index < walk->count - 1 && read_plain(pos, end, walk->base_timestamp, &record)) {
        if (rules.needs_key && record.key_size < 0) {
            break;
        }
        if (rules.has_create_time && record.timestamp != -1) {
            const int64_t age = (int64_t)((uint64_t)rules.now - (uint64_t)record.timestamp);
            if (age > rules.before_max || (int64_t)(0U - (uint64_t)age) > rules.after_max) {
                break;
            }
        }
        is_sequential =
            is_sequential && slg_wrapping_add(walk->base_offset, record.offset_delta) == index;
        max_timestamp = record.timestamp > max_timestamp ? record.timestamp : max_timestamp;
        pos = record.end;
        index++;
    }
    walk->bytes.pos = pos;
    walk->max_timestamp = max_timestamp;
    walk->index = index;
    walk->is_sequential = is_sequential;
}

slg_refusal slg_record_walk_run(slg_record_walk *walk) {
    slg_refusal refusal;
    do {
        if (!walk->has_append_time) {
            run_plain(walk);
        }
        refusal = slg_record_next(walk);
    } while (refusal == SLG_ACCEPTED);
    return refusal;
}

size_t slg_headers_rewrite(const slg_record *record, uint8_t *into) {
    slg_cursor bytes = record->headers;
    uint8_t *to = into;
    for (int32_t i = 0; i < record->header_count; i++) {
        int32_t size = 0;
        const uint8_t *data = NULL;
        /* The walk has read them once: nothing here can be missing. */
        if (!slg_read_varint(&bytes, &size) || !slg_take(&bytes, size, &data)) {
            break;
        }
        /* The length comes first and is known last: the key waits behind the longest of lengths. */
        const size_t key_size =
            slg_utf8_replace(data, (size_t)size, to + SLG_VARINT_SIZE_MAX);
        uint8_t *key = slg_put_varint(to, (int32_t)key_size);
        memmove(key, to + SLG_VARINT_SIZE_MAX, key_size);
        to = key + key_size;
        if (!slg_read_varint(&bytes, &size) || (size > 0 && !slg_take(&bytes, size, &data))) {
            break;
        }
        to = slg_put_varint(to, size < 0 ? -1 : size);
        if (size > 0) {
            memcpy(to, data, (size_t)size);
            to += size;
        }
    }
    return (size_t)(to - into);
}
