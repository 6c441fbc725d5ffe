/*
 * One raw snappy block, byte for byte as Google's C++ library writes it since 1.1.9, which Kafka's
 * snappy-java wraps. Any decoder reads what any encoder wrote; only these bytes are Kafka's.
 */
#ifndef SEGLOG_SNAPPY_H
#define SEGLOG_SNAPPY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* More are several fragments, which xerial's framing (32 KiB a block) never has. */
enum { SLG_SNAPPY_BLOCK_MAX = 65536 };

/* What a block of `size` bytes takes at most. */
size_t slg_snappy_bound(size_t size);

/*
 * Compresses `size` bytes, at most SLG_SNAPPY_BLOCK_MAX, into `out`, which has room for
 * slg_snappy_bound(size); the bytes written. 32 KiB of stack; no state: safe from any thread.
 */
size_t slg_snappy_compress(const uint8_t *data, size_t size, uint8_t *out);

#ifdef __cplusplus
}
#endif
#endif
