#include "seglog/dump.h"

#include <string.h>

#include "entry.h"
#include "seglog/utf8.h"

/* Where the next call of slg_dump_text continues. */
enum phase { NEXT, LINE, ENTER, RECORD, METADATA, KEY, KEY_TEXT, VALUE, VALUE_TEXT, LINE_END };

/* No line is longer without its header keys, its key and its value. */
enum { LINE_MAX_SIZE = 768 };

/* The types of KRaft's control records; their values are JSON, which the caller writes. */
enum { FIRST_KRAFT_TYPE = 2, LAST_KRAFT_TYPE = 6 };

void slg_dump_init(slg_dump *dump, unsigned what, slg_dump_gap *gaps, size_t gap_room) {
    dump->what = what;
    dump->gaps = gaps;
    dump->gap_room = gap_room;
    dump->gap_count = 0;
    dump->wanted = SLG_DUMP_BUFFER_MIN;
    dump->control = -1;
    dump->last_offset = -1;
    dump->phase = NEXT;
    dump->text_done = 0;
}

/* ---- text ---------------------------------------------------------------------------------- */

/* A literal, copied with a size that the compiler knows. */
#define PUT(out, text) (memcpy((out), (text), sizeof(text) - 1), (out) + sizeof(text) - 1)

static const char digit_pairs[201] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546"
    "4748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293"
    "949596979899";

