/*
 * Writes record batches of magic 2 into the caller's memory (docs/format.md), record by record or
 * from columns (encode_columns.h). For the same records the bytes equal those of Kafka's
 * MemoryRecordsBuilder.
 *
 * Nothing here allocates or keeps a caller's pointer. One thread at a time per open batch.
 */
#ifndef SEGLOG_ENCODE_H
#define SEGLOG_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/crc32c.h"
#include "seglog/status.h"
#include "seglog/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A record to write. Offsets and timestamps (ms) are absolute; a size of -1 is null. */
typedef struct slg_encode_record {
    int64_t offset;
    int64_t timestamp;
    const uint8_t *key;
    const uint8_t *value;
    int64_t key_size;
    int64_t value_size;
    int64_t headers_size; /* of all headers as encoded in a record, without their count */
    int32_t header_count;
} slg_encode_record;

/*
 * An open batch. Its bytes begin at `data` with room for the header, which slg_encode_seal fills.
 * `data` may move between calls (set data and capacity).
 */
typedef struct slg_encode_batch {
    uint8_t *data;
    size_t capacity;
    size_t size; /* bytes so far; SLG_BATCH_HEADER_SIZE if there is no record */
    int64_t base_offset;
    int64_t base_timestamp; /* the first record's, or the delete horizon; -1 before either is set */
    int64_t max_timestamp; /* -1 if there is no record */
    int64_t offset_of_max_timestamp; /* of the first record with that timestamp, or -1 */
    int64_t last_offset; /* base_offset - 1 if there is no record */
    int64_t max_size; /* bytes including the header; only a first record may exceed it */
    int32_t max_records;
    int32_t record_count;
    bool has_base_timestamp;
} slg_encode_batch;

/* Header fields that do not follow from the records. */
typedef struct slg_encode_fields {
    int64_t max_timestamp; /* the batch's, or the append time */
    int64_t producer_id;
    int32_t partition_leader_epoch;
    int32_t base_sequence;
    int32_t last_offset_delta;
    int16_t attributes;
    int16_t producer_epoch;
} slg_encode_fields;

/*
 * The encoded size of a field of `size` bytes with its length (-1: null). A field too large for any
 * record counts as 2^40, so that sums of a few fields do not wrap and prove too large.
 */
static inline uint64_t slg_encode_field(int64_t size) {
    if (size > INT32_MAX) {
        return UINT64_C(1) << 40;
    }
    return size < 0 ? 1U : slg_uvarlong_size((uint64_t)size << 1) + (uint64_t)size;
}

/* Opens an empty batch without limits; `data` may be NULL if `capacity` is 0. */
void slg_encode_open(slg_encode_batch *batch, uint8_t *data, size_t capacity, int64_t base_offset);

/* The record's size in the batch, including its length; above INT32_MAX it never fits. */
uint64_t slg_encode_size(const slg_encode_batch *batch, const slg_encode_record *record);

/*
 * Adds a record without its headers: the caller writes `headers_size` bytes at *headers before the
 * batch is used. Only SLG_OK changes anything:
 *   SLG_FULL               the batch has reached its limit: it ends before this record
 *   SLG_MORE               capacity is too small: error->expected is what the batch needs
 *   SLG_ENCODE_TIMESTAMP   negative and not -1: found = timestamp
 *   SLG_ENCODE_OFFSET      not above the last one: expected = the last, found = offset
 *   SLG_ENCODE_DELTA       2^31 or more above the base: expected = base, found = offset
 *   SLG_ENCODE_SIZE        the batch would exceed 2^31 - 1 bytes: found = its size then
 * The caller sets error->position.
 */
slg_status slg_encode_add(slg_encode_batch *batch, const slg_encode_record *record,
                          uint8_t **headers, slg_error *error);

/* Adds a record whose fields from the key's size to the last header are `size` encoded bytes.
 * Returns as slg_encode_add. */
slg_status slg_encode_add_encoded(slg_encode_batch *batch, int64_t offset, int64_t timestamp,
                                  const uint8_t *fields, size_t size, slg_error *error);

/*
 * Writes the header, SLG_BATCH_HEADER_SIZE bytes with the CRC, at `header`. The batch's records are
 * the `payload_size` bytes at `payload`, compressed or not, which need not follow the header.
 * Header and payload together are at most INT32_MAX bytes.
 */
void slg_encode_seal(uint8_t *header, const slg_encode_batch *batch,
                     const slg_encode_fields *fields, const uint8_t *payload, size_t payload_size,
                     slg_crc32c_kernel kernel);

#ifdef __cplusplus
}
#endif
#endif
