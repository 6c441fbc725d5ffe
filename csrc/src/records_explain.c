/* What is wrong with a record of magic 2: the slow and bounded way to read it. */
#include "records_internal.h"
#include "seglog/wire.h"

slg_status slg_records_explain(const slg_records *records, slg_error *error) {
    const int64_t position = records->position;
    slg_cursor cursor = slg_cursor_of(records->at, (size_t)(records->end - records->at));
    int32_t size;
    int32_t field;
    int64_t time_delta;
    if (slg_cursor_left(&cursor) == 0) {
        return slg_fail(error, SLG_RECORD_COUNT, position, records->batch.record_count,
                        records->batch.record_count - records->left);
    }
    if (!slg_read_varint(&cursor, &size)) {
        return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARINT_SIZE_MAX,
                        (int64_t)slg_cursor_left(&cursor));
    }
    const int64_t left = (int64_t)slg_cursor_left(&cursor);
    if (size < 0 || size > left) {
        return slg_fail(error, SLG_RECORD_LENGTH, position, left, size);
    }
    const uint8_t *body = cursor.pos;
    if (!slg_skip(&cursor, 1) || !slg_read_varlong(&cursor, &time_delta) ||
        !slg_read_varint(&cursor, &field)) {
        return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARLONG_SIZE_MAX,
                        (int64_t)slg_cursor_left(&cursor));
    }
    for (int i = 0; i < 2; i++) { /* key, value */
        if (!slg_read_varint(&cursor, &field)) {
            return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARINT_SIZE_MAX,
                            (int64_t)slg_cursor_left(&cursor));
        }
        if (field >= 0 && !slg_skip(&cursor, field)) {
            return slg_fail(error, SLG_RECORD_FIELD, position, (int64_t)slg_cursor_left(&cursor),
                            field);
        }
    }
    int32_t count;
    if (!slg_read_varint(&cursor, &count)) {
        return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARINT_SIZE_MAX,
                        (int64_t)slg_cursor_left(&cursor));
    }
    if (count < 0 || (uint32_t)count > slg_cursor_left(&cursor)) {
        return slg_fail(error, SLG_RECORD_HEADERS, position, (int64_t)slg_cursor_left(&cursor),
                        count);
    }
    for (int64_t i = 0; i < 2 * (int64_t)count; i++) { /* key, value of each */
        const bool is_key = (i & 1) == 0;
        if (!slg_read_varint(&cursor, &field)) {
            return slg_fail(error, SLG_RECORD_VARINT, position, SLG_VARINT_SIZE_MAX,
                            (int64_t)slg_cursor_left(&cursor));
        }
        if ((field < 0 && is_key) || (field >= 0 && !slg_skip(&cursor, field))) {
            return slg_fail(error, SLG_RECORD_FIELD, position, (int64_t)slg_cursor_left(&cursor),
                            field);
        }
    }
    return slg_fail(error, SLG_RECORD_SIZE, position, size, cursor.pos - body);
}