/* Writes two digits per step, from the right into a scratch that is then copied at once. */
static uint8_t *put_u64(uint8_t *out, uint64_t value) {
    uint8_t scratch[20];
    uint8_t *p = scratch + sizeof scratch;
    while (value >= 100) {
        p -= 2;
        memcpy(p, digit_pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10) {
        p -= 2;
        memcpy(p, digit_pairs + 2 * value, 2);
    } else {
        *--p = (uint8_t)('0' + value);
    }
    const size_t size = (size_t)(scratch + sizeof scratch - p);
    memcpy(out, p, size);
    return out + size;
}

static uint8_t *put_i64(uint8_t *out, int64_t value) {
    if (value >= 0) {
        return put_u64(out, (uint64_t)value);
    }
    *out = '-';
    return put_u64(out + 1, 0U - (uint64_t)value);
}

static uint8_t *put_text(uint8_t *out, const char *text) {
    const size_t size = strlen(text);
    memcpy(out, text, size);
    return out + size;
}

static uint8_t *put_bool(uint8_t *out, bool value) {
    return value ? PUT(out, "true") : PUT(out, "false");
}

static uint8_t *put_timestamp_type(uint8_t *out, const slg_batch *batch) {
    if (batch->magic == 0) {
        return PUT(out, " NoTimestampType: ");
    }
    return slg_batch_has(batch, SLG_ATTRIBUTE_LOG_APPEND_TIME) ? PUT(out, " LogAppendTime: ")
                                                               : PUT(out, " CreateTime: ");
}

static uint8_t *put_batch_head(uint8_t *out, const slg_batch *batch) {
    if (slg_batch_is_legacy(batch)) {
        return put_i64(PUT(out, "offset: "), batch->last_offset);
    }
    out = put_i64(PUT(out, "baseOffset: "), batch->base_offset);
    out = put_i64(PUT(out, " lastOffset: "), batch->last_offset);
    out = put_i64(PUT(out, " count: "), batch->record_count);
    out = put_i64(PUT(out, " baseSequence: "), batch->base_sequence);
    out = put_i64(PUT(out, " lastSequence: "), slg_last_sequence(batch));
    out = put_i64(PUT(out, " producerId: "), batch->producer_id);
    out = put_i64(PUT(out, " producerEpoch: "), batch->producer_epoch);
    out = put_i64(PUT(out, " partitionLeaderEpoch: "), batch->partition_leader_epoch);
    out =
        put_bool(PUT(out, " isTransactional: "), slg_batch_has(batch, SLG_ATTRIBUTE_TRANSACTIONAL));
    out = put_bool(PUT(out, " isControl: "), slg_batch_has(batch, SLG_ATTRIBUTE_CONTROL));
    out = PUT(out, " deleteHorizonMs: OptionalLong");
    if (!slg_batch_has(batch, SLG_ATTRIBUTE_DELETE_HORIZON)) {
        return PUT(out, ".empty");
    }
    *out = '[';
    out = put_i64(out + 1, batch->base_timestamp);
    *out = ']';
    return out + 1;
}

static uint8_t *put_batch_tail(uint8_t *out, const slg_batch *batch, bool valid) {
    static const char codecs[SLG_CODEC_MAX + 1][8] = {"none", "gzip", "snappy", "lz4", "zstd"};
    out = put_i64(PUT(out, " position: "), batch->position);
    out = put_i64(put_timestamp_type(out, batch), batch->max_timestamp);
    out = put_i64(PUT(out, " size: "), batch->size);
    out = put_i64(PUT(out, " magic: "), batch->magic);
    out = put_text(PUT(out, " compresscodec: "), codecs[batch->attributes & SLG_ATTRIBUTE_CODEC]);
    out = put_u64(PUT(out, " crc: "), batch->crc);
    out = put_bool(PUT(out, " isvalid: "), valid);
    *out = '\n';
    return out + 1;
}

static uint8_t *put_header_keys(uint8_t *out, const slg_walk_record *record) {
    slg_cursor headers = record->headers;
    *out++ = '[';
    for (int32_t i = 0; i < record->header_count; i++) {
        slg_header header;
        if (!slg_header_next(&headers, &header)) {
            break; /* not reached: the walk has checked them all */
        }
        if (i > 0) {
            *out++ = ',';
        }
        out += slg_utf8_replace(header.key, (size_t)header.key_size, out);
    }
    *out = ']';
    return out + 1;
}

static uint8_t *put_metadata(uint8_t *out, const slg_batch *batch, const slg_walk_record *record) {
    out = put_i64(PUT(out, "| offset: "), record->offset);
    out = put_i64(put_timestamp_type(out, batch), record->timestamp);
    out = put_i64(PUT(out, " keySize: "), record->key_size);
    out = put_i64(PUT(out, " valueSize: "), record->value_size);
    if (slg_batch_is_legacy(batch)) {
        out = put_bool(PUT(out, " isValid: "), record->valid);
        return put_u64(PUT(out, " crc: "), record->crc);
    }
    out = put_i64(PUT(out, " sequence: "), record->sequence);
    return put_header_keys(PUT(out, " headerKeys: "), record);
}

/* ---- the dump ------------------------------------------------------------------------------ */

/* The caller's buffer while slg_dump_text runs. */
typedef struct text {
    uint8_t *pos;
    uint8_t *end;
} text;

static size_t room(const text *out) { return (size_t)(out->end - out->pos); }

static slg_status full(slg_dump *dump, size_t wanted) {
    dump->wanted = wanted < SLG_DUMP_BUFFER_MIN ? SLG_DUMP_BUFFER_MIN : wanted;
    return SLG_FULL;
}

static slg_status next_batch(slg_dump *dump, slg_error *error) {
    slg_status status = slg_walk_next(&dump->walk, error);
    if (status == SLG_OK && dump->walk.batch.magic >= 0) {
        status = slg_walk_load(&dump->walk, error);
    }
    if (status == SLG_OK) { /* else a further call would enter a batch that is not there */
        dump->phase = LINE;
    }
    return status;
}

static slg_status print_batch(slg_dump *dump, text *out, slg_error *error) {
    const slg_batch *batch = &dump->walk.batch;
    if (room(out) < LINE_MAX_SIZE) {
        return full(dump, LINE_MAX_SIZE);
    }
    out->pos = put_batch_head(out->pos, batch);
    if (batch->magic < 0) {
        return slg_fail(error, SLG_BATCH_MAGIC, batch->position, SLG_MAGIC_MAX, batch->magic);
    }
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    if (codec > SLG_CODEC_MAX) {
        return slg_fail(error, SLG_BATCH_CODEC, batch->position, SLG_CODEC_MAX, codec);
    }
    out->pos = put_batch_tail(out->pos, batch, dump->walk.valid);
    dump->phase = (dump->what & SLG_DUMP_RECORDS) != 0 ? ENTER : NEXT;
    return SLG_OK;
}

static slg_status next_record(slg_dump *dump, slg_error *error) {
    if (dump->gap_count == dump->gap_room) {
        return full(dump, 0);
    }
    const slg_status status = slg_walk_record_next(&dump->walk, &dump->record, error);
    if (status == SLG_END) {
        dump->phase = NEXT;
        return SLG_OK;
    }
    if (status == SLG_OK) {
        const int64_t offset = dump->record.offset;
        if ((uint64_t)offset != (uint64_t)dump->last_offset + 1U) {
            dump->gaps[dump->gap_count++] = (slg_dump_gap){dump->last_offset, offset};
        }
        dump->last_offset = offset;
        dump->control = -1;
        dump->phase = METADATA;
    }
    return status;
}

/* The type in the key, and for the end of a transaction the epoch in the value. */
static slg_status print_control(slg_dump *dump, text *out, slg_error *error) {
    const slg_walk_record *record = &dump->record;
    const int64_t at = dump->walk.batch.position;
    if (record->key_size < SLG_CONTROL_KEY_SIZE) {
        return slg_fail(error, SLG_RECORD_FIELD, at, SLG_CONTROL_KEY_SIZE, record->key_size);
    }
    const int16_t version = slg_load_i16(record->key + SLG_CONTROL_VERSION_AT);
    const int16_t type = slg_load_i16(record->key + SLG_CONTROL_TYPE_AT);
    if (version < 0) {
        return slg_fail(error, SLG_RECORD_FIELD, at, 0, version);
    }
    dump->control = type;
    if (type >= FIRST_KRAFT_TYPE && type <= LAST_KRAFT_TYPE) {
        return SLG_OK;
    }
    dump->control = -1;
    if (type != SLG_CONTROL_ABORT && type != SLG_CONTROL_COMMIT) {
        out->pos = put_i64(PUT(out->pos, " controlType: UNKNOWN("), type);
        *out->pos++ = ')';
        return SLG_OK;
    }
    if (record->value_size < SLG_MARKER_SIZE) {
        return slg_fail(error, SLG_RECORD_FIELD, at, SLG_MARKER_SIZE, record->value_size);
    }
    const int16_t value_version = slg_load_i16(record->value + SLG_MARKER_VERSION_AT);
    if (value_version < 0) {
        return slg_fail(error, SLG_RECORD_FIELD, at, 0, value_version);
    }
    out->pos = type == SLG_CONTROL_COMMIT ? PUT(out->pos, " endTxnMarker: COMMIT")
                                          : PUT(out->pos, " endTxnMarker: ABORT");
    out->pos = put_i64(PUT(out->pos, " coordinatorEpoch: "),
                       slg_load_i32(record->value + SLG_MARKER_COORDINATOR_EPOCH_AT));
    return SLG_OK;
}

static slg_status print_metadata(slg_dump *dump, text *out, slg_error *error) {
    const slg_batch *batch = &dump->walk.batch;
    const bool control = !slg_batch_is_legacy(batch) && slg_batch_has(batch, SLG_ATTRIBUTE_CONTROL);
    dump->phase = LINE_END;
    if ((dump->what & SLG_DUMP_METADATA) != 0) {
        const size_t headers = slg_cursor_left(&dump->record.headers);
        const size_t wanted = LINE_MAX_SIZE + slg_utf8_bound(headers) +
                              (size_t)dump->record.header_count;
        if (room(out) < wanted) {
            dump->phase = METADATA;
            return full(dump, wanted);
        }
        out->pos = put_metadata(out->pos, batch, &dump->record);
        if (control) {
            return print_control(dump, out, error);
        }
    }
    if (!control && (dump->what & (SLG_DUMP_STRINGS | SLG_DUMP_CALLER)) != 0) {
        if (dump->record.value == NULL && dump->record.value_size >= 0) {
            return slg_fail(error, SLG_RECORD_FIELD, batch->position, batch->size,
                            dump->record.value_size);
        }
        dump->phase = KEY;
    }
    return SLG_OK;
}

/* Writes as much of a key or value as fits. Pieces never split a UTF-8 sequence. */
static slg_status print_string(slg_dump *dump, text *out, const uint8_t *data, int32_t size,
                               int after) {
    const uint8_t *from = data + dump->text_done;
    const size_t left = (size_t)size - dump->text_done;
    size_t piece = room(out) / 3;
    if (piece >= left) {
        piece = left;
    } else if (piece < 16) {
        return full(dump, 0);
    } else {
        /* Not before a continuation byte, unless it is one too many for the four of a sequence. */
        size_t back = 0;
        while (back < 4 && (from[piece - back] & 0xc0U) == 0x80U) {
            back++;
        }
        piece -= back < 4 ? back : 0;
    }
    out->pos += slg_utf8_replace(from, piece, out->pos);
    dump->text_done += piece;
    if (piece == left) {
        dump->text_done = 0;
        dump->phase = after;
    }
    return SLG_OK;
}

/* " key: " or " payload: "; without metadata the first one follows the bar. */
static slg_status print_name(slg_dump *dump, text *out, bool is_key) {
    const slg_walk_record *record = &dump->record;
    const uint8_t *data = is_key ? record->key : record->value;
    if (room(out) < LINE_MAX_SIZE) {
        return full(dump, LINE_MAX_SIZE);
    }
    if (data == NULL) {
        dump->phase = is_key ? VALUE : LINE_END;
        return SLG_OK;
    }
    if ((dump->what & SLG_DUMP_METADATA) == 0 && (is_key || record->key == NULL)) {
        *out->pos++ = '|';
    }
    out->pos = is_key ? PUT(out->pos, " key: ") : PUT(out->pos, " payload: ");
    dump->phase = is_key ? KEY_TEXT : VALUE_TEXT;
    return SLG_OK;
}

static slg_status end_line(slg_dump *dump, text *out) {
    if (room(out) == 0) {
        return full(dump, 0);
    }
    *out->pos++ = '\n';
    dump->phase = RECORD;
    return SLG_OK;
}

/* One step; *ask is set when the caller has something to do before the next. */
static slg_status step(slg_dump *dump, text *out, bool *ask, slg_error *error) {
    slg_status status;
    const slg_walk_record *record = &dump->record;
    switch ((enum phase)dump->phase) {
    case NEXT: return next_batch(dump, error);
    case LINE: return print_batch(dump, out, error);
    case ENTER:
        status = slg_walk_enter(&dump->walk, error);
        dump->phase = RECORD;
        return status;
    case RECORD: return next_record(dump, error);
    case METADATA:
        status = print_metadata(dump, out, error);
        *ask = status == SLG_OK &&
               (dump->control >= 0 || (dump->phase == KEY && (dump->what & SLG_DUMP_CALLER) != 0));
        if (*ask) {
            dump->phase = RECORD;
        }
        return status;
    case KEY: return print_name(dump, out, true);
    case KEY_TEXT: return print_string(dump, out, record->key, record->key_size, VALUE);
    case VALUE: return print_name(dump, out, false);
    case VALUE_TEXT: return print_string(dump, out, record->value, record->value_size, LINE_END);
    case LINE_END: return end_line(dump, out);
    }
    return SLG_END;
}

slg_status slg_dump_text(slg_dump *dump, uint8_t *out, size_t capacity, size_t *used,
                         slg_error *error) {
    text buffer = {out, out + capacity};
    slg_status status = SLG_OK;
    bool ask = false;
    while (status == SLG_OK && !ask) {
        status = step(dump, &buffer, &ask, error);
    }
    *used = (size_t)(buffer.pos - out);
    return status;
}
