#include "seglog/framing.h"

#include <string.h>

#include "seglog/wire.h"

/* Magic, version 01 with independent blocks, blocks of 64 KiB, checksum of these two bytes. */
static const uint8_t LZ4_HEADER[] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82};

/* Magic, version 1, compatible with version 1. */
static const uint8_t XERIAL_HEADER[] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0,
                                        0,    0,   0,   1,   0,   0,   0,   1};

/* Larger chunks are left to the reference path, which knows what snappy-java does. */
enum { LENGTH_SIZE = 4, XERIAL_BLOCK_BYTES = 512 << 20 };

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
static slg_frame take_block(const uint8_t *payload, size_t size, size_t *position, size_t length,
                            slg_block *block) {
    const size_t from = *position + LENGTH_SIZE;
    if (length > size - from) {
        return SLG_FRAME_OTHER;
    }
    block->data = payload + from;
    block->size = length;
    *position = from + length;
    return SLG_FRAME_BLOCK;
}

slg_frame slg_lz4_next(const uint8_t *payload, size_t size, size_t *position, slg_block *block) {
    if (!pass_header(payload, size, position, LZ4_HEADER, sizeof LZ4_HEADER) || *position > size ||
        size - *position < LENGTH_SIZE) {
        return SLG_FRAME_OTHER;
    }
    const uint32_t field = slg_load_le32(payload + *position);
    const uint32_t length = field & 0x7fffffffU;
    if (field == 0) {
        return *position + LENGTH_SIZE == size ? SLG_FRAME_END : SLG_FRAME_OTHER;
    }
    if (length == 0 || length > SLG_LZ4_BLOCK_BYTES) {
        return SLG_FRAME_OTHER;
    }
    block->is_stored = field != length;
    return take_block(payload, size, position, length, block);
}

slg_frame slg_xerial_next(const uint8_t *payload, size_t size, size_t *position, slg_block *block) {
    if (!pass_header(payload, size, position, XERIAL_HEADER, sizeof XERIAL_HEADER)) {
        return SLG_FRAME_OTHER;
    }
    if (*position == size && size > sizeof XERIAL_HEADER) {
        return SLG_FRAME_END;
    }
    if (*position > size || size - *position < LENGTH_SIZE) {
        return SLG_FRAME_OTHER;
    }
    /* Another header in place of a length is not a length: its first bit is set. */
    const uint32_t length = slg_load_u32(payload + *position);
    if (length > XERIAL_BLOCK_BYTES) {
        return SLG_FRAME_OTHER;
    }
    block->is_stored = false;
    return take_block(payload, size, position, length, block);
}
