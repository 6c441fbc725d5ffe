/*
 * Batches from columns: the records of an input, encoded one after the other.
 */
#ifndef SEGLOG_ENCODE_COLUMNS_H
#define SEGLOG_ENCODE_COLUMNS_H

#include "seglog/encode.h"
#include "seglog/encode_sources.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Writes a stream of batches. Offset and sequence continue from batch to batch; `fields` has those
 * of the open batch.
 */
typedef struct slg_encoder {
    slg_encode_batch
        batch; /* the open one, after `used` in the output; its limits are those of all */
    slg_encode_fields fields; /* max_timestamp: the append time with LOG_APPEND_TIME */
    int64_t default_timestamp;
    bool is_sent; /* every batch begins at offset 0, as producers send them */
    slg_crc32c_kernel kernel;
    uint8_t *out;
    size_t capacity;
    size_t limit; /* the end of whole batches; only a single first batch may exceed it */
    size_t used; /* bytes of whole batches at the start of the output */
    int64_t batches; /* since the beginning */
    int64_t records; /* in whole batches, since the beginning */
} slg_encoder;

void slg_encoder_init(slg_encoder *encoder, const slg_encode_fields *fields, int64_t base_offset,
                      slg_crc32c_kernel kernel);

/*
 * Gives the encoder new memory and moves the open batch there. `capacity` is at least the size of
 * that batch. The caller gets the old memory back, with `used` bytes of whole batches.
 */
void slg_encoder_move(slg_encoder *encoder, uint8_t *out, size_t capacity);

/* The caller has moved or enlarged the output, including whole batches. */
void slg_encoder_grow(slg_encoder *encoder, uint8_t *out, size_t capacity);

/*
 * Encodes rows from input->row on. SLG_OK: all rows are encoded; the last batch stays open.
 * SLG_MORE: the output is too small; error->expected is the capacity that the open batch and its
 * next record need in new memory. SLG_CODEC (only with a codec in fields.attributes): the open
 * batch is full; the caller compresses its records and calls slg_encoder_close. SLG_ENCODE_* and
 * SLG_ARROW_LAYOUT: row error->position is invalid; all rows before it are encoded.
 */
slg_status slg_encoder_feed(slg_encoder *encoder, slg_input *input, slg_error *error);

/*
 * Ends the open batch. Without a codec, fills its header and adds it to the whole batches. With a
 * codec, writes SLG_BATCH_HEADER_SIZE bytes to `header` for the payload, which the caller keeps;
 * the next batch begins where this one did. False, with no effect, if the batch has no record.
 */
bool slg_encoder_close(slg_encoder *encoder, uint8_t *header, const uint8_t *payload,
                       size_t payload_size);

#ifdef __cplusplus
}
#endif
#endif
