/*
 * The steps of MD5 (RFC 1321), over the words of one message or over vectors with a lane for each
 * of several. Shared by the kernel files, private to csrc/src.
 */
#ifndef SEGLOG_MD5_INTERNAL_H
#define SEGLOG_MD5_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "seglog/md5.h"
#include "seglog/wire.h"

enum {
    SLG_MD5_BLOCK_SIZE = 64,
    SLG_MD5_WORDS = SLG_MD5_BLOCK_SIZE / 4,
    SLG_MD5_LENGTH_AT = 56, /* of the message, in bits */
    SLG_MD5_STEPS = 64,
    SLG_MD5_STATE = 4
};

/* Step i adds floor(2^32 * abs(sin(i + 1))). */
static const uint32_t SLG_MD5_ADDENDS[SLG_MD5_STEPS] = {
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391};

static const uint32_t SLG_MD5_INITIAL[SLG_MD5_STATE] = {0x67452301, 0xefcdab89, 0x98badcfe,
                                                        0x10325476};

/* The sum of a step's function and `a`. Only the last addition waits for b, the step before. */
#define SLG_MD5_F(a, b, c, d) ((a) + ((d) ^ ((b) & ((c) ^ (d)))))
#define SLG_MD5_G(a, b, c, d) ((a) + ((c) & ~(d)) + ((b) & (d)))
#define SLG_MD5_H(a, b, c, d) ((a) + ((b) ^ ((c) ^ (d))))
#define SLG_MD5_I(a, b, c, d) ((a) + ((c) ^ ((b) | ~(d))))

#define SLG_MD5_STEP(f, a, b, c, d, word, addend, shift)          \
    do {                                                          \
        (a) = f((a) + (word) + (addend), b, c, d);                \
        (a) = (((a) << (shift)) | ((a) >> (32 - (shift)))) + (b); \
    } while (0)

/* All steps, four at a time: DO(function, first step, words, shifts). */
#define SLG_MD5_ROUNDS(DO)                                \
    do {                                                  \
        DO(SLG_MD5_F, 0, 0, 1, 2, 3, 7, 12, 17, 22);      \
        DO(SLG_MD5_F, 4, 4, 5, 6, 7, 7, 12, 17, 22);      \
        DO(SLG_MD5_F, 8, 8, 9, 10, 11, 7, 12, 17, 22);    \
        DO(SLG_MD5_F, 12, 12, 13, 14, 15, 7, 12, 17, 22); \
        DO(SLG_MD5_G, 16, 1, 6, 11, 0, 5, 9, 14, 20);     \
        DO(SLG_MD5_G, 20, 5, 10, 15, 4, 5, 9, 14, 20);    \
        DO(SLG_MD5_G, 24, 9, 14, 3, 8, 5, 9, 14, 20);     \
        DO(SLG_MD5_G, 28, 13, 2, 7, 12, 5, 9, 14, 20);    \
        DO(SLG_MD5_H, 32, 5, 8, 11, 14, 4, 11, 16, 23);   \
        DO(SLG_MD5_H, 36, 1, 4, 7, 10, 4, 11, 16, 23);    \
        DO(SLG_MD5_H, 40, 13, 0, 3, 6, 4, 11, 16, 23);    \
        DO(SLG_MD5_H, 44, 9, 12, 15, 2, 4, 11, 16, 23);   \
        DO(SLG_MD5_I, 48, 0, 7, 14, 5, 6, 10, 15, 21);    \
        DO(SLG_MD5_I, 52, 12, 3, 10, 1, 6, 10, 15, 21);   \
        DO(SLG_MD5_I, 56, 8, 15, 6, 13, 6, 10, 15, 21);   \
        DO(SLG_MD5_I, 60, 4, 11, 2, 9, 6, 10, 15, 21);    \
    } while (0)

static inline void slg_md5_store(uint8_t *p, uint32_t value) {
    value = SLG_LE32(value);
    memcpy(p, &value, sizeof value);
}

/* The word in which a short message ends: the bytes after its whole words, and the bit after
 * those. */
static inline uint32_t slg_md5_last_word(const uint8_t *data, uint32_t size) {
    const uint32_t left = size & 3, bit = UINT32_C(0x80) << 8 * left;
    uint32_t rest = 0;
    if (size >= 4) {
        return (uint32_t)((uint64_t)slg_load_le32(data + size - 4) >> (32 - 8 * left)) | bit;
    }
    for (uint32_t i = 0; i < left; i++) {
        rest |= (uint32_t)data[i] << 8 * i;
    }
    return rest | bit;
}

void slg_md5_lanes_portable(const uint8_t *const *data, const uint32_t *sizes,
                            uint8_t (*digests)[SLG_MD5_SIZE]);

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SLG_MD5_HAVE_X86 1
bool slg_md5_avx2_available(void);
void slg_md5_lanes_avx2(const uint8_t *const *data, const uint32_t *sizes,
                        uint8_t (*digests)[SLG_MD5_SIZE]);
#endif

#endif
