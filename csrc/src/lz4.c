#include "seglog/lz4.h"

#include <stdbool.h>

#include "lz_copy.h"

enum {
    MATCH_MIN = 4,
    LONG_LENGTH = 15, /* a length of four bits that goes on in the next bytes */
    OFFSET_SIZE = 2,
    /* Every encoder ends a block with so many literals, and its last match before the margin. */
    LAST_LITERALS = 5,
    INPUT_MARGIN = OFFSET_SIZE + 1 + LAST_LITERALS,
    OUTPUT_MARGIN = 12,
    SHORT_MATCH_MAX = LONG_LENGTH - 1 + MATCH_MIN,
    /* With this much left neither literals nor a match of short lengths can meet an end. */
    SHORT_INPUT = LZ_PAIR + INPUT_MARGIN,
    SHORT_OUTPUT = LONG_LENGTH - 1 + SHORT_MATCH_MAX + OUTPUT_MARGIN,
};

static size_t load_offset(const uint8_t *in) { return in[0] | (size_t)in[1] << 8; }

/* Adds the bytes that continue a length. False if they do not end. */
static bool extend(const uint8_t **in, const uint8_t *in_end, size_t *length) {
    unsigned byte;
    do {
        if (*in == in_end) {
            return false;
        }
        byte = *(*in)++;
        *length += byte;
    } while (byte == UINT8_MAX);
    return true;
}

ptrdiff_t slg_lz4_decompress(const uint8_t *block, size_t size, uint8_t *into, size_t room) {
    const uint8_t *in = block, *const in_end = block + size;
    uint8_t *out = into, *const out_end = into + room;
    while (in < in_end) {
        const unsigned token = *in++;
        size_t literals = token >> 4, length = token & 0xf, offset;
        if (literals < LONG_LENGTH && in_end - in >= SHORT_INPUT && out_end - out >= SHORT_OUTPUT) {
            memcpy(out, in, LZ_PAIR);
            in += literals;
            out += literals;
            offset = load_offset(in);
            if (length < LONG_LENGTH && offset >= LZ_PAIR && offset <= (size_t)(out - into)) {
                /* Nearly every match: two copies that need no look at its length. */
                memcpy(out, out - offset, LZ_PAIR);
                memcpy(out + LZ_PAIR, out + LZ_PAIR - offset, SHORT_MATCH_MAX - LZ_PAIR);
                in += OFFSET_SIZE;
                out += length + MATCH_MIN;
                continue;
            }
        } else {
            if (literals == LONG_LENGTH && !extend(&in, in_end, &literals)) {
                return -1;
            }
            if (literals > (size_t)(in_end - in) || literals > (size_t)(out_end - out)) {
                return -1;
            }
            lz_copy_literals(out, out_end, in, in_end, literals);
            in += literals;
            out += literals;
            if (in == in_end) {
                return out - into;
            }
            if (in_end - in < INPUT_MARGIN || out_end - out < OUTPUT_MARGIN) {
                return -1;
            }
            offset = load_offset(in);
        }
        in += OFFSET_SIZE;
        if (length == LONG_LENGTH &&
            (!extend(&in, in_end, &length) || in_end - in <= LAST_LITERALS)) {
            return -1;
        }
        length += MATCH_MIN;
        if (offset == 0 || offset > (size_t)(out - into) || length > (size_t)(out_end - out)) {
            return -1;
        }
        lz_copy_match(out, out_end, offset, length);
        out += length;
    }
    return -1;
}
