/*
 * Blocks of every size: no byte outside of the bound is written, and every element is within it.
 * The decoder reads them, elements that this encoder never writes, and refuses what is no block.
 */
#include "seglog/snappy.h"

#include <stdbool.h>

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

static ptrdiff_t decompress(const uint8_t *bytes, size_t size, uint8_t *plain, size_t room) {
    return decompress_exactly(slg_snappy_decompress, bytes, size, plain, room);
}

static void check_block(const uint8_t *bytes, size_t size) {
    uint8_t *data = exact_copy(bytes, size);
    uint8_t *into = malloc(slg_snappy_bound(size));
    uint8_t *plain = malloc(size + 1);
    size_t written = slg_snappy_compress(data, size, into);
    CHECK(written <= slg_snappy_bound(size));
    CHECK_EQ(decode(into, written, plain), size);
    CHECK(memcmp(plain, bytes, size) == 0);
    memset(plain, 0, size);
    CHECK_EQ(decompress(into, written, plain, size), size);
    CHECK(memcmp(plain, bytes, size) == 0);
    CHECK_EQ(decompress(into, written - 1, plain, size), -1);
    if (size > 0)
        CHECK_EQ(decompress(into, written, plain, size - 1), -1);
    free(plain);
    free(into);
    free(data);
}

/* Literals of long lengths, and copies of all kinds from all small offsets. */
static void check_elements(void) {
    static uint8_t block[70000], plain[70000];
    for (size_t bytes = 1; bytes <= 4; bytes++) {
        const size_t count = bytes == 1 ? 61 : bytes == 2 ? 400 : 66000;
        size_t at = 0;
        for (size_t rest = count; rest > 0; rest >>= 7)
            block[at++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        block[at++] = (uint8_t)((59 + bytes) << 2);
        for (size_t i = 0; i < bytes; i++) block[at++] = (uint8_t)((count - 1) >> 8 * i);
        for (size_t i = 0; i < count; i++) block[at++] = (uint8_t)i;
        CHECK_EQ(decompress(block, at, plain, sizeof plain), count);
        for (size_t i = 0; i < count; i++) CHECK_EQ(plain[i], (uint8_t)i);
        CHECK_EQ(decompress(block, at - 1, plain, sizeof plain), -1);
        CHECK_EQ(decompress(block, bytes + 1, plain, sizeof plain), -1);
    }
    for (unsigned kind = 1; kind <= 3; kind++) {
        for (size_t offset = 0; offset <= 25; offset++) {
            for (size_t count = 1; count <= (kind == 1 ? 11 : 64); count++) {
                if (kind == 1 && count < 4)
                    continue;
                size_t at = 0;
                block[at++] = (uint8_t)(24 + count);
                block[at++] = 23 << 2;
                for (size_t i = 0; i < 24; i++) block[at++] = (uint8_t)(i * 7);
                block[at++] = (uint8_t)(kind | (kind == 1 ? count - 4 : count - 1) << 2);
                block[at++] = (uint8_t)offset;
                for (size_t i = 1; i < (kind == 1 ? 1 : kind == 2 ? 2 : 4); i++) block[at++] = 0;
                for (size_t room = 24 + count; room < 24 + count + 40; room += 13) {
                    const bool is_sound = offset >= 1 && offset <= 24;
                    CHECK_EQ(decompress(block, at, plain, room),
                             is_sound ? (ptrdiff_t)(24 + count) : -1);
                    for (size_t i = 24; is_sound && i < 24 + count; i++)
                        CHECK_EQ(plain[i], plain[i - offset]);
                }
                CHECK_EQ(decompress(block, at - 1, plain, 200), -1);
                block[0]++; /* a byte is missing */
                CHECK_EQ(decompress(block, at, plain, 200), -1);
                block[0] -= 2; /* there is no place for the last */
                CHECK_EQ(decompress(block, at, plain, 200), -1);
            }
        }
    }
    const uint8_t long_length[] = {0x80, 0x80, 0x80, 0x80, 0};
    CHECK_EQ(decompress(long_length, sizeof long_length, plain, sizeof plain), -1);
    CHECK_EQ(decompress(long_length, 0, plain, sizeof plain), -1);
    const uint8_t one_too_many[] = {3, 3 << 2, 'a', 'b', 'c', 'd'};
    CHECK_EQ(decompress(one_too_many, sizeof one_too_many, plain, 3), -1);
}

static void check_changed(uint64_t *state) {
    static uint8_t bytes[4096], block[8192], plain[8192];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(random_next(state) % 5);
    const size_t size = slg_snappy_compress(bytes, sizeof bytes, block);
    for (int i = 0; i < 20; i++) {
        const size_t at = random_next(state) % size;
        const uint8_t before = block[at];
        block[at] = (uint8_t)random_next(state);
        decompress(block, size, plain, sizeof plain);
        block[at] = before;
    }
}

int main(void) {
    uint64_t random = 9;
    check_elements();
    for (int i = 0; i < 100; i++) check_changed(&random);
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
