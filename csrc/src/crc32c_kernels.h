/* Shared by the kernel files, private to csrc/src. States are inverted (as between steps). */
#ifndef SEGLOG_CRC32C_KERNELS_H
#define SEGLOG_CRC32C_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SLG_CRC32C_HAVE_X86 1
bool slg_crc32c_sse42_available(void);
bool slg_crc32c_avx512_available(void);
uint32_t slg_crc32c_sse42(uint32_t state, const uint8_t *p, size_t size);
uint32_t slg_crc32c_avx512(uint32_t state, const uint8_t *p, size_t size);

/*
 * CRC-32 (IEEE): 16 bytes whose CRC from state 0 equals the CRC of the `size` bytes from `state`.
 * `size` is at least SLG_CRC32_FOLD_MIN and a multiple of 16. Runs where the sse42 kernel does.
 */
enum { SLG_CRC32_FOLD_MIN = 64 };
void slg_crc32_fold(uint32_t state, const uint8_t *p, size_t size, uint8_t rest[16]);
#endif

#if defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SLG_CRC32C_HAVE_ARMV8 1
bool slg_crc32c_armv8_available(void);
uint32_t slg_crc32c_armv8(uint32_t state, const uint8_t *p, size_t size);
#endif

uint32_t slg_crc32c_portable(uint32_t state, const uint8_t *p, size_t size);

/*
 * A crc32 instruction takes 3 cycles and one starts every cycle, so three streams of `lane` bytes
 * run at once. To join them, the states of the first two move over the lanes behind them: a
 * carry-less product with far and near, which is one more operand of the instruction.
 *
 * Bits are reflected: bit i of a state stands for x^(31-i). The product of two reflected numbers
 * has one x too many and the instruction multiplies by x^32, so a move over n bits is x^(n - 33)
 * mod P.
 */
typedef struct slg_crc32c_lanes {
    size_t lane;
    uint32_t far, near; /* x^(16*lane - 33), x^(8*lane - 33) mod P */
} slg_crc32c_lanes;

/* Three lanes just under 4 KiB, 1 KiB and 192 bytes: for pages, batches and records. */
#define SLG_LANES                      \
    {{1360, 0x5aa1f3cfU, 0x3f70cc6fU}, \
     {336, 0xcec3662eU, 0xa60ce07bU},  \
     {64, 0x0d3b6092U, 0x9e4addf8U}}

#endif
