/*
 * The blocks of an lz4 or snappy payload in the framings of Kafka's clients: an lz4 frame of
 * independent 64 KiB blocks without checksums, and snappy-java's stream of version 1.
 *
 * This is the fast path only. Any other payload (other flags or versions, truncated or trailing
 * bytes) is SLG_FRAME_OTHER, and the reference path decides. Nothing is allocated, nothing is read
 * outside the payload, and no state is kept.
 */
#ifndef SEGLOG_FRAMING_H
#define SEGLOG_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The largest block of such a frame, and the room that its decoder needs. */
enum { SLG_LZ4_BLOCK_BYTES = 64 << 10 };

typedef enum slg_frame {
    SLG_FRAME_BLOCK, /* *block is the next one */
    SLG_FRAME_END,   /* the payload ends here, valid */
    SLG_FRAME_OTHER,
} slg_frame;

typedef struct slg_block {
    const uint8_t *data; /* in the payload */
    size_t size;
    bool is_stored; /* these bytes are uncompressed */
} slg_block;

/* The block at *position, initially 0, which advances to the next block. */
slg_frame slg_lz4_next(const uint8_t *payload, size_t size, size_t *position, slg_block *block);
slg_frame slg_xerial_next(const uint8_t *payload, size_t size, size_t *position, slg_block *block);

#ifdef __cplusplus
}
#endif
#endif
