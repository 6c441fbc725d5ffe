/*
 * Bytes of log files put together by hand: numbers, varints, records, batches and old messages with
 * right checksums, and the golden bytes that Apache Kafka wrote.
 */
#ifndef SEGLOG_TEST_BUILD_H
#define SEGLOG_TEST_BUILD_H

#include <fcntl.h>
#include <unistd.h>

#include "check.h"
#include "seglog/crc32c.h"
#include "seglog/format.h"
#include "seglog/wire.h"

/* One record: offset 0, timestamp 1000, null key, value "test", leader epoch 0. */
#define GOLDEN_ONE                                                                  \
    "0000000000000000 0000003c 00000000 02 b36be244 0000 00000000 00000000000003e8" \
    "00000000000003e8 ffffffffffffffff ffff ffffffff 00000001 14 00 00 00 01 08 74657374 00"
/* k=v with headers h=0102 and n=null at 1000, k2=null at 1005. */
#define GOLDEN_TWO                                                           \
    "00000000000000000000004bffffffff02dbbc396d00000000000100000000000003e8" \
    "00000000000003edffffffffffffffffffffffffffff00000002"                   \
    "20000000026b0276040268040102026e01 10000a02046b320100"
#define GOLDEN_GZIP                                                          \
    "000000000000000000000050ffffffff02b82430d700010000000000000000000003e8" \
    "00000000000003e8ffffffffffffffffffffffffffff00000001"                   \
    "1f8b08000000000000ff1361606060e428492d2e610000b9a4c2220b000000"
#define GOLDEN_ABORT                                                         \
    "0000000000000005000000420000000002c987e7dd00300000000000000000000003e8" \
    "00000000000003e800000000000000010000ffffffff00000001 2000000008000000000c00000000000000"
#define GOLDEN_EMPTIED                                                       \
    "000000000000000a0000003100000000023e16b8ff001000000003ffffffffffffffff" \
    "00000000000003e8000000000000000100000000000000000000"
#define GOLDEN_V1 "00000000000000000000001abf6be29f010000000000000003e8ffffffff0000000474657374"
#define GOLDEN_V0 "000000000000000000000012592a47870000ffffffff0000000474657374"
/* Values a and b at offsets 10 and 11, timestamps 1000 and 2000. */
#define GOLDEN_V1_GZIP                                                                         \
    "000000000000000b0000004ed0b392a3010100000000000007d0ffffffff00000038"                     \
    "1f8b08000000000000ff63608003f1aed497b98c500ef38bff400064302642454032e2372672ce842961bf00" \
    "5392040064d9fc2e46000000"

enum { BYTES_MAX = 1 << 17 };

typedef struct bytes {
    uint8_t data[BYTES_MAX];
    size_t size;
} bytes;

/* Room for `size` more bytes, which are zero. */
static inline uint8_t *add_zeros(bytes *b, size_t size) {
    CHECK(size <= BYTES_MAX - b->size);
    uint8_t *at = b->data + b->size;
    memset(at, 0, size);
    b->size += size;
    return at;
}

static inline void add(bytes *b, const void *data, size_t size) {
    uint8_t *at = add_zeros(b, size);
    if (size > 0) {
        memcpy(at, data, size);
    }
}

static inline void add_i32(bytes *b, int32_t v) { slg_store_i32(add_zeros(b, 4), v); }
static inline void add_i64(bytes *b, int64_t v) { slg_store_i64(add_zeros(b, 8), v); }
static inline void add_byte(bytes *b, unsigned v) { *add_zeros(b, 1) = (uint8_t)v; }

static inline unsigned digit_of(char c) {
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a') + 10U;
}

/* Hexadecimal digits in lower case; blanks do not count. */
static inline void add_hex(bytes *b, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text != ' ') {
            add_byte(b, digit_of(text[0]) << 4 | digit_of(text[1]));
            text++;
        }
    }
}

static inline void add_varint(bytes *b, int64_t v) {
    uint64_t rest = (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0U);
    for (; rest > 0x7fU; rest >>= 7) {
        add_byte(b, (unsigned)(rest & 0x7fU) | 0x80U);
    }
    add_byte(b, (unsigned)rest);
}

/* A length and the text behind it; NULL is null. */
static inline void add_field(bytes *b, const char *text) {
    add_varint(b, text == NULL ? -1 : (int64_t)strlen(text));
    add(b, text, text == NULL ? 0 : strlen(text));
}

