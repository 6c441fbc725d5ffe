#include "seglog/validate.h"

#include <string.h>

#include "entry.h"
#include "record_fields.h"
#include "seglog/utf8.h"

_Static_assert((int)SLG_WALK_SLACK == (int)SLG_PEEK_SLACK, "what a peek may read");

void slg_record_walk_init(slg_record_walk *walk, const slg_batch *batch, const uint8_t *records,
                          size_t size, slg_record_source source, const slg_record_rules *rules) {
    /* Not by memset: its string instruction takes as long as all checks of a small record. */
    walk->bytes = slg_cursor_of(records, size);
    walk->source = source;
    walk->has_slack = false;
    walk->base_offset = batch->base_offset;
    walk->base_timestamp = batch->base_timestamp;
    walk->append_time = batch->max_timestamp;
    walk->has_append_time = (batch->attributes & SLG_ATTRIBUTE_LOG_APPEND_TIME) != 0;
    walk->count = batch->record_count;
    walk->rules = rules;
    walk->index = 0;
    walk->max_timestamp = -1;
    walk->is_sequential = true;
    walk->a = walk->b = 0;
}

static slg_refusal refuse_record(slg_record_walk *walk, slg_refusal refusal, int64_t a, int64_t b) {
    walk->a = a;
    walk->b = b;
    return refusal;
}

/*
 * The length of a record. A buffer that ends inside it and a varint that does not end are different
 * refusals; a stream returns 0xff after its end, so there they are the same.
 */
static slg_refusal read_length(slg_record_walk *walk, int32_t *length) {
    if (slg_read_varint(&walk->bytes, length)) {
        return SLG_ACCEPTED;
    }
    if (walk->source != SLG_RECORDS_BUFFER || slg_cursor_left(&walk->bytes) < SLG_VARINT_SIZE_MAX) {
        return SLG_REFUSE_PREMATURE_END;
    }
    uint64_t value = 0;
    for (unsigned i = 0; i < SLG_VARINT_SIZE_MAX; i++) {
        value |= (uint64_t)(walk->bytes.pos[i] & (i < 4 ? 0x7fU : 0xffU)) << (7U * i);
    }
    return refuse_record(walk, SLG_REFUSE_VARINT, (int64_t)(uint32_t)value, 0);
}

/* Kafka's exception for a field. Skipping missing bytes has its own message. */
static slg_refusal refuse_field(slg_record_walk *walk, const slg_cursor *bytes, slg_field fault,
                                const slg_record_fields *fields) {
    if (fault == SLG_FIELD_NEGATIVE) {
        return refuse_record(walk, SLG_REFUSE_HEADER_COUNT, fields->header_count, 0);
    }
    if (fault > SLG_FIELD_NEGATIVE && walk->source != SLG_RECORDS_SKIP &&
        fields->header_count > bytes->end - fields->headers.begin) {
        return refuse_record(walk, SLG_REFUSE_HEADERS_LEFT, fields->header_count, 0);
    }
    if (fault == SLG_FIELD_HEADER_NULL) {
        return refuse_record(walk, SLG_REFUSE_HEADER_KEY, fields->number, 0);
    }
    if (walk->source == SLG_RECORDS_SKIP &&
        (fault == SLG_FIELD_BYTES || fault == SLG_FIELD_HEADER_BYTES)) {
        return refuse_record(walk, SLG_REFUSE_SKIP,
                             fields->number - (int64_t)slg_cursor_left(bytes), 0);
    }
    return SLG_REFUSE_STRUCTURE;
}

/* The fields after the length, from bytes that end where Kafka's reader would stop. */
static slg_refusal read_fields(slg_record_walk *walk, slg_cursor *bytes) {
    slg_record_fields fields;
    const slg_field fault = slg_record_read(bytes, &fields);
    if (fault != SLG_FIELD_NONE) {
        return refuse_field(walk, bytes, fault, &fields);
    }
    walk->record = (slg_record){
        .offset = slg_java_add(walk->base_offset, fields.offset_delta),
        .timestamp = walk->has_append_time
                         ? walk->append_time
                         : slg_java_add(walk->base_timestamp, fields.timestamp_delta),
        .offset_delta = fields.offset_delta,
        .key_size = fields.key_size,
        .value_size = fields.value_size,
        .header_count = fields.header_count,
        .key = fields.key,
        .value = fields.value,
        .headers = fields.headers,
    };
    return SLG_ACCEPTED;
}

