#include "seglog/framing.h"

#include <stdbool.h>
#include <string.h>

#include "seglog/format.h"
#include "seglog/lz4.h"
#include "seglog/snappy.h"
#include "seglog/wire.h"

enum {
    LENGTH_SIZE = 4,
    LZ4_MAGIC_SIZE = 4,
    LZ4_DESCRIPTOR = LZ4_MAGIC_SIZE,
    LZ4_DESCRIPTOR_MIN = 2,
    /* Version 01 with independent blocks, and what else a header may announce. */
    LZ4_FLAGS = 0x60,
    LZ4_HAS_CONTENT_SIZE = 0x08,
    LZ4_HAS_CONTENT_CHECKSUM = 0x04,
    LZ4_CONTENT_SIZE = 8,
    LZ4_CONTENT_CHECKSUM = 4,
    LZ4_BLOCKS_MIN = 4, /* 64 KiB; each next is four times as large, up to 4 MiB */
    LZ4_BLOCKS_MAX = 7,
    /* Larger chunks are left to the reference path, which knows what snappy-java does. */
    XERIAL_BLOCK_BYTES = 512 << 20
};

static const uint8_t LZ4_MAGIC[LZ4_MAGIC_SIZE] = {0x04, 0x22, 0x4d, 0x18};

/* Magic, version 1, compatible with version 1. */
static const uint8_t XERIAL_HEADER[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,
                                        0,    0,   0,   1,   0,   0,   0,   1};

/* XXH32 of fewer than 16 bytes, of which an lz4 frame's header has one byte. */
static uint8_t header_checksum(const uint8_t *data, size_t size) {
    const uint32_t prime1 = 0x9e3779b1, prime2 = 0x85ebca77, prime3 = 0xc2b2ae3d,
                   prime4 = 0x27d4eb2f, prime5 = 0x165667b1;
    uint32_t hash = prime5 + (uint32_t)size;
    size_t at = 0;
    for (; at + 4 <= size; at += 4) {
        hash += slg_load_le32(data + at) * prime3;
        hash = (hash << 17 | hash >> 15) * prime4;
    }
    for (; at < size; at++) {
        hash += data[at] * prime5;
        hash = (hash << 11 | hash >> 21) * prime1;
    }
    hash = (hash ^ hash >> 15) * prime2;
    hash = (hash ^ hash >> 13) * prime3;
    return (uint8_t)((hash ^ hash >> 16) >> 8);
}

/* The size of a frame's header, and of its largest block; 0 for a header of another kind. */
static size_t lz4_header(const uint8_t *payload, size_t size, unsigned *flags, size_t *block_max) {
    if (size <= LZ4_DESCRIPTOR + LZ4_DESCRIPTOR_MIN ||
        memcmp(payload, LZ4_MAGIC, LZ4_MAGIC_SIZE) != 0) {
        return 0;
    }
    const unsigned blocks = payload[LZ4_DESCRIPTOR + 1] >> 4;
    *flags = payload[LZ4_DESCRIPTOR];
    if ((*flags & ~(LZ4_HAS_CONTENT_SIZE | LZ4_HAS_CONTENT_CHECKSUM)) != LZ4_FLAGS ||
        blocks < LZ4_BLOCKS_MIN || blocks > LZ4_BLOCKS_MAX ||
        (payload[LZ4_DESCRIPTOR + 1] & 0xf) != 0) {
        return 0;
    }
    *block_max = (size_t)1 << (2 * blocks + 8);
    const size_t descriptor = LZ4_DESCRIPTOR_MIN +
                              (*flags & LZ4_HAS_CONTENT_SIZE ? LZ4_CONTENT_SIZE : 0);
    const size_t end = LZ4_DESCRIPTOR + descriptor;
    /* Magic 0 has another checksum, and is left to the reference path. */
    return size > end && header_checksum(payload + LZ4_DESCRIPTOR, descriptor) == payload[end]
               ? end + 1
               : 0;
}

static ptrdiff_t unframe_lz4(const uint8_t *payload, size_t size, uint8_t *into, size_t room) {
    unsigned flags;
    size_t block_max, done = 0;
    size_t at = lz4_header(payload, size, &flags, &block_max);
    if (at == 0) {
        return -1;
    }
    while (size - at >= LENGTH_SIZE) {
        const uint32_t field = slg_load_le32(payload + at);
        const size_t length = field & 0x7fffffffU;
        at += LENGTH_SIZE;
        if (field == 0) {
            const size_t rest = flags & LZ4_HAS_CONTENT_CHECKSUM ? LZ4_CONTENT_CHECKSUM : 0;
            return size - at == rest ? (ptrdiff_t)done : -1; /* Kafka ignores the checksum */
        }
        /* Less room than this makes the decoder refuse more, but never accept more. */
        const size_t limit = block_max < room - done ? block_max : room - done;
        if (length == 0 || length > block_max || length > size - at) {
            return -1;
        }
        ptrdiff_t plain = (ptrdiff_t)length;
        if (field == length) {
            plain = slg_lz4_decompress(payload + at, length, into + done, limit);
        } else if (length <= limit) {
            memcpy(into + done, payload + at, length);
        } else {
            plain = -1;
        }
        if (plain < 0) {
            return -1;
        }
        at += length;
        done += (size_t)plain;
    }
    return -1;
}

static ptrdiff_t unframe_xerial(const uint8_t *payload, size_t size, uint8_t *into, size_t room) {
    size_t at = sizeof XERIAL_HEADER, done = 0;
    if (size <= at || memcmp(payload, XERIAL_HEADER, at) != 0) {
        return -1;
    }
    while (at < size) {
        if (size - at < LENGTH_SIZE) {
            return -1;
        }
        /* Another header in place of a length is not a length: its first bit is set. */
        const size_t length = slg_load_u32(payload + at);
        at += LENGTH_SIZE;
        if (length > XERIAL_BLOCK_BYTES || length > size - at) {
            return -1;
        }
        const ptrdiff_t plain =
            slg_snappy_decompress(payload + at, length, into + done, room - done);
        if (plain < 0) {
            return -1;
        }
        at += length;
        done += (size_t)plain;
    }
    return (ptrdiff_t)done;
}

ptrdiff_t slg_unframe(int codec, const uint8_t *payload, size_t size, uint8_t *into, size_t room) {
    switch (codec) {
    case SLG_CODEC_LZ4: return unframe_lz4(payload, size, into, room);
    case SLG_CODEC_SNAPPY: return unframe_xerial(payload, size, into, room);
    default: return -1;
    }
}
