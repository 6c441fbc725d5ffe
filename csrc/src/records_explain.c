/* Finds the fault of a record of magic 2 with the bounded cursor. */
#include "record_fields.h"
#include "records_internal.h"

slg_status slg_records_explain(const slg_records *records, slg_error *error) {
    const int64_t position = records->position;
    slg_cursor cursor = slg_cursor_of(records->at, (size_t)(records->end - records->at));
    slg_record_fields fields;
    int32_t size;
    if (slg_cursor_left(&cursor) == 0) {
        return slg_fail(error, SLG_RECORD_COUNT, position, records->batch.record_count,
                        records->batch.record_count - records->left);
    }
    if (!slg_read_varint(&cursor, &size)) {
        return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARINT_SIZE_MAX,
                        (int64_t)slg_cursor_left(&cursor));
    }
    if (size < 0 || (size_t)size > slg_cursor_left(&cursor)) {
        return slg_fail(error, SLG_RECORD_LENGTH, position, (int64_t)slg_cursor_left(&cursor),
                        size);
    }
    const uint8_t *body = cursor.pos;
    const slg_field fault = slg_record_read(&cursor, &fields);
    const int64_t left = (int64_t)slg_cursor_left(&cursor);
    if (fault >= SLG_FIELD_NEGATIVE) {
        const int64_t room = cursor.end - fields.headers.begin;
        if (fault == SLG_FIELD_NEGATIVE || fields.header_count > room) {
            return slg_fail(error, SLG_RECORD_HEADERS, position, room, fields.header_count);
        }
    }
    switch (fault) {
    case SLG_FIELD_DELTAS:
        return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARLONG_SIZE_MAX, left);
    case SLG_FIELD_SIZE:
    case SLG_FIELD_COUNT:
    case SLG_FIELD_HEADER_SIZE:
        return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARINT_SIZE_MAX, left);
    case SLG_FIELD_NONE: return slg_fail(error, SLG_RECORD_SIZE, position, size, cursor.pos - body);
    default: return slg_fail(error, SLG_RECORD_FIELD, position, left, fields.number);
    }
}