static slg_refusal read_record(slg_record_walk *walk) {
    int32_t length;
    const slg_refusal refusal = read_length(walk, &length);
    if (refusal != SLG_ACCEPTED) {
        return refusal;
    }
    if (walk->source == SLG_RECORDS_SKIP) {
        /* Kafka does not compare the length with the bytes that it skips. */
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

/* Whether a record's own timestamp is within the topic's limits. */
static inline bool is_in_time(const slg_record_rules *rules, int64_t timestamp) {
    const int64_t age = slg_java_subtract(rules->now, timestamp);
    return timestamp == -1 ||
           (age <= rules->before_max && slg_java_subtract(0, age) <= rules->after_max);
}

static inline slg_refusal check_rules(const slg_record_walk *walk) {
    const slg_record_rules *rules = walk->rules;
    const slg_record *record = &walk->record;
    if (rules->needs_key && record->key_size < 0) {
        return SLG_REFUSE_NO_KEY;
    }
    if (rules->has_create_time && !is_in_time(rules, record->timestamp)) {
        return SLG_REFUSE_TIMESTAMP;
    }
    if ((!rules->has_create_time || record->timestamp == -1) && walk->has_append_time) {
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

/*
 * Accepts plain records at the cursor: no headers, sizes that add up. Leaves to slg_record_next a
 * last record that does not end with the bytes, and without slack the end of the bytes, because a
 * peek may read past a record.
 */
static void run_plain(slg_record_walk *walk) {
    static const slg_record_rules none = {false, false, 0, 0, 0};
    const slg_record_rules rules = walk->rules == NULL ? none : *walk->rules;
    const uint8_t *pos = walk->bytes.pos;
    const uint8_t *bytes_end = walk->bytes.end;
    const int64_t slack = walk->has_slack ? 0 : SLG_PEEK_SLACK;
    int64_t max_timestamp = walk->max_timestamp;
    int32_t index = walk->index;
    bool is_sequential = walk->is_sequential;
    slg_peeked record;
    while (index < walk->count && bytes_end - pos > slack &&
           slg_peek_key(pos, bytes_end - slack, &record) && slg_peek_value(&record) &&
           *record.tail == 0 && record.tail + 1 == record.stop &&
           (index + INT64_C(1) < walk->count || record.stop == bytes_end)) {
        const int64_t timestamp =
            slg_java_add(walk->base_timestamp, slg_zigzag64(record.time_delta));
        if ((rules.needs_key && record.key_is_null) ||
            (rules.has_create_time && !is_in_time(&rules, timestamp))) {
            break;
        }
        const int32_t delta = slg_zigzag32((uint32_t)record.offset_delta);
        is_sequential = is_sequential && slg_java_add(walk->base_offset, delta) == index;
        max_timestamp = timestamp > max_timestamp ? timestamp : max_timestamp;
        pos = record.stop;
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
        slg_header header;
        /* The walk has checked them: nothing can be missing. */
        if (!slg_header_next(&bytes, &header)) {
            break;
        }
        /* The length comes first but is known last: the key is written after the longest length. */
        const size_t key_size =
            slg_utf8_replace(header.key, (size_t)header.key_size, to + SLG_VARINT_SIZE_MAX);
        uint8_t *key = slg_put_varint(to, (int32_t)key_size);
        memmove(key, to + SLG_VARINT_SIZE_MAX, key_size);
        to = slg_put_field(key + key_size, header.value,
                           header.value_size < 0 ? -1 : header.value_size);
    }
    return (size_t)(to - into);
}
