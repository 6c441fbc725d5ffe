#include "seglog/framing.h"

#include <stdbool.h>
#include <string.h>

#include "seglog/format.h"
#include "seglog/lz4.h"
#include "seglog/snappy.h"
#include "seglog/wire.h"

/* Magic, version 01 with independent blocks, blocks of 64 KiB, checksum of these two bytes. */
static const uint8_t LZ4_HEADER[] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82};

/* Magic, version 1, compatible with version 1. */
static const uint8_t XERIAL_HEADER[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,
                                        0,    0,   0,   1,   0,   0,   0,   1};

/* Larger chunks are left to the reference path, which knows what snappy-java does. */
enum { LENGTH_SIZE = 4, LZ4_BLOCK_BYTES = 64 << 10, XERIAL_BLOCK_BYTES = 512 << 20 };

typedef enum frame_step {
    NEXT_BLOCK, /* *block is the next one */
    AT_END,     /* the payload ends here, valid */
    OTHER,
} frame_step;

typedef struct framed_block {
    const uint8_t *data; /* in the payload */
    size_t size;
    bool is_stored; /* these bytes are uncompressed */
} framed_block;

/* At the start, skips the header; false for an unexpected one. */
static bool pass_header(const uint8_t *payload, size_t size, size_t *position,
                        const uint8_t *header, size_t header_size) {
    if (*position > 0) {
        return true;
    }
    *position = header_size;
    return size >= header_size && memcmp(payload, header, header_size) == 0;
}

/* A block of `length` bytes after its length field. */
static frame_step take_block(const uint8_t *payload, size_t size, size_t *position, size_t length,
                             framed_block *block) {
    const size_t from = *position + LENGTH_SIZE;
    if (length > size - from) {
        return OTHER;
    }
    block->data = payload + from;
    block->size = length;
    *position = from + length;
    return NEXT_BLOCK;
}

/* The block at *position, initially 0, which advances to the next block. */
static frame_step lz4_next(const uint8_t *payload, size_t size, size_t *position,
                           framed_block *block) {
    if (!pass_header(payload, size, position, LZ4_HEADER, sizeof LZ4_HEADER) || *position > size ||
        size - *position < LENGTH_SIZE) {
        return OTHER;
    }
    const uint32_t field = slg_load_le32(payload + *position);
    const uint32_t length = field & 0x7fffffffU;
    if (field == 0) {
        return *position + LENGTH_SIZE == size ? AT_END : OTHER;
    }
    if (length == 0 || length > LZ4_BLOCK_BYTES) {
        return OTHER;
    }
    block->is_stored = field != length;
    return take_block(payload, size, position, length, block);
}

static frame_step xerial_next(const uint8_t *payload, size_t size, size_t *position,
                              framed_block *block) {
    if (!pass_header(payload, size, position, XERIAL_HEADER, sizeof XERIAL_HEADER)) {
        return OTHER;
    }
    if (*position == size && size > sizeof XERIAL_HEADER) {
        return AT_END;
    }
    if (*position > size || size - *position < LENGTH_SIZE) {
        return OTHER;
    }
    /* Another header in place of a length is not a length: its first bit is set. */
    const uint32_t length = slg_load_u32(payload + *position);
    if (length > XERIAL_BLOCK_BYTES) {
        return OTHER;
    }
    block->is_stored = false;
    return take_block(payload, size, position, length, block);
}

ptrdiff_t slg_unframe(int codec, const uint8_t *payload, size_t size, uint8_t *into, size_t room) {
    const bool is_lz4 = codec == SLG_CODEC_LZ4;
    size_t position = 0, done = 0;
    if (!is_lz4 && codec != SLG_CODEC_SNAPPY) {
        return -1;
    }
    for (;;) {
        framed_block block;
        const frame_step step = is_lz4 ? lz4_next(payload, size, &position, &block)
                                       : xerial_next(payload, size, &position, &block);
        if (step != NEXT_BLOCK) {
            return step == AT_END ? (ptrdiff_t)done : -1;
        }
        /* The end of the room decides what lz4 accepts. */
        const size_t limit = is_lz4 ? LZ4_BLOCK_BYTES : room - done;
        if (limit > room - done) {
            return -1;
        }
        ptrdiff_t plain = (ptrdiff_t)block.size;
        if (block.is_stored) {
            memcpy(into + done, block.data, block.size);
        } else if (is_lz4) {
            plain = slg_lz4_decompress(block.data, block.size, into + done, limit);
        } else {
            plain = slg_snappy_decompress(block.data, block.size, into + done, limit);
        }
        if (plain < 0) {
            return -1;
        }
        done += (size_t)plain;
    }
}
