#include "seglog/batch.h"

#include <stdbool.h>
#include <string.h>

#include "entry.h"
#include "message.h"

slg_status slg_batch_frame(const uint8_t *data, size_t left, int64_t position, int64_t end,
                           int32_t *size, slg_error *error) {
    const int64_t rest = end - position;
    if (rest <= 0) {
        return SLG_END;
    }
    if (rest <= SLG_PREFIX_AND_MAGIC_SIZE) {
        /* Kafka stops 17 bytes before the end, and does not read exactly 17 bytes either. */
        return slg_fail(error, SLG_TORN_TAIL, position, SLG_PREFIX_AND_MAGIC_SIZE + 1, rest);
    }
    if (left < SLG_PREFIX_AND_MAGIC_SIZE) {
        return SLG_MORE;
    }
    int64_t whole;
    if (!slg_frame(data, &whole)) {
        return slg_fail(error, SLG_BATCH_LENGTH, position, SLG_LEGACY_LENGTH_MIN,
                        slg_frame_length(whole));
    }
    if (whole > rest) {
        return slg_fail(error, SLG_TORN_TAIL, position, whole, rest);
    }
    if (whole > INT32_MAX) {
        /* Within 12 bytes of 2 GiB; a log file cannot hold it, only a bigger file could. */
        return slg_fail(error, SLG_LIMIT, position, INT32_MAX, whole);
    }
    *size = (int32_t)whole;
    return SLG_OK;
}

static void parse_legacy(const uint8_t *data, slg_batch *batch) {
    const int8_t attributes = slg_load_i8(data + SLG_LEGACY_ATTRIBUTES_AT);
    batch->base_offset = batch->last_offset = slg_load_i64(data + SLG_LEGACY_OFFSET_AT);
    batch->base_timestamp = batch->max_timestamp =
        batch->magic == 0 ? -1 : slg_load_i64(data + SLG_V1_TIMESTAMP_AT);
    batch->producer_id = -1;
    batch->partition_leader_epoch = -1;
    batch->base_sequence = -1;
    batch->record_count = (attributes & SLG_ATTRIBUTE_CODEC) == SLG_CODEC_NONE ? 1 : -1;
    batch->crc = slg_load_u32(data + SLG_LEGACY_CRC_AT);
    batch->attributes = attributes;
    batch->producer_epoch = -1;
}

static void parse_v2(const uint8_t *data, slg_batch *batch) {
    batch->base_offset = slg_load_i64(data + SLG_BATCH_BASE_OFFSET_AT);
    batch->last_offset = slg_last_offset_at(data);
    batch->base_timestamp = slg_load_i64(data + SLG_BATCH_BASE_TIMESTAMP_AT);
    batch->max_timestamp = slg_load_i64(data + SLG_BATCH_MAX_TIMESTAMP_AT);
    batch->producer_id = slg_load_i64(data + SLG_BATCH_PRODUCER_ID_AT);
    batch->partition_leader_epoch = slg_load_i32(data + SLG_BATCH_LEADER_EPOCH_AT);
    batch->base_sequence = slg_load_i32(data + SLG_BATCH_BASE_SEQUENCE_AT);
    batch->record_count = slg_load_i32(data + SLG_BATCH_RECORD_COUNT_AT);
    batch->crc = slg_load_u32(data + SLG_BATCH_CRC_AT);
    batch->attributes = slg_load_i16(data + SLG_BATCH_ATTRIBUTES_AT);
    batch->producer_epoch = slg_load_i16(data + SLG_BATCH_PRODUCER_EPOCH_AT);
}

slg_status slg_batch_parse(const uint8_t *data, size_t left, int64_t position, int32_t size,
                           slg_batch *batch, slg_error *error) {
    if (left < SLG_PREFIX_AND_MAGIC_SIZE) {
        return SLG_MORE;
    }
    batch->magic = slg_load_i8(data + SLG_MAGIC_AT);
    const int32_t least = slg_batch_is_legacy(batch) ? (int32_t)SLG_V0_SIZE_MIN
                                                     : (int32_t)SLG_BATCH_HEADER_SIZE;
    if (size < least) {
        return slg_fail(error, SLG_BATCH_SIZE, position, least, size);
    }
    if (left < (size_t)least) {
        return SLG_MORE;
    }
    batch->position = position;
    batch->size = size;
    if (slg_batch_is_legacy(batch)) {
        parse_legacy(data, batch);
    } else {
        parse_v2(data, batch);
    }
    return SLG_OK;
}

