/* CRC-32 (IEEE) on x86-64: PCLMULQDQ folds a span to 16 bytes, whose CRC is the span's. */
#include "crc32c_kernels.h"

#ifdef SLG_CRC32C_HAVE_X86

#include <immintrin.h>

#define SLG_PCLMUL __attribute__((target("sse4.2,pclmul")))

/* x^(distance + 31) in the low half, x^(distance - 33) in the high half; crc32c_kernels.h. */
#define SLG_FOLD_512 0x1d9513d7LL, 0x8f352d95LL
#define SLG_FOLD_128 0xccaa009eLL, 0xae689191LL

SLG_PCLMUL static inline __m128i load(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* a moved over the distance of `factors`, plus b. */
SLG_PCLMUL static inline __m128i fold(__m128i a, __m128i factors, __m128i b) {
    const __m128i low = _mm_clmulepi64_si128(a, factors, 0x00);
    const __m128i high = _mm_clmulepi64_si128(a, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), b);
}

SLG_PCLMUL void slg_crc32_fold(uint32_t state, const uint8_t *p, size_t size, uint8_t rest[16]) {
    const __m128i by_64 = _mm_set_epi64x(SLG_FOLD_512);
    const __m128i by_16 = _mm_set_epi64x(SLG_FOLD_128);
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)state));
    __m128i b = load(p + 16);
    __m128i c = load(p + 32);
    __m128i d = load(p + 48);
    for (size -= 64, p += 64; size >= 64; size -= 64, p += 64) {
        a = fold(a, by_64, load(p));
        b = fold(b, by_64, load(p + 16));
        c = fold(c, by_64, load(p + 32));
        d = fold(d, by_64, load(p + 48));
    }
    a = fold(fold(fold(a, by_16, b), by_16, c), by_16, d);
    for (; size >= 16; size -= 16, p += 16) {
        a = fold(a, by_16, load(p));
    }
    _mm_storeu_si128((__m128i *)(void *)rest, a);
}

#endif
