#include "seglog/snappy.h"

#include <string.h>

#include "lz_copy.h"
#include "seglog/wire.h"

enum {
    TABLE_BITS = 14,
    TABLE_MIN = 256,
    TABLE_MAX = 1 << TABLE_BITS,
    /* No search for matches this close to the end: literals are cheaper there. */
    MARGIN = 15,
    MATCH_MIN = 4,
    COPY_MAX = 64,
    /* A short copy has 3 bits for its length less 4, and 11 bits for its offset. */
    SHORT_COPY_END = 12,
    SHORT_OFFSET_END = 2048,
    /* Up to this length a literal's tag contains its length. */
    TAG_LITERAL_MAX = 60,
    LITERAL = 0,
    COPY_1 = 1,
    COPY_2 = 2,
    COPY_4 = 3,
    /* Four bytes of seven bits: 256 MiB, more than any block has room for. */
    LENGTH_BYTES_MAX = 4
};

size_t slg_snappy_bound(size_t size) { return 32 + size + size / 6; }

static uint8_t *emit_literal(uint8_t *out, const uint8_t *from, size_t size) {
    if (size == 0)
        return out;
    const uint32_t last = (uint32_t)size - 1;
    if (last < TAG_LITERAL_MAX) {
        *out++ = (uint8_t)(LITERAL | last << 2);
    } else {
        uint8_t *const tag = out++;
        unsigned count = 0;
        for (uint32_t rest = last; rest > 0; rest >>= 8, count++) *out++ = (uint8_t)rest;
        *tag = (uint8_t)(LITERAL | (TAG_LITERAL_MAX - 1 + count) << 2);
    }
    memcpy(out, from, size);
    return out + size;
}

static uint8_t *emit_long_copy(uint8_t *out, uint32_t offset, uint32_t size) {
    *out++ = (uint8_t)(COPY_2 | (size - 1) << 2);
    *out++ = (uint8_t)offset;
    *out++ = (uint8_t)(offset >> 8);
    return out;
}

static uint8_t *emit_copy(uint8_t *out, uint32_t offset, uint32_t size) {
    /* The rest after the long copies is never shorter than the shortest match. */
    for (; size >= COPY_MAX + MATCH_MIN; size -= COPY_MAX)
        out = emit_long_copy(out, offset, COPY_MAX);
    if (size > COPY_MAX) {
        out = emit_long_copy(out, offset, COPY_MAX - MATCH_MIN);
        size -= COPY_MAX - MATCH_MIN;
    }
    if (size >= SHORT_COPY_END || offset >= SHORT_OFFSET_END)
        return emit_long_copy(out, offset, size);
    *out++ = (uint8_t)(COPY_1 | (size - MATCH_MIN) << 2 | offset >> 8 << 5);
    *out++ = (uint8_t)offset;
    return out;
}

/* The table size is a power of two, at least the number of bytes up to its maximum. */
static uint32_t table_size(size_t size) {
    uint32_t found = TABLE_MIN;
    while (found < TABLE_MAX && found < size) found <<= 1;
    return found;
}

/* The best bits of the product; a smaller table drops the high ones of these. */
static uint32_t slot(uint32_t bytes, uint32_t mask) {
    return bytes * 0x1e35a7bdU >> (32 - TABLE_BITS) & mask;
}