/* Where the checksummed bytes of an entry begin. */
static size_t crc_from(const slg_batch *batch) {
    return slg_batch_is_legacy(batch) ? SLG_LEGACY_CRC_FROM : SLG_BATCH_CRC_FROM;
}

static uint32_t extend_crc(const slg_batch *batch, slg_crc32c_kernel kernel, uint32_t crc,
                           const uint8_t *data, size_t size) {
    return slg_batch_is_legacy(batch) ? slg_crc32(crc, data, size)
                                      : slg_crc32c(kernel, crc, data, size);
}

slg_status slg_batch_check_crc(const slg_batch *batch, const uint8_t *data,
                               slg_crc32c_kernel kernel, slg_error *error) {
    const size_t from = crc_from(batch);
    const uint32_t crc = extend_crc(batch, kernel, 0, data + from, (size_t)batch->size - from);
    if (crc != batch->crc) {
        return slg_fail(error, SLG_BATCH_CRC, batch->position, batch->crc, crc);
    }
    return SLG_OK;
}

slg_status slg_batch_check_legacy_codec(const slg_batch *batch, slg_error *error) {
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    if (codec <= SLG_CODEC_LEGACY_MAX) {
        return SLG_OK;
    }
    const slg_status status = codec > SLG_CODEC_MAX ? SLG_BATCH_CODEC : SLG_LEGACY_CODEC;
    return slg_fail(error, status, batch->position, SLG_CODEC_LEGACY_MAX, codec);
}

static slg_status check_legacy_header(const slg_batch *batch, slg_error *error) {
    const int32_t least = slg_message_size_min(batch->magic);
    const int known = SLG_ATTRIBUTE_CODEC | (batch->magic == 0 ? 0 : SLG_ATTRIBUTE_LOG_APPEND_TIME);
    if (batch->size < least) {
        return slg_fail(error, SLG_BATCH_SIZE, batch->position, least, batch->size);
    }
    const slg_status status = slg_batch_check_legacy_codec(batch, error);
    if (status == SLG_OK && (batch->attributes & ~known) != 0) {
        return slg_fail(error, SLG_BATCH_ATTRIBUTES, batch->position, known, batch->attributes);
    }
    return status;
}

slg_status slg_batch_check_header(const slg_batch *batch, slg_error *error) {
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    const int known = 2 * SLG_ATTRIBUTE_DELETE_HORIZON - 1;
    if (batch->magic < 0 || batch->magic > SLG_MAGIC_MAX) {
        return slg_fail(error, SLG_BATCH_MAGIC, batch->position, SLG_MAGIC_MAX, batch->magic);
    }
    if (slg_batch_is_legacy(batch)) {
        return check_legacy_header(batch, error);
    }
    if (codec > SLG_CODEC_MAX) {
        return slg_fail(error, SLG_BATCH_CODEC, batch->position, SLG_CODEC_MAX, codec);
    }
    if ((batch->attributes & ~known) != 0) {
        return slg_fail(error, SLG_BATCH_ATTRIBUTES, batch->position, known, batch->attributes);
    }
    if ((batch->attributes & SLG_ATTRIBUTE_CONTROL) != 0 && codec != SLG_CODEC_NONE) {
        return slg_fail(error, SLG_BATCH_ATTRIBUTES, batch->position, SLG_ATTRIBUTE_CONTROL,
                        batch->attributes);
    }
    const int64_t room = (batch->size - SLG_BATCH_HEADER_SIZE) / SLG_RECORD_SIZE_MIN;
    if (batch->record_count < 0 || (codec == SLG_CODEC_NONE && batch->record_count > room)) {
        return slg_fail(error, SLG_BATCH_RECORD_COUNT, batch->position, room, batch->record_count);
    }
    if (batch->last_offset < batch->base_offset) {
        return slg_fail(error, SLG_BATCH_LAST_OFFSET, batch->position, 0,
                        slg_last_offset_delta(batch));
    }
    return SLG_OK;
}

