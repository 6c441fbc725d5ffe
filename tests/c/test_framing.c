/* Blocks of lz4 frames and xerial streams: each cut at every byte, and what is no such framing. */
#include "seglog/framing.h"

#include "check.h"

typedef slg_frame next_function(const uint8_t *, size_t, size_t *, slg_block *);

/* Blocks until the end; -1 for SLG_FRAME_OTHER. Their bytes go to `plain` one after the other. */
static int count_blocks(next_function *next, const uint8_t *bytes, size_t size, uint8_t *plain) {
    uint8_t *exact = exact_copy(bytes, size);
    size_t position = 0;
    slg_block block;
    slg_frame frame;
    int blocks = 0;
    while ((frame = next(exact, size, &position, &block)) == SLG_FRAME_BLOCK) {
        CHECK(block.data >= exact && block.data + block.size <= exact + size);
        CHECK_EQ(position, (size_t)(block.data + block.size - exact));
        memcpy(plain, block.data, block.size);
        plain += block.size;
        blocks++;
    }
    free(exact);
    return frame == SLG_FRAME_END ? blocks : -1;
}

static void test_lz4(void) {
    const uint8_t frame[] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 2,   0, 0, 0, 'a',
                             'b',  3,    0,    0,    0x80, 'c',  'd',  'e', 0, 0, 0, 0};
    uint8_t plain[16];
    CHECK_EQ(count_blocks(slg_lz4_next, frame, sizeof frame, plain), 2);
    CHECK(memcmp(plain, "abcde", 5) == 0);
    for (size_t size = 0; size < sizeof frame; size++) {
        CHECK_EQ(count_blocks(slg_lz4_next, frame, size, plain), -1);
    }
    uint8_t longer[sizeof frame + 1] = {0};
    memcpy(longer, frame, sizeof frame);
    CHECK_EQ(count_blocks(slg_lz4_next, longer, sizeof longer, plain), -1);
    for (size_t at = 0; at < 7; at++) {
        memcpy(longer, frame, sizeof frame);
        longer[at] ^= 1;
        CHECK_EQ(count_blocks(slg_lz4_next, longer, sizeof frame, plain), -1);
    }
    const uint8_t lies[][4] = {{0, 0, 0, 0x80},
                               {1, 0, 1, 0},
                               {0xff, 0xff, 0xff, 0x7f},
                               {0xff, 0xff, 0xff, 0xff},
                               {14, 0, 0, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        memcpy(longer, frame, sizeof frame);
        memcpy(longer + 7, lies[i], 4);
        CHECK_EQ(count_blocks(slg_lz4_next, longer, sizeof frame, plain), -1);
    }
}

static void test_xerial(void) {
    const uint8_t stream[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1,   0,   0,  0,
                              1,    0,   0,   0,   2,   'a', 'b', 0, 0, 0, 3, 'c', 'd', 'e'};
    uint8_t plain[16];
    CHECK_EQ(count_blocks(slg_xerial_next, stream, sizeof stream, plain), 2);
    CHECK(memcmp(plain, "abcde", 5) == 0);
    for (size_t size = 0; size < sizeof stream; size++) {
        /* Cut behind the first block it is a whole stream; with the header alone it is none. */
        CHECK_EQ(count_blocks(slg_xerial_next, stream, size, plain), size == 22 ? 1 : -1);
    }
    uint8_t other[sizeof stream];
    for (size_t at = 0; at < 16; at++) {
        memcpy(other, stream, sizeof stream);
        other[at] ^= 2;
        CHECK_EQ(count_blocks(slg_xerial_next, other, sizeof other, plain), -1);
    }
    const uint8_t lies[][4] = {{0, 0, 0, 10},
                               {0x7f, 0xff, 0xff, 0xff},
                               {0xff, 0xff, 0xff, 0xff},
                               {0x82, 'S', 'N', 'A'},
                               {0x20, 0, 0, 1}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        memcpy(other, stream, sizeof stream);
        memcpy(other + 16, lies[i], 4);
        CHECK_EQ(count_blocks(slg_xerial_next, other, sizeof other, plain), -1);
    }
}

int main(void) {
    test_lz4();
    test_xerial();
    return 0;
}