static uint8_t *compress_fragment(const uint8_t *data, size_t size, uint8_t *out) {
    uint16_t table[TABLE_MAX];
    const uint32_t entries = table_size(size), mask = entries - 1;
    const size_t limit = size - MARGIN;
    size_t emitted = 0, at = 1;
    memset(table, 0, entries * sizeof *table);
    for (;;) {
        size_t found;
        /* Steps grow while no match is found: 32 steps of 1 byte, then of 2, ... */
        for (uint32_t skip = 32;;) {
            const uint32_t bytes = slg_load_le32(data + at), step = skip >> 5;
            const size_t next = at + step;
            skip += step;
            if (next > limit)
                return emit_literal(out, data + emitted, size - emitted);
            uint16_t *const entry = table + slot(bytes, mask);
            found = *entry;
            *entry = (uint16_t)at;
            if (slg_load_le32(data + found) == bytes)
                break;
            at = next;
        }
        out = emit_literal(out, data + emitted, at - emitted);
        uint32_t bytes;
        do {
            size_t end = at + MATCH_MIN;
            while (end < size && data[end] == data[found + (end - at)]) end++;
            out = emit_copy(out, (uint32_t)(at - found), (uint32_t)(end - at));
            emitted = at = end;
            if (at >= limit)
                return emit_literal(out, data + emitted, size - emitted);
            table[slot(slg_load_le32(data + at - 1), mask)] = (uint16_t)(at - 1);
            bytes = slg_load_le32(data + at);
            uint16_t *const entry = table + slot(bytes, mask);
            found = *entry;
            *entry = (uint16_t)at;
        } while (slg_load_le32(data + found) == bytes);
        at++;
    }
}

size_t slg_snappy_compress(const uint8_t *data, size_t size, uint8_t *out) {
    uint8_t *const begin = out;
    size_t rest = size;
    for (; rest >= 0x80; rest >>= 7) *out++ = (uint8_t)(rest | 0x80);
    *out++ = (uint8_t)rest;
    out = size < MARGIN ? emit_literal(out, data, size) : compress_fragment(data, size, out);
    return (size_t)(out - begin);
}

/* The size in front of a block. False if it does not end. */
static bool read_length(const uint8_t **in, const uint8_t *in_end, size_t *length) {
    *length = 0;
    for (unsigned i = 0; i < LENGTH_BYTES_MAX && *in < in_end; i++) {
        const uint8_t byte = *(*in)++;
        *length |= (size_t)(byte & 0x7f) << 7 * i;
        if (byte < 0x80) {
            return true;
        }
    }
    return false;
}

/* A number of 1 to 4 bytes. */
static size_t load_le(const uint8_t *in, size_t size) {
    size_t value = 0;
    for (size_t i = 0; i < size; i++) value |= (size_t)in[i] << 8 * i;
    return value;
}

ptrdiff_t slg_snappy_decompress(const uint8_t *block, size_t size, uint8_t *into, size_t room) {
    /* How many bytes of a copy's offset follow its tag. */
    static const uint8_t offset_sizes[] = {[COPY_1] = 1, [COPY_2] = 2, [COPY_4] = 4};
    const uint8_t *in = block, *const in_end = block + size;
    uint8_t *out = into, *const room_end = into + room;
    size_t left;
    if (!read_length(&in, in_end, &left) || left > room) {
        return -1;
    }
    const ptrdiff_t length = (ptrdiff_t)left;
    while (in < in_end) {
        const unsigned tag = *in++, kind = tag & 3;
        size_t count = (tag >> 2) + 1;
        if (kind == LITERAL) {
            if (count > TAG_LITERAL_MAX) {
                const size_t bytes = count - TAG_LITERAL_MAX;
                if ((size_t)(in_end - in) < bytes) {
                    return -1;
                }
                count = load_le(in, bytes) + 1;
                in += bytes;
            }
            if (count > (size_t)(in_end - in) || count > left) {
                return -1;
            }
            lz_copy_literals(out, room_end, in, in_end, count);
            in += count;
        } else {
            const size_t bytes = offset_sizes[kind];
            if ((size_t)(in_end - in) < bytes) {
                return -1;
            }
            size_t offset = load_le(in, bytes);
            in += bytes;
            if (kind == COPY_1) {
                count = MATCH_MIN + (tag >> 2 & 7);
                offset |= (size_t)(tag >> 5) << 8;
            }
            if (offset == 0 || offset > (size_t)(out - into) || count > left) {
                return -1;
            }
            lz_copy_match(out, room_end, offset, count);
        }
        out += count;
        left -= count;
    }
    return left == 0 ? length : -1;
}
