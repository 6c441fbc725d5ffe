/*
 * Reads one raw lz4 block. Accepts what encoders write, and nothing that liblz4's safe decoder
 * refuses, which Kafka's lz4-java wraps; that one decides about the rest.
 */
#ifndef SEGLOG_LZ4_H
#define SEGLOG_LZ4_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The bytes written to `into`, which has room for `room`, or -1 for a block that is not accepted or
 * does not fit. All of the room may be written.
 */
ptrdiff_t slg_lz4_decompress(const uint8_t *block, size_t size, uint8_t *into, size_t room);

#ifdef __cplusplus
}
#endif
#endif
