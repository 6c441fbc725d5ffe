/* MD5 of 24 short messages with AVX2. The functions declare their own target, so the library runs
 * on any x86-64. */
#include "md5_internal.h"

#ifdef SLG_MD5_HAVE_X86

#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))
#define INLINE TARGET static inline __attribute__((always_inline))

/* Three vectors take turns, because each waits for its own step before: two leave units idle, and
 * four do not fit into the registers. */
enum { WIDTH = 8, VECTORS = SLG_MD5_LANES / WIDTH };
typedef uint32_t lanes __attribute__((vector_size(4 * WIDTH)));
typedef lanes words_of_lanes[SLG_MD5_WORDS];

bool slg_md5_avx2_available(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}

/* Read from 16 - n: the first n words, and word n. */
#define NONE_8 0, 0, 0, 0, 0, 0, 0, 0
#define ALL_8 -1, -1, -1, -1, -1, -1, -1, -1
static const int32_t FIRST_WORDS[32] = {ALL_8, ALL_8, NONE_8, NONE_8};
static const int32_t ONE_WORD[32] = {NONE_8, NONE_8, -1, 0, 0, 0, 0, 0, 0, 0, NONE_8};
enum { TABLES_FROM = 16 };

/* Words `from` to `from` + 8 of a padded message; reads no byte behind it. */
INLINE __m256i row(const uint8_t *data, uint32_t size, uint32_t from) {
    const size_t at = TABLES_FROM + from - size / 4;
    const __m256i mask = _mm256_loadu_si256((const void *)(FIRST_WORDS + at));
    const __m256i last = _mm256_loadu_si256((const void *)(ONE_WORD + at));
    const __m256i whole = _mm256_maskload_epi32((const void *)(data + (size_t)4 * from), mask);
    return _mm256_or_si256(
        whole, _mm256_and_si256(last, _mm256_set1_epi32((int)slg_md5_last_word(data, size))));
}

/* Eight rows become eight vectors of one word each. */
INLINE void transpose(const __m256i *r, lanes *words) {
    __m256i two[8], four[8];
    for (unsigned i = 0; i < 8; i += 2) {
        two[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
        two[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (unsigned i = 0; i < 8; i += 4) {
        four[i] = _mm256_unpacklo_epi64(two[i], two[i + 2]);
        four[i + 1] = _mm256_unpackhi_epi64(two[i], two[i + 2]);
        four[i + 2] = _mm256_unpacklo_epi64(two[i + 1], two[i + 3]);
        four[i + 3] = _mm256_unpackhi_epi64(two[i + 1], two[i + 3]);
    }
    for (unsigned i = 0; i < 4; i++) {
        words[i] = (lanes)_mm256_permute2x128_si256(four[i], four[i + 4], 0x20);
        words[i + 4] = (lanes)_mm256_permute2x128_si256(four[i], four[i + 4], 0x31);
    }
}

INLINE void place(const uint8_t *const *data, const uint32_t *sizes, lanes *words) {
    static const uint8_t empty[4] = {0};
    const uint8_t *from[WIDTH];
    __m256i rows[WIDTH];
    uint32_t longest = 0;
    for (unsigned lane = 0; lane < WIDTH; lane++) {
        from[lane] = sizes[lane] == 0 ? empty : data[lane];
        longest |= sizes[lane];
        rows[lane] = row(from[lane], sizes[lane], 0);
    }
    transpose(rows, words);
    if (longest < 4 * WIDTH) {
        for (unsigned i = WIDTH; i < SLG_MD5_WORDS; i++) {
            words[i] = (lanes){0};
        }
    } else {
        for (unsigned lane = 0; lane < WIDTH; lane++) {
            rows[lane] = sizes[lane] < 4 * WIDTH ? _mm256_setzero_si256()
                                                 : row(from[lane], sizes[lane], WIDTH);
        }
        transpose(rows, words + WIDTH);
    }
    words[SLG_MD5_LENGTH_AT / 4] = (lanes)_mm256_loadu_si256((const void *)sizes) << 3;
}

INLINE void store(const lanes *s, uint8_t (*digests)[SLG_MD5_SIZE]) {
    const __m256i a = (__m256i)s[0], b = (__m256i)s[1], c = (__m256i)s[2], d = (__m256i)s[3];
    const __m256i low_ab = _mm256_unpacklo_epi32(a, b), high_ab = _mm256_unpackhi_epi32(a, b);
    const __m256i low_cd = _mm256_unpacklo_epi32(c, d), high_cd = _mm256_unpackhi_epi32(c, d);
    const __m256i pairs[4] = {
        _mm256_unpacklo_epi64(low_ab, low_cd), _mm256_unpackhi_epi64(low_ab, low_cd),
        _mm256_unpacklo_epi64(high_ab, high_cd), _mm256_unpackhi_epi64(high_ab, high_cd)};
    for (unsigned i = 0; i < 4; i++) {
        _mm_storeu_si128((void *)digests[i], _mm256_castsi256_si128(pairs[i]));
        _mm_storeu_si128((void *)digests[i + 4], _mm256_extracti128_si256(pairs[i], 1));
    }
}

#define STEP(f, k, addend, a, b, c, d, shift)                                            \
    do {                                                                                 \
        SLG_MD5_STEP(f, s[0][a], s[0][b], s[0][c], s[0][d], words[0][k], addend, shift); \
        SLG_MD5_STEP(f, s[1][a], s[1][b], s[1][c], s[1][d], words[1][k], addend, shift); \
        SLG_MD5_STEP(f, s[2][a], s[2][b], s[2][c], s[2][d], words[2][k], addend, shift); \
    } while (0)

#define FOUR(f, i, k0, k1, k2, k3, s0, s1, s2, s3)     \
    do {                                               \
        STEP(f, k0, addends[i], 0, 1, 2, 3, s0);       \
        STEP(f, k1, addends[(i) + 1], 3, 0, 1, 2, s1); \
        STEP(f, k2, addends[(i) + 2], 2, 3, 0, 1, s2); \
        STEP(f, k3, addends[(i) + 3], 1, 2, 3, 0, s3); \
    } while (0)

TARGET void slg_md5_lanes_avx2(const uint8_t *const *data, const uint32_t *sizes,
                               uint8_t (*digests)[SLG_MD5_SIZE]) {
    const uint32_t *addends = SLG_MD5_ADDENDS;
    words_of_lanes words[VECTORS];
    lanes s[VECTORS][SLG_MD5_STATE];
    for (unsigned vector = 0; vector < VECTORS; vector++) {
        place(data + vector * WIDTH, sizes + vector * WIDTH, words[vector]);
        for (unsigned i = 0; i < SLG_MD5_STATE; i++) {
            s[vector][i] = (lanes){0} + SLG_MD5_INITIAL[i];
        }
    }
    /* Unknown to the compiler, they are broadcast from memory, which costs no vector unit. */
    __asm__("" : "+r"(addends));
    SLG_MD5_ROUNDS(FOUR);
    for (unsigned vector = 0; vector < VECTORS; vector++) {
        for (unsigned i = 0; i < SLG_MD5_STATE; i++) {
            s[vector][i] += SLG_MD5_INITIAL[i];
        }
        store(s[vector], digests + vector * WIDTH);
    }
}

#endif
