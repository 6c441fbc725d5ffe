/* lz4 frames and xerial streams: each cut at every byte, and what is no such framing. */
#include "seglog/framing.h"

#include <stdbool.h>

#include "check.h"
#include "seglog/format.h"

enum { ROOM = 2 * 65536 };

static uint8_t plain[ROOM];

static int chosen_codec;

static ptrdiff_t unframe_chosen(const uint8_t *bytes, size_t size, uint8_t *into, size_t room) {
    return slg_unframe(chosen_codec, bytes, size, into, room);
}

static ptrdiff_t unframe(int codec, const uint8_t *bytes, size_t size, size_t room) {
    chosen_codec = codec;
    return decompress_exactly(unframe_chosen, bytes, size, plain, room);
}

static void test_lz4(void) {
    /* A block of two literals, and one of three stored bytes. */
    const uint8_t frame[] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 3,   0, 0, 0, 0x20, 'a',
                             'b',  3,    0,    0,    0x80, 'c',  'd',  'e', 0, 0, 0, 0};
    const int codec = SLG_CODEC_LZ4;
    CHECK_EQ(unframe(codec, frame, sizeof frame, ROOM), 5);
    CHECK(memcmp(plain, "abcde", 5) == 0);
    CHECK_EQ(unframe(codec, frame, sizeof frame, 5), 5);
    for (size_t room = 0; room < 5; room++) {
        CHECK_EQ(unframe(codec, frame, sizeof frame, room), -1);
    }
    for (size_t size = 0; size < sizeof frame; size++) {
        CHECK_EQ(unframe(codec, frame, size, ROOM), -1);
    }
    uint8_t longer[sizeof frame + 1] = {0};
    memcpy(longer, frame, sizeof frame);
    CHECK_EQ(unframe(codec, longer, sizeof longer, ROOM), -1);
    for (size_t at = 0; at < 7; at++) {
        memcpy(longer, frame, sizeof frame);
        longer[at] ^= 1;
        CHECK_EQ(unframe(codec, longer, sizeof frame, ROOM), -1);
    }
    const uint8_t lies[][4] = {
        {0, 0, 0, 0x80},          {1, 0, 1, 0}, {2, 0, 0, 0}, {0xff, 0xff, 0xff, 0x7f},
        {0xff, 0xff, 0xff, 0xff}, {15, 0, 0, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        memcpy(longer, frame, sizeof frame);
        memcpy(longer + 7, lies[i], 4);
        CHECK_EQ(unframe(codec, longer, sizeof frame, ROOM), -1);
    }
    const int others[] = {SLG_CODEC_NONE, SLG_CODEC_GZIP, SLG_CODEC_SNAPPY, SLG_CODEC_ZSTD, 5, -1};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        CHECK_EQ(unframe(others[i], frame, sizeof frame, ROOM), -1);
    }
}

/* Headers of other clients; the checksums are those of the reference implementation. */
static void test_lz4_headers(void) {
    const struct {
        uint8_t descriptor[11]; /* with its checksum */
        size_t size;
        size_t after; /* bytes after the end mark */
        bool is_accepted;
    } headers[] = {
        {{0x60, 0x40, 0x82}, 3, 0, true},
        {{0x60, 0x40, 0x82}, 3, 4, false},
        {{0x64, 0x40, 0xa7}, 3, 4, true},
        {{0x64, 0x40, 0xa7}, 3, 0, false},
        {{0x64, 0x40, 0xa7}, 3, 3, false},
        {{0x60, 0x70, 0x73}, 3, 0, true},
        {{0x64, 0x70, 0xb9}, 3, 4, true},
        {{0x68, 0x40, 5, 0, 0, 0, 0, 0, 0, 0, 0x61}, 11, 0, true},
        {{0x6c, 0x60, 5, 0, 0, 0, 0, 0, 0, 0, 0x9a}, 11, 4, true},
        {{0x68, 0x40, 5, 0, 0, 0, 0, 0, 0, 0, 0x62}, 11, 0, false},
        {{0x40, 0x40, 0xc0}, 3, 0, false}, /* dependent blocks */
        {{0x70, 0x40, 0xad}, 3, 0, false}, /* checksums of blocks */
        {{0x60, 0x30, 0xd4}, 3, 0, false}, /* no such size of blocks */
        {{0x61, 0x40, 0xa1}, 3, 0, false}, /* a dictionary */
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        uint8_t frame[64] = {0x04, 0x22, 0x4d, 0x18};
        const uint8_t blocks[] = {6, 0, 0, 0, 0x50, 'a', 'b', 'c', 'd', 'e', 0, 0, 0, 0};
        const size_t size = 4 + headers[i].size + sizeof blocks + headers[i].after;
        memcpy(frame + 4, headers[i].descriptor, headers[i].size);
        memcpy(frame + 4 + headers[i].size, blocks, sizeof blocks);
        CHECK_EQ(unframe(SLG_CODEC_LZ4, frame, size, ROOM), headers[i].is_accepted ? 5 : -1);
        CHECK(!headers[i].is_accepted || memcmp(plain, "abcde", 5) == 0);
        for (size_t cut = 0; headers[i].is_accepted && cut < size; cut++) {
            CHECK_EQ(unframe(SLG_CODEC_LZ4, frame, cut, ROOM), -1);
        }
    }
}

static void test_xerial(void) {
    /* Blocks of two and of three literals. */
    const uint8_t stream[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0,   0,   1,  0,
                              0,    0,   4,   2,   4,   'a', 'b', 0, 0, 0, 5, 3, 8, 'c', 'd', 'e'};
    const int codec = SLG_CODEC_SNAPPY;
    CHECK_EQ(unframe(codec, stream, sizeof stream, ROOM), 5);
    CHECK(memcmp(plain, "abcde", 5) == 0);
    CHECK_EQ(unframe(codec, stream, sizeof stream, 5), 5);
    CHECK_EQ(unframe(codec, stream, sizeof stream, 4), -1);
    for (size_t size = 0; size < sizeof stream; size++) {
        /* Cut behind the first block it is a whole stream; with the header alone it is none. */
        CHECK_EQ(unframe(codec, stream, size, ROOM), size == 24 ? 2 : -1);
    }
    uint8_t other[sizeof stream];
    for (size_t at = 0; at < 16; at++) {
        memcpy(other, stream, sizeof stream);
        other[at] ^= 2;
        CHECK_EQ(unframe(codec, other, sizeof other, ROOM), -1);
    }
    const uint8_t lies[][4] = {
        {0, 0, 0, 14},         {0, 0, 0, 3},   {0x7f, 0xff, 0xff, 0xff}, {0xff, 0xff, 0xff, 0xff},
        {0x82, 'S', 'N', 'A'}, {0x20, 0, 0, 1}};
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        memcpy(other, stream, sizeof stream);
        memcpy(other + 16, lies[i], 4);
        CHECK_EQ(unframe(codec, other, sizeof other, ROOM), -1);
    }
}

int main(void) {
    test_lz4();
    test_lz4_headers();
    test_xerial();
    return 0;
}
