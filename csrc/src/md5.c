#include "seglog/md5.h"

#include <string.h>

#include "md5_internal.h"

#define STEP(f, w, i, k, a, b, c, d, shift) \
    SLG_MD5_STEP(f, s[a], s[b], s[c], s[d], words[k], SLG_MD5_ADDENDS[(i) + (w)], shift)

/* Four steps over `words` and the state `s`. */
#define FOUR(f, i, k0, k1, k2, k3, s0, s1, s2, s3) \
    do {                                           \
        STEP(f, 0, i, k0, 0, 1, 2, 3, s0);         \
        STEP(f, 1, i, k1, 3, 0, 1, 2, s1);         \
        STEP(f, 2, i, k2, 2, 3, 0, 1, s2);         \
        STEP(f, 3, i, k3, 1, 2, 3, 0, s3);         \
    } while (0)

static void add_block(uint32_t *state, const uint8_t *block) {
    uint32_t words[SLG_MD5_WORDS], s[SLG_MD5_STATE];
    for (unsigned i = 0; i < SLG_MD5_WORDS; i++) {
        words[i] = slg_load_le32(block + 4 * i);
    }
    memcpy(s, state, sizeof s);
    SLG_MD5_ROUNDS(FOUR);
    for (unsigned i = 0; i < SLG_MD5_STATE; i++) {
        state[i] += s[i];
    }
}

/* The end of a message: `left` bytes, the bit after them, zeros. */
static void pad(uint8_t *block, const uint8_t *data, size_t left) {
    memset(block, 0, SLG_MD5_BLOCK_SIZE);
    if (left > 0) {
        memcpy(block, data, left);
    }
    block[left] = 0x80;
}

static void put_length(uint8_t *block, size_t size) {
    slg_md5_store(block + SLG_MD5_LENGTH_AT, (uint32_t)((uint64_t)size << 3));
    slg_md5_store(block + SLG_MD5_LENGTH_AT + 4, (uint32_t)((uint64_t)size >> 29));
}

void slg_md5(const uint8_t *data, size_t size, uint8_t *digest) {
    uint32_t state[SLG_MD5_STATE];
    uint8_t block[SLG_MD5_BLOCK_SIZE];
    size_t at = 0;
    memcpy(state, SLG_MD5_INITIAL, sizeof state);
    for (; size - at >= SLG_MD5_BLOCK_SIZE; at += SLG_MD5_BLOCK_SIZE) {
        add_block(state, data + at);
    }
    pad(block, data == NULL ? NULL : data + at, size - at);
    if (size - at > SLG_MD5_SHORT_MAX) {
        add_block(state, block);
        memset(block, 0, sizeof block);
    }
    put_length(block, size);
    add_block(state, block);
    for (unsigned i = 0; i < SLG_MD5_STATE; i++) {
        slg_md5_store(digest + 4 * i, state[i]);
    }
}

/*
 * Messages side by side in a vector, of which gcc and clang make what the processor has, one
 * register or several.
 */
enum { WIDTH = 8 };
typedef uint32_t lanes __attribute__((vector_size(4 * WIDTH)));

static void digest_lanes(const uint8_t *const *data, const uint32_t *sizes,
                         uint8_t (*digests)[SLG_MD5_SIZE]) {
    lanes words[SLG_MD5_WORDS] = {{0}}, s[SLG_MD5_STATE];
    for (unsigned lane = 0; lane < WIDTH; lane++) {
        const uint32_t whole = sizes[lane] / 4;
        for (uint32_t i = 0; i < whole; i++) {
            words[i][lane] = slg_load_le32(data[lane] + 4 * i);
        }
        words[whole][lane] = slg_md5_last_word(data[lane], sizes[lane]);
        words[SLG_MD5_LENGTH_AT / 4][lane] = sizes[lane] << 3;
    }
    for (unsigned i = 0; i < SLG_MD5_STATE; i++) {
        s[i] = (lanes){0} + SLG_MD5_INITIAL[i];
    }
    SLG_MD5_ROUNDS(FOUR);
    for (unsigned i = 0; i < SLG_MD5_STATE; i++) {
        s[i] += SLG_MD5_INITIAL[i];
        for (unsigned lane = 0; lane < WIDTH; lane++) {
            slg_md5_store(digests[lane] + 4 * i, s[i][lane]);
        }
    }
}

void slg_md5_lanes_portable(const uint8_t *const *data, const uint32_t *sizes,
                            uint8_t (*digests)[SLG_MD5_SIZE]) {
    for (unsigned lane = 0; lane < SLG_MD5_LANES; lane += WIDTH) {
        digest_lanes(data + lane, sizes + lane, digests + lane);
    }
}

void slg_md5_lanes(const uint8_t *const *data, const uint32_t *sizes,
                   uint8_t (*digests)[SLG_MD5_SIZE]) {
#ifdef SLG_MD5_HAVE_X86
    if (slg_md5_avx2_available()) {
        slg_md5_lanes_avx2(data, sizes, digests);
        return;
    }
#endif
    slg_md5_lanes_portable(data, sizes, digests);
}
