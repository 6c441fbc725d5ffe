/*
 * Writes one raw snappy block, byte for byte as Google's C++ library since 1.1.9, which Kafka's
 * snappy-java wraps, and reads those of any encoder.
 */
#ifndef SEGLOG_SNAPPY_H
#define SEGLOG_SNAPPY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A larger block has several fragments, which xerial's framing (32 KiB blocks) never has. */
enum { SLG_SNAPPY_BLOCK_MAX = 65536 };

/* The largest compressed size of `size` bytes. */
size_t slg_snappy_bound(size_t size);

/*
 * Compresses `size` bytes, at most SLG_SNAPPY_BLOCK_MAX, into `out`, which has room for
 * slg_snappy_bound(size). Returns the bytes written. Needs 32 KiB of stack; thread-safe.
 */
size_t slg_snappy_compress(const uint8_t *data, size_t size, uint8_t *out);

/*
 * Decompresses a block. The bytes written to `into`, which has room for `room`, or -1 for a block
 * that is damaged or does not fit. All of the room may be written.
 */
ptrdiff_t slg_snappy_decompress(const uint8_t *block, size_t size, uint8_t *into, size_t room);

#ifdef __cplusplus
}
#endif
#endif
