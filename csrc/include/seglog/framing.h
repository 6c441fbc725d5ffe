/*
 * lz4 and snappy payloads in the framings of Kafka's clients: an lz4 frame of independent blocks
 * without checksums of their own, and snappy-java's stream of version 1.
 *
 * This is the fast path only: the reference path decides about any other payload (other flags or
 * versions, truncated or trailing bytes, damaged blocks). Nothing is allocated, nothing is read
 * outside the payload, and no state is kept.
 */
#ifndef SEGLOG_FRAMING_H
#define SEGLOG_FRAMING_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Decompresses a payload of SLG_CODEC_LZ4 or SLG_CODEC_SNAPPY. The bytes written to `into`, which
 * has room for `room`; -1 for any other payload or codec, and for want of room. All of the room may
 * be written.
 */
ptrdiff_t slg_unframe(int codec, const uint8_t *payload, size_t size, uint8_t *into, size_t room);

#ifdef __cplusplus
}
#endif
#endif