void slg_batch_scan_init(slg_batch_scan *scan) {
    scan->batch_count = 0;
    scan->record_count = 0;
    scan->first_offset = -1;
    scan->last_offset = -1;
    scan->max_timestamp = -1;
    scan->offset_of_max_timestamp = -1;
    scan->next_position = -1;
    scan->until = INT64_MAX;
}

static slg_status check_strictly(const slg_batch_scan *scan, const slg_batch *batch,
                                 slg_error *error) {
    const slg_status status = slg_batch_check_header(batch, error);
    if (status == SLG_OK && scan->batch_count > 0 && batch->base_offset <= scan->last_offset) {
        /* Nothing can follow the largest offset. */
        const int64_t least = scan->last_offset < INT64_MAX ? scan->last_offset + 1 : INT64_MAX;
        return slg_fail(error, SLG_BATCH_OFFSET_ORDER, batch->position, least, batch->base_offset);
    }
    return status;
}

static void accept(slg_batch_scan *scan, const slg_batch *batch) {
    if (scan->batch_count == 0) {
        scan->first_offset = batch->base_offset;
    }
    scan->batch_count++;
    scan->record_count += batch->record_count > 0 ? batch->record_count : 0;
    scan->last_offset = batch->last_offset;
    if (batch->max_timestamp > scan->max_timestamp) {
        scan->max_timestamp = batch->max_timestamp;
        scan->offset_of_max_timestamp = batch->last_offset;
    }
    if (scan->batches != NULL) {
        *scan->batches++ = *batch;
    }
    scan->batches_left--;
    scan->position += batch->size;
}

/*
 * A framed entry needs more bytes if its header is incomplete in memory; the rest may be missing.
 */
static slg_status next_entry(slg_batch_scan *scan, const uint8_t *data, size_t left,
                             slg_batch *batch, slg_error *error) {
    int32_t size = 0;
    slg_status status = slg_batch_frame(data, left, scan->position, scan->end, &size, error);
    if (status != SLG_OK) {
        return status;
    }
    status = slg_batch_parse(data, left, scan->position, size, batch, error);
    if (status != SLG_OK && status != SLG_MORE) {
        scan->next_position = scan->position + size;
    }
    return status;
}

/* Makes the checks after the CRC, and takes the entry. */
static slg_status finish_entry(slg_batch_scan *scan, const slg_batch *batch, slg_status status,
                               slg_error *error) {
    if (status == SLG_OK && (scan->checks & SLG_SCAN_STRICT) != 0) {
        status = check_strictly(scan, batch, error);
    }
    if (status != SLG_OK) {
        scan->next_position = scan->position + batch->size;
        return status;
    }
    accept(scan, batch);
    return SLG_OK;
}

/* SLG_MORE as for scan_memory; SLG_BATCH_LENGTH and SLG_TORN_TAIL may prove to be a zero tail. */
static slg_status scan_span(slg_batch_scan *scan, const uint8_t *data, size_t size,
                            slg_error *error) {
    const int64_t from = scan->position;
    for (;;) {
        if ((scan->batches_left <= 0 || scan->position >= scan->until) &&
            scan->position < scan->end) {
            return SLG_FULL;
        }
        const int64_t at = scan->position - from;
        const size_t left = (uint64_t)at < size ? size - (size_t)at : 0;
        slg_batch batch;
        slg_status status = next_entry(scan, data + (left > 0 ? at : 0), left, &batch, error);
        if (status != SLG_OK) {
            return status;
        }
        if ((scan->checks & SLG_SCAN_CRC) != 0) {
            if (left < (size_t)batch.size) {
                return SLG_MORE;
            }
            status = slg_batch_check_crc(&batch, data + at, scan->kernel, error);
        }
        status = finish_entry(scan, &batch, status, error);
        if (status != SLG_OK) {
            return status;
        }
    }
}