/* A record of magic 2; `headers` are `count` pairs of fields already written. */
static inline void add_record(bytes *b, int64_t time_delta, int32_t offset_delta, const char *key,
                              const char *value, const bytes *headers, int32_t count) {
    static bytes body;
    body.size = 0;
    add_byte(&body, 0);
    add_varint(&body, time_delta);
    add_varint(&body, offset_delta);
    add_field(&body, key);
    add_field(&body, value);
    add_varint(&body, count);
    if (headers != NULL) {
        add(&body, headers->data, headers->size);
    }
    add_varint(b, (int64_t)body.size);
    add(b, body.data, body.size);
}

/* Header fields of a batch; leave out what is 0. */
typedef struct batch_fields {
    int64_t base_offset;
    int32_t last_delta;
    int32_t count;
    int16_t attributes;
    int8_t magic; /* 0 stands for 2 */
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t producer_id;
    int16_t producer_epoch;
    int32_t base_sequence;
    int32_t leader_epoch;
} batch_fields;

/* Writes length and CRC of the batch that begins at `from` and ends with the bytes. */
static inline void seal_batch(bytes *b, size_t from) {
    uint8_t *p = b->data + from;
    const size_t size = b->size - from;
    slg_store_i32(p + SLG_BATCH_LENGTH_AT, (int32_t)(size - SLG_PREFIX_SIZE));
    slg_store_u32(p + SLG_BATCH_CRC_AT, slg_crc32c(SLG_CRC32C_PORTABLE, 0, p + SLG_BATCH_CRC_FROM,
                                                   size - SLG_BATCH_CRC_FROM));
}

/* Appends a batch with this payload and returns where it begins. */
static inline size_t add_batch(bytes *b, batch_fields f, const void *payload, size_t size) {
    const size_t from = b->size;
    uint8_t *p = add_zeros(b, SLG_BATCH_HEADER_SIZE);
    slg_store_i64(p, f.base_offset);
    slg_store_i32(p + SLG_BATCH_LEADER_EPOCH_AT, f.leader_epoch);
    p[SLG_MAGIC_AT] = f.magic == 0 ? 2 : (uint8_t)f.magic;
    slg_store_i16(p + SLG_BATCH_ATTRIBUTES_AT, f.attributes);
    slg_store_i32(p + SLG_BATCH_LAST_OFFSET_DELTA_AT, f.last_delta);
    slg_store_i64(p + SLG_BATCH_BASE_TIMESTAMP_AT, f.base_timestamp);
    slg_store_i64(p + SLG_BATCH_MAX_TIMESTAMP_AT, f.max_timestamp);
    slg_store_i64(p + SLG_BATCH_PRODUCER_ID_AT, f.producer_id);
    slg_store_i16(p + SLG_BATCH_PRODUCER_EPOCH_AT, f.producer_epoch);
    slg_store_i32(p + SLG_BATCH_BASE_SEQUENCE_AT, f.base_sequence);
    slg_store_i32(p + SLG_BATCH_RECORD_COUNT_AT, f.count);
    add(b, payload, size);
    seal_batch(b, from);
    return from;
}

/* A message of magic 0 or 1 with null key; a value of size -1 is null. */
static inline size_t add_message(bytes *b, int magic, int attributes, int64_t offset,
                                 int64_t timestamp, const void *value, int32_t size) {
    const size_t from = b->size;
    uint8_t *p = add_zeros(b, SLG_V0_KEY_LENGTH_AT);
    slg_store_i64(p, offset);
    p[SLG_LEGACY_MAGIC_AT] = (uint8_t)magic;
    p[SLG_LEGACY_ATTRIBUTES_AT] = (uint8_t)attributes;
    if (magic != 0) {
        add_i64(b, timestamp);
    }
    add_i32(b, -1);
    add_i32(b, size);
    add(b, value, size < 0 ? 0 : (size_t)size);
    const size_t whole = b->size - from;
    slg_store_i32(p + SLG_LEGACY_SIZE_AT, (int32_t)(whole - SLG_PREFIX_SIZE));
    slg_store_u32(p + SLG_LEGACY_CRC_AT,
                  slg_crc32(0, p + SLG_LEGACY_CRC_FROM, whole - SLG_LEGACY_CRC_FROM));
    return from;
}

/* A new file of these bytes, open for reading and writing; the name is gone already. */
static inline int file_of(const void *data, size_t size) {
    const int fd = open("scratch", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, data, size) == (ssize_t)size);
    CHECK(unlink("scratch") == 0);
    return fd;
}

#endif
