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
 * What a stream of batches is written with. Offset and sequence go on from batch to batch, and
 * `fields` holds those of the open one.
 */
typedef struct slg_encoder {
    slg_encode_batch batch; /* the open one, behind `used` in the output; its limits are all's */
    slg_encode_fields fields; /* max_timestamp: with LOG_APPEND_TIME the append time */
    int64_t default_timestamp;
    bool is_sent; /* every batch begins at offset 0, as producers send them */
    slg_crc32c_kernel kernel;
    uint8_t *out;
    size_t capacity;
    size_t limit; /* whole batches go no further, but for a first one that is larger alone */
    size_t used; /* bytes of whole batches at the beginning of `out` */
    int64_t batches; /* since the beginning */
    int64_t records; /* in whole batches, since the beginning */
} slg_encoder;

void slg_encoder_init(slg_encoder *encoder, const slg_encode_fields *fields, int64_t base_offset,
                      slg_crc32c_kernel kernel);

/*
 * Gives the encoder other memory; the bytes of the open batch move there. `capacity` is at least
 * what that batch has. The old memory, with `used` bytes of whole batches, is the caller's again.
 */
void slg_encoder_move(slg_encoder *encoder, uint8_t *out, size_t capacity);

/* The output, whole batches included, stands in other memory now, or has more of it. */
void slg_encoder_grow(slg_encoder *encoder, uint8_t *out, size_t capacity);

/*
 * Encodes rows from input->row on. SLG_OK: all rows are taken, the last batch stays open for more.
 * SLG_MORE: the output is short; error->expected is the capacity that the open batch and its next
 * record need in other memory. SLG_CODEC (only with a codec in fields.attributes): the open batch
 * is full; the caller compresses its records and calls slg_encoder_close. SLG_ENCODE_* and
 * SLG_ARROW_LAYOUT: row error->position is wrong; everything before it is encoded.
 */
slg_status slg_encoder_feed(slg_encoder *encoder, slg_input *input, slg_error *error);

/*
 * Ends the open batch. Without a codec its header is filled and its bytes join the whole ones.
 * With one, `header` gets SLG_BATCH_HEADER_SIZE bytes for the payload, which the caller keeps, and
 * the next batch begins where this one did. False when the batch has no record: nothing happens.
 */
bool slg_encoder_close(slg_encoder *encoder, uint8_t *header, const uint8_t *payload,
                       size_t payload_size);

#ifdef __cplusplus
}
#endif
#endif