static slg_status zero_tail(const slg_batch_scan *scan, slg_error *error) {
    return slg_fail(error, SLG_ZERO_TAIL, scan->position, 0, scan->end - scan->position);
}

slg_status slg_batch_scan_memory(slg_batch_scan *scan, const uint8_t *data, size_t size,
                                 slg_error *error) {
    const int64_t from = scan->position;
    const slg_status status = scan_span(scan, data, size, error);
    if (status != SLG_BATCH_LENGTH && status != SLG_TORN_TAIL) {
        return status;
    }
    const size_t at = (size_t)(scan->position - from);
    if (scan->end - scan->position > (int64_t)(size - at) || !slg_is_zero(data + at, size - at)) {
        return status;
    }
    return zero_tail(scan, error);
}

/* Computes the CRC of an entry larger than the window in pieces, so that no buffer grows. */
static slg_status scan_big_entry(slg_batch_scan *scan, slg_window *window, slg_batch *batch,
                                 slg_error *error) {
    int64_t at = scan->position + (int64_t)crc_from(batch);
    const int64_t end = scan->position + batch->size;
    uint32_t crc = 0;
    while (at < end) {
        const slg_status status = slg_window_need(window, at, 1, error);
        if (status != SLG_OK) {
            return status;
        }
        const size_t left = slg_window_left(window, at);
        const size_t piece = (int64_t)left < end - at ? left : (size_t)(end - at);
        crc = extend_crc(batch, scan->kernel, crc, slg_window_at(window, at), piece);
        at += (int64_t)piece;
    }
    slg_status status = SLG_OK;
    if (crc != batch->crc) {
        status = slg_fail(error, SLG_BATCH_CRC, batch->position, batch->crc, crc);
    }
    return finish_entry(scan, batch, status, error);
}

/* The window begins at an entry that does not fit: reads its header, then pieces. */
static slg_status scan_from_window(slg_batch_scan *scan, slg_window *window, slg_error *error) {
    slg_batch batch;
    const slg_status status = next_entry(scan, slg_window_at(window, scan->position),
                                         slg_window_left(window, scan->position), &batch, error);
    return status == SLG_OK ? scan_big_entry(scan, window, &batch, error) : status;
}

static slg_status scan_windows(slg_batch_scan *scan, slg_window *window, slg_error *error) {
    const size_t target = window->target;
    int64_t before = scan->position;
    for (;;) {
        const int64_t rest = scan->end - scan->position;
        if (rest <= 0) {
            return SLG_END;
        }
        /* Enough for any header; slg_window_need reads on to the target. */
        const size_t least = rest < SLG_BATCH_HEADER_SIZE ? (size_t)rest : SLG_BATCH_HEADER_SIZE;
        /* If batches exceed the window, it would hold one header and read the rest for nothing. */
        const bool jumps = (scan->checks & SLG_SCAN_CRC) == 0 &&
                           scan->position - before > (int64_t)target;
        window->target = jumps ? least : target;
        slg_status status = slg_window_need(window, scan->position, least, error);
        window->target = target;
        if (status != SLG_OK) {
            return status;
        }
        const int64_t from = before = scan->position;
        const size_t left = slg_window_left(window, from);
        status = scan_span(scan, slg_window_at(window, from), left, error);
        if (status == SLG_MORE && scan->position == from) {
            if (left < target && (int64_t)left < rest) {
                /* All that the window has room for, of which only the batch must be readable. */
                status = slg_window_need(window, from, left + 1, error);
            } else {
                status = scan_from_window(scan, window, error);
            }
            status = status == SLG_OK ? SLG_MORE : status;
        }
        if (status != SLG_MORE) {
            return status;
        }
    }
}

slg_status slg_batch_scan_file(slg_batch_scan *scan, slg_window *window, slg_error *error) {
    const slg_status status = scan_windows(scan, window, error);
    if (status == SLG_BATCH_LENGTH || status == SLG_TORN_TAIL) {
        const slg_status zero = slg_window_zero_tail(window, scan->position, error);
        if (zero == SLG_ZERO_TAIL) {
            return zero_tail(scan, error);
        }
        if (zero != SLG_OK) {
            return zero;
        }
    }
    return status;
}
