/* Blocks of every size: no byte outside of the bound is written, and every element is within it. */
#include "seglog/snappy.h"

#include "check.h"

/* Decodes what the encoder writes; the bytes decoded. */
static size_t decode(const uint8_t *in, size_t size, uint8_t *out) {
    size_t at = 0, length = 0, done = 0;
    for (unsigned shift = 0;; shift += 7) {
        length |= (size_t)(in[at] & 0x7f) << shift;
        if (!(in[at++] & 0x80))
            break;
    }
    while (at < size) {
        uint8_t tag = in[at++];
        size_t count, offset;
        if ((tag & 3) == 0) {
            count = tag >> 2;
            if (count >= 60) {
                size_t bytes = count - 59;
                count = 0;
                for (size_t i = 0; i < bytes; i++) count |= (size_t)in[at++] << (8 * i);
            }
            count++;
            CHECK(at + count <= size && done + count <= length);
            memcpy(out + done, in + at, count);
            at += count;
            done += count;
            continue;
        }
        if ((tag & 3) == 1) {
            count = 4 + ((tag >> 2) & 7);
            offset = (size_t)(tag >> 5) << 8 | in[at++];
        } else {
            count = 1 + (tag >> 2);
            offset = in[at] | (size_t)in[at + 1] << 8;
            at += 2;
        }
        CHECK(offset > 0 && offset <= done && done + count <= length);
        for (; count > 0; count--, done++) out[done] = out[done - offset];
    }
    CHECK_EQ(done, length);
    return done;
}

static void check_block(const uint8_t *bytes, size_t size) {
    uint8_t *data = exact_copy(bytes, size);
    uint8_t *into = malloc(slg_snappy_bound(size));
    uint8_t *plain = malloc(size + 1);
    size_t written = slg_snappy_compress(data, size, into);
    CHECK(written <= slg_snappy_bound(size));
    CHECK_EQ(decode(into, written, plain), size);
    CHECK(memcmp(plain, bytes, size) == 0);
    free(plain);
    free(into);
    free(data);
}

int main(void) {
    static uint8_t bytes[SLG_SNAPPY_BLOCK_MAX];
    uint32_t state = 1;
    for (unsigned range = 1; range <= 256; range *= 2) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            state = state * 1664525 + 1013904223;
            bytes[i] = (uint8_t)((state >> 24) % range);
        }
        for (size_t size = 0; size < 400; size++) check_block(bytes, size);
        for (size_t size = 400; size <= sizeof bytes; size = size * 3 / 2 + 1)
            check_block(bytes, size);
        check_block(bytes, sizeof bytes);
    }
    return 0;
}
