/* Drawn blocks beside a decoder of one byte at a time; each cut at every byte, changed, and in too
 * little room. */
#include "seglog/lz4.h"

#include <stdbool.h>

#include "check.h"

enum { BLOCK_MAX = 8192, PLAIN_MAX = 8192 };

typedef struct drawn_block {
    uint8_t bytes[BLOCK_MAX];
    size_t size;
    uint8_t plain[PLAIN_MAX];
    size_t plain_size;
} drawn_block;

static void put_length(drawn_block *block, size_t length) {
    if (length < 15) {
        return;
    }
    for (length -= 15; length >= 255; length -= 255) {
        block->bytes[block->size++] = 255;
    }
    block->bytes[block->size++] = (uint8_t)length;
}

static void put_literals(drawn_block *block, size_t literals, size_t match_less_4,
                         uint64_t *state) {
    block->bytes[block->size++] =
        (uint8_t)((literals < 15 ? literals : 15) << 4 | (match_less_4 < 15 ? match_less_4 : 15));
    put_length(block, literals);
    for (size_t i = 0; i < literals; i++) {
        const uint8_t byte = (uint8_t)random_next(state);
        block->bytes[block->size++] = byte;
        block->plain[block->plain_size++] = byte;
    }
}

static void put_match(drawn_block *block, size_t offset, size_t match) {
    block->bytes[block->size++] = (uint8_t)offset;
    block->bytes[block->size++] = (uint8_t)(offset >> 8);
    put_length(block, match - 4);
    for (size_t i = 0; i < match; i++, block->plain_size++) {
        block->plain[block->plain_size] = block->plain[block->plain_size - offset];
    }
}

/* Sequences of all kinds of lengths and offsets, and the literals that end every block. */
static void draw(drawn_block *block, uint64_t *state) {
    block->size = block->plain_size = 0;
    for (size_t i = random_next(state) % 12; i > 0; i--) {
        const bool is_long = random_next(state) % 8 == 0;
        const size_t literals = random_next(state) % (is_long ? 300 : 18);
        if (block->plain_size + literals == 0) {
            continue;
        }
        const size_t match = 4 + random_next(state) % (random_next(state) % 8 == 0 ? 600 : 36);
        put_literals(block, literals, match - 4, state);
        const size_t far = block->plain_size < 40 || random_next(state) % 2 ? block->plain_size
                                                                            : 40;
        put_match(block, 1 + random_next(state) % far, match);
    }
    put_literals(block, 12 + random_next(state) % 40, 0, state);
}

static ptrdiff_t decompress(const uint8_t *bytes, size_t size, uint8_t *plain, size_t room) {
    return decompress_exactly(slg_lz4_decompress, bytes, size, plain, room);
}

static void check_drawn(uint64_t *state) {
    static drawn_block block;
    static uint8_t plain[2 * PLAIN_MAX];
    draw(&block, state);
    const size_t rooms[] = {block.plain_size, block.plain_size + 1, block.plain_size + 70,
                            2 * PLAIN_MAX};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        CHECK_EQ(decompress(block.bytes, block.size, plain, rooms[i]), block.plain_size);
        CHECK(memcmp(plain, block.plain, block.plain_size) == 0);
    }
    CHECK_EQ(decompress(block.bytes, block.size, plain, block.plain_size - 1), -1);
    CHECK_EQ(decompress(block.bytes, block.size, plain, random_next(state) % block.plain_size), -1);
    for (size_t size = 0; size < block.size; size++) {
        /* Cut right after literals it is a whole block; cut anywhere else it has no end. */
        const ptrdiff_t found = decompress(block.bytes, size, plain, PLAIN_MAX);
        CHECK(found < (ptrdiff_t)block.plain_size);
        CHECK(found <= 0 || memcmp(plain, block.plain, (size_t)found) == 0);
    }
    for (int i = 0; i < 50; i++) {
        static uint8_t changed[BLOCK_MAX];
        memcpy(changed, block.bytes, block.size);
        changed[random_next(state) % block.size] = (uint8_t)random_next(state);
        decompress(changed, block.size, plain, PLAIN_MAX);
    }
}

static void check_refused(void) {
    /* The last literals are 12; "abcd" repeats from `offset` back. */
    uint8_t block[] = {0x40, 'a', 'b', 'c', 'd', 4,   0,   0xc0, '0', '1',
                       '2',  '3', '4', '5', '6', '7', '8', '9',  'x', 'y'};
    uint8_t plain[64];
    CHECK_EQ(decompress(block, sizeof block, plain, sizeof plain), 20);
    CHECK(memcmp(plain, "abcdabcd0123456789xy", 20) == 0);
    for (size_t offset = 0; offset < 65536; offset += offset < 8 ? 1 : 4099) {
        block[5] = (uint8_t)offset;
        block[6] = (uint8_t)(offset >> 8);
        CHECK_EQ(decompress(block, sizeof block, plain, sizeof plain),
                 offset >= 1 && offset <= 4 ? 20 : -1);
    }
    /* A match that ends in the room's last five bytes, or without literals after it. */
    const uint8_t margin[] = {0x1f, 'a', 1, 0, 0, 0x50, 'b', 'c', 'd', 'e', 'f'};
    CHECK_EQ(decompress(margin, sizeof margin, plain, 25), 25);
    CHECK_EQ(decompress(margin, sizeof margin, plain, 24), -1);
    CHECK_EQ(decompress(margin, 5, plain, sizeof plain), -1);
    /* Four literals at the end, behind a short match and behind a long one. */
    const uint8_t few[] = {0x10, 'a', 1, 0, 0x40, 'b', 'c', 'd', 'e'};
    CHECK_EQ(decompress(few, sizeof few, plain, sizeof plain), -1);
    const uint8_t few_after_long[] = {0x1f, 'a', 1, 0, 9, 0x40, 'b', 'c', 'd', 'e'};
    CHECK_EQ(decompress(few_after_long, sizeof few_after_long, plain, sizeof plain), -1);
    /* Lengths that go on to the end. */
    const uint8_t endless[] = {0xf0, 255, 255, 255};
    CHECK_EQ(decompress(endless, sizeof endless, plain, sizeof plain), -1);
    const uint8_t nothing[] = {0};
    CHECK_EQ(decompress(nothing, sizeof nothing, plain, sizeof plain), 0);
}

int main(void) {
    uint64_t state = 4;
    check_refused();
    for (int i = 0; i < 400; i++) {
        check_drawn(&state);
    }
    return 0;
}
