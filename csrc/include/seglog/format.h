/*
 * Offsets and sizes of every structure on disk, all big-endian. Each offset is the end of the field
 * before it, and the static asserts below hold the sums to the numbers of docs/format.md.
 */
#ifndef SEGLOG_FORMAT_H
#define SEGLOG_FORMAT_H

#ifdef __cplusplus
extern "C" {
#define SLG_STATIC_ASSERT static_assert
#else
#define SLG_STATIC_ASSERT _Static_assert
#endif

/* The prefix that every batch and every old message begins with. */
enum {
    SLG_PREFIX_OFFSET_AT = 0,                         /* i64 */
    SLG_PREFIX_LENGTH_AT = SLG_PREFIX_OFFSET_AT + 8,  /* i32, bytes after this field */
    SLG_PREFIX_SIZE = SLG_PREFIX_LENGTH_AT + 4,
    SLG_MAGIC_AT = SLG_PREFIX_SIZE + 4, /* i8, at the same place in all three formats */
    SLG_PREFIX_AND_MAGIC_SIZE = SLG_MAGIC_AT + 1,
    SLG_MAGIC_MAX = 2
};

/* Record batch, magic 2. The CRC is CRC-32C from the attributes to the end of the batch. */
enum {
    SLG_BATCH_BASE_OFFSET_AT = SLG_PREFIX_OFFSET_AT,
    SLG_BATCH_LENGTH_AT = SLG_PREFIX_LENGTH_AT,
    SLG_BATCH_LEADER_EPOCH_AT = SLG_PREFIX_SIZE,                        /* i32 */
    SLG_BATCH_MAGIC_AT = SLG_BATCH_LEADER_EPOCH_AT + 4,                 /* i8 */
    SLG_BATCH_CRC_AT = SLG_BATCH_MAGIC_AT + 1,                          /* u32 */
    SLG_BATCH_ATTRIBUTES_AT = SLG_BATCH_CRC_AT + 4,                     /* i16 */
    SLG_BATCH_LAST_OFFSET_DELTA_AT = SLG_BATCH_ATTRIBUTES_AT + 2,       /* i32 */
    SLG_BATCH_BASE_TIMESTAMP_AT = SLG_BATCH_LAST_OFFSET_DELTA_AT + 4, /* i64, or delete horizon */
    SLG_BATCH_MAX_TIMESTAMP_AT = SLG_BATCH_BASE_TIMESTAMP_AT + 8, /* i64 */
    SLG_BATCH_PRODUCER_ID_AT = SLG_BATCH_MAX_TIMESTAMP_AT + 8, /* i64 */
    SLG_BATCH_PRODUCER_EPOCH_AT = SLG_BATCH_PRODUCER_ID_AT + 8, /* i16 */
    SLG_BATCH_BASE_SEQUENCE_AT = SLG_BATCH_PRODUCER_EPOCH_AT + 2, /* i32 */
    SLG_BATCH_RECORD_COUNT_AT = SLG_BATCH_BASE_SEQUENCE_AT + 4, /* i32 */
    SLG_BATCH_HEADER_SIZE = SLG_BATCH_RECORD_COUNT_AT + 4,
    SLG_BATCH_CRC_FROM = SLG_BATCH_ATTRIBUTES_AT,
    SLG_BATCH_LENGTH_MIN = SLG_BATCH_HEADER_SIZE - SLG_PREFIX_SIZE,
    /* length, attributes, timestamp and offset deltas, key and value length, header count */
    SLG_RECORD_SIZE_MIN = 7
};

/* Attribute bits of a batch; magic 0 has the codec only, magic 1 also the timestamp type. */
enum {
    SLG_ATTRIBUTE_CODEC = 0x07,
    SLG_ATTRIBUTE_LOG_APPEND_TIME = 0x08,
    SLG_ATTRIBUTE_TRANSACTIONAL = 0x10,
    SLG_ATTRIBUTE_CONTROL = 0x20,
    SLG_ATTRIBUTE_DELETE_HORIZON = 0x40
};

enum {
    SLG_CODEC_NONE = 0,
    SLG_CODEC_GZIP = 1,
    SLG_CODEC_SNAPPY = 2,
    SLG_CODEC_LZ4 = 3,
    SLG_CODEC_ZSTD = 4,
    SLG_CODEC_MAX = SLG_CODEC_ZSTD,
    SLG_CODEC_LEGACY_MAX = SLG_CODEC_LZ4
};

/* Messages of magic 0 and 1. The CRC is CRC-32 (IEEE) from the magic to the end of the message. */
enum {
    SLG_LEGACY_OFFSET_AT = SLG_PREFIX_OFFSET_AT,
    SLG_LEGACY_SIZE_AT = SLG_PREFIX_LENGTH_AT,
    SLG_LEGACY_CRC_AT = SLG_PREFIX_SIZE, /* u32 */
    SLG_LEGACY_MAGIC_AT = SLG_LEGACY_CRC_AT + 4, /* i8 */
    SLG_LEGACY_ATTRIBUTES_AT = SLG_LEGACY_MAGIC_AT + 1, /* i8 */
    SLG_V0_KEY_LENGTH_AT = SLG_LEGACY_ATTRIBUTES_AT + 1, /* i32, key, i32 value length, value */
    SLG_V0_SIZE_MIN = SLG_V0_KEY_LENGTH_AT + 4 + 4,
    SLG_V1_TIMESTAMP_AT = SLG_LEGACY_ATTRIBUTES_AT + 1, /* i64 */
    SLG_V1_KEY_LENGTH_AT = SLG_V1_TIMESTAMP_AT + 8, /* i32, key, i32 value length, value */
    SLG_V1_SIZE_MIN = SLG_V1_KEY_LENGTH_AT + 4 + 4,
    SLG_LEGACY_CRC_FROM = SLG_LEGACY_MAGIC_AT,
    SLG_LEGACY_LENGTH_MIN = SLG_V0_SIZE_MIN - SLG_PREFIX_SIZE
};

/* Key and end-of-transaction value of a control record. */
enum {
    SLG_CONTROL_VERSION_AT = 0, /* i16 */
    SLG_CONTROL_TYPE_AT = SLG_CONTROL_VERSION_AT + 2, /* i16 */
    SLG_CONTROL_KEY_SIZE = SLG_CONTROL_TYPE_AT + 2,
    SLG_CONTROL_ABORT = 0,
    SLG_CONTROL_COMMIT = 1,
    SLG_MARKER_VERSION_AT = 0, /* i16 */
    SLG_MARKER_COORDINATOR_EPOCH_AT = SLG_MARKER_VERSION_AT + 2, /* i32 */
    SLG_MARKER_SIZE = SLG_MARKER_COORDINATOR_EPOCH_AT + 4
};

/* Entry of an offset index. */
enum {
    SLG_OFFSET_ENTRY_OFFSET_AT = 0, /* i32, relative */
    SLG_OFFSET_ENTRY_POSITION_AT = SLG_OFFSET_ENTRY_OFFSET_AT + 4, /* i32 */
    SLG_OFFSET_ENTRY_SIZE = SLG_OFFSET_ENTRY_POSITION_AT + 4
};

/* Entry of a time index. */
enum {
    SLG_TIME_ENTRY_TIMESTAMP_AT = 0, /* i64, ms */
    SLG_TIME_ENTRY_OFFSET_AT = SLG_TIME_ENTRY_TIMESTAMP_AT + 8, /* i32, relative */
    SLG_TIME_ENTRY_SIZE = SLG_TIME_ENTRY_OFFSET_AT + 4
};

/* Entry of a transaction index. Kafka's reader looks at the first byte of the version only. */
enum {
    SLG_TXN_ENTRY_VERSION_AT = 0, /* i16 */
    SLG_TXN_ENTRY_PRODUCER_ID_AT = SLG_TXN_ENTRY_VERSION_AT + 2, /* i64 */
    SLG_TXN_ENTRY_FIRST_OFFSET_AT = SLG_TXN_ENTRY_PRODUCER_ID_AT + 8, /* i64 */
    SLG_TXN_ENTRY_LAST_OFFSET_AT = SLG_TXN_ENTRY_FIRST_OFFSET_AT + 8, /* i64 */
    SLG_TXN_ENTRY_LAST_STABLE_OFFSET_AT = SLG_TXN_ENTRY_LAST_OFFSET_AT + 8, /* i64 */
    SLG_TXN_ENTRY_SIZE = SLG_TXN_ENTRY_LAST_STABLE_OFFSET_AT + 8
};

/* Producer snapshot: header, then entries. The CRC is CRC-32C from the count to the file's end. */
enum {
    SLG_SNAPSHOT_VERSION_AT = 0, /* i16 */
    SLG_SNAPSHOT_CRC_AT = SLG_SNAPSHOT_VERSION_AT + 2, /* u32 */
    SLG_SNAPSHOT_COUNT_AT = SLG_SNAPSHOT_CRC_AT + 4, /* i32 */
    SLG_SNAPSHOT_HEADER_SIZE = SLG_SNAPSHOT_COUNT_AT + 4,
    SLG_SNAPSHOT_CRC_FROM = SLG_SNAPSHOT_COUNT_AT,
    SLG_SNAPSHOT_VERSION = 1
};

enum {
    SLG_PRODUCER_ID_AT = 0, /* i64 */
    SLG_PRODUCER_EPOCH_AT = SLG_PRODUCER_ID_AT + 8, /* i16 */
    SLG_PRODUCER_LAST_SEQUENCE_AT = SLG_PRODUCER_EPOCH_AT + 2, /* i32 */
    SLG_PRODUCER_LAST_OFFSET_AT = SLG_PRODUCER_LAST_SEQUENCE_AT + 4, /* i64 */
    SLG_PRODUCER_OFFSET_DELTA_AT = SLG_PRODUCER_LAST_OFFSET_AT + 8, /* i32 */
    SLG_PRODUCER_TIMESTAMP_AT = SLG_PRODUCER_OFFSET_DELTA_AT + 4, /* i64 */
    SLG_PRODUCER_COORDINATOR_EPOCH_AT = SLG_PRODUCER_TIMESTAMP_AT + 8, /* i32 */
    SLG_PRODUCER_TXN_OFFSET_AT = SLG_PRODUCER_COORDINATOR_EPOCH_AT + 4, /* i64 */
    SLG_PRODUCER_ENTRY_SIZE = SLG_PRODUCER_TXN_OFFSET_AT + 8
};

SLG_STATIC_ASSERT(SLG_PREFIX_SIZE == 12 && SLG_MAGIC_AT == 16, "log overhead");
SLG_STATIC_ASSERT((int)SLG_BATCH_MAGIC_AT == (int)SLG_MAGIC_AT, "magic of v2");
SLG_STATIC_ASSERT((int)SLG_LEGACY_MAGIC_AT == (int)SLG_MAGIC_AT, "magic of v0 and v1");
SLG_STATIC_ASSERT(SLG_BATCH_CRC_AT == 17 && SLG_BATCH_CRC_FROM == 21, "batch CRC");
SLG_STATIC_ASSERT(SLG_BATCH_PRODUCER_ID_AT == 43, "batch producer id");
SLG_STATIC_ASSERT(SLG_BATCH_HEADER_SIZE == 61 && SLG_BATCH_LENGTH_MIN == 49, "batch header");
SLG_STATIC_ASSERT(SLG_V0_SIZE_MIN == 26 && SLG_V1_SIZE_MIN == 34, "old messages");
SLG_STATIC_ASSERT(SLG_LEGACY_LENGTH_MIN == 14, "shortest length field that Kafka accepts");
SLG_STATIC_ASSERT(SLG_CONTROL_KEY_SIZE == 4 && SLG_MARKER_SIZE == 6, "control record");
SLG_STATIC_ASSERT(SLG_OFFSET_ENTRY_SIZE == 8 && SLG_TIME_ENTRY_SIZE == 12, "index entries");
SLG_STATIC_ASSERT(SLG_TXN_ENTRY_SIZE == 34, "transaction index entry");
SLG_STATIC_ASSERT(SLG_SNAPSHOT_HEADER_SIZE == 10, "snapshot header");
SLG_STATIC_ASSERT(SLG_PRODUCER_ENTRY_SIZE == 46, "snapshot entry");

#ifdef __cplusplus
}
#endif
#endif
