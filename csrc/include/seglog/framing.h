/*
 * The blocks of an lz4 or snappy payload, in the framings that Kafka's clients write: an lz4 frame
 * of independent 64 KiB blocks without checksums, and snappy-java's stream of version 1.
 *
 * This is the happy path only. Whatever else a payload may be (other flags, other versions, bytes
 * that are cut or left over) is SLG_FRAME_OTHER, and whoever knows all of Kafka's rules decides.
 * Nothing is allocated, nothing is read outside of the payload, and no state is kept.
 */
#ifndef SEGLOG_FRAMING_H
#define SEGLOG_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The most that a block of such a frame holds, and the room that its decoder asks for. */
enum { SLG_LZ4_BLOCK_BYTES = 64 << 10 };

typedef enum slg_frame {
    SLG_FRAME_BLOCK, /* *block is the next one */
    SLG_FRAME_END,   /* the payload ends here, as it should */
    SLG_FRAME_OTHER,
} slg_frame;

typedef struct slg_block {
    const uint8_t *data; /* in the payload */
    size_t size;
    bool is_stored; /* these bytes are the plain ones */
} slg_block;

/* The block at *position, which is 0 to begin with and moves on to what follows. */
slg_frame slg_lz4_next(const uint8_t *payload, size_t size, size_t *position, slg_block *block);
slg_frame slg_xerial_next(const uint8_t *payload, size_t size, size_t *position, slg_block *block);

#ifdef __cplusplus
}
#endif
#endif
