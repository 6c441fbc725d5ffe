#include "seglog/status.h"

#include <stddef.h>

const char *slg_status_name(slg_status status) {
    switch (status) {
    case SLG_OK: return "ok";
    case SLG_END: return "end";
    case SLG_TORN_TAIL: return "torn_tail";
    case SLG_ZERO_TAIL: return "zero_tail";
    case SLG_FULL: return "full";
    case SLG_MORE: return "more";
    case SLG_CODEC: return "codec";
    case SLG_BATCH_LENGTH: return "batch_length";
    case SLG_BATCH_SIZE: return "batch_size";
    case SLG_BATCH_CRC: return "batch_crc";
    case SLG_BATCH_MAGIC: return "batch_magic";
    case SLG_BATCH_CODEC: return "batch_codec";
    case SLG_BATCH_RECORD_COUNT: return "batch_record_count";
    case SLG_BATCH_LAST_OFFSET: return "batch_last_offset";
    case SLG_BATCH_OFFSET_ORDER: return "batch_offset_order";
    case SLG_BATCH_OFFSET_RANGE: return "batch_offset_range";
    case SLG_BATCH_ATTRIBUTES: return "batch_attributes";
    case SLG_RECORD_VARINT: return "record_varint";
    case SLG_RECORD_LENGTH: return "record_length";
    case SLG_RECORD_SIZE: return "record_size";
    case SLG_RECORD_FIELD: return "record_field";
    case SLG_RECORD_HEADERS: return "record_headers";
    case SLG_RECORD_COUNT: return "record_count";
    case SLG_RECORD_TIMESTAMP: return "record_timestamp";
    case SLG_LEGACY_SIZE: return "legacy_size";
    case SLG_LEGACY_NULL_WRAPPER: return "legacy_null_wrapper";
    case SLG_LEGACY_EMPTY_WRAPPER: return "legacy_empty_wrapper";
    case SLG_LEGACY_NESTED: return "legacy_nested";
    case SLG_LEGACY_OFFSET: return "legacy_offset";
    case SLG_LEGACY_CODEC: return "legacy_codec";
    case SLG_CODEC_DATA: return "codec_data";
    case SLG_CODEC_TOO_LARGE: return "codec_too_large";
    case SLG_INDEX_SIZE: return "index_size";
    case SLG_INDEX_OFFSET_ORDER: return "index_offset_order";
    case SLG_INDEX_POSITION_ORDER: return "index_position_order";
    case SLG_INDEX_TIME_ORDER: return "index_time_order";
    case SLG_INDEX_OFFSET_RANGE: return "index_offset_range";
    case SLG_INDEX_POSITION_RANGE: return "index_position_range";
    case SLG_INDEX_PADDED: return "index_padded";
    case SLG_INDEX_UNWRITTEN: return "index_unwritten";
    case SLG_INDEX_NOT_A_BATCH: return "index_not_a_batch";
    case SLG_TXN_SIZE: return "txn_size";
    case SLG_TXN_VERSION: return "txn_version";
    case SLG_TXN_OFFSET: return "txn_offset";
    case SLG_IO: return "io";
    case SLG_FILE_MISSING: return "file_missing";
    case SLG_FILE_KIND: return "file_kind";
    case SLG_FILE_TOO_LARGE: return "file_too_large";
    case SLG_FILE_SHRANK: return "file_shrank";
    case SLG_NO_MEMORY: return "no_memory";
    case SLG_LIMIT: return "limit";
    case SLG_INDEX_FULL: return "index_full";
    case SLG_TXN_STATE: return "txn_state";
    case SLG_TXN_NOT_STARTED: return "txn_not_started";
    case SLG_ENCODE_OFFSET: return "encode_offset";
    case SLG_ENCODE_TIMESTAMP: return "encode_timestamp";
    case SLG_ENCODE_DELTA: return "encode_delta";
    case SLG_ENCODE_SIZE: return "encode_size";
    case SLG_ENCODE_HEADER_KEY: return "encode_header_key";
    case SLG_ARROW_TYPE: return "arrow_type";
    case SLG_ARROW_LAYOUT: return "arrow_layout";
    }
    return "unknown";
}

slg_status slg_fail(slg_error *error, slg_status status, int64_t position, int64_t expected,
                    int64_t found) {
    if (error != NULL) {
        *error = (slg_error){.status = status,
                             .position = position,
                             .expected = expected,
                             .found = found};
    }
    return status;
}

slg_status slg_fail_errno(slg_error *error, slg_status status, int64_t position, int sys_errno) {
    if (error != NULL) {
        *error = (slg_error){.status = status, .sys_errno = sys_errno, .position = position};
    }
    return status;
}
