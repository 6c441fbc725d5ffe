/* The two copies of the decoders of lz4 and snappy, which move whole words where there is room. */
#ifndef SEGLOG_LZ_COPY_H
#define SEGLOG_LZ_COPY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "seglog/wire.h"

enum { LZ_WORD = 8, LZ_PAIR = 16 };

/* Copies `size` literals; with LZ_PAIR more bytes in front of both ends, by pairs of words. */
static inline void lz_copy_literals(uint8_t *out, const uint8_t *out_end, const uint8_t *in,
                                    const uint8_t *in_end, size_t size) {
    if ((size_t)(out_end - out) < size + LZ_PAIR || (size_t)(in_end - in) < size + LZ_PAIR) {
        memcpy(out, in, size);
        return;
    }
    for (size_t at = 0; at < size; at += LZ_PAIR) {
        memcpy(out + at, in + at, LZ_PAIR);
    }
}

/*
 * Repeats `size` bytes from `offset` bytes back, which the caller has checked: 1 or more, and
 * within what was written. Writes nothing from `end` on.
 */
static inline void lz_copy_match(uint8_t *out, const uint8_t *end, size_t offset, size_t size) {
    const uint8_t *from = out - offset;
    if ((size_t)(end - out) < size + LZ_PAIR) {
        for (size_t at = 0; at < size; at++) {
            out[at] = from[at];
        }
        return;
    }
    if (offset >= LZ_PAIR) {
        size_t at = 0;
        do {
            memcpy(out + at, from + at, LZ_PAIR);
            at += LZ_PAIR;
        } while (at < size);
        return;
    }
    size_t at = 0;
    if (offset < LZ_WORD) {
        uint64_t word = slg_load_le64(from) & ((UINT64_C(1) << 8 * offset) - 1);
        for (size_t bits = 8 * offset; bits < 64; bits *= 2) {
            word |= word << bits;
        }
        word = SLG_LE64(word);
        memcpy(out, &word, LZ_WORD);
        at = LZ_WORD;
        /* What repeats every `offset` bytes also repeats at a multiple of a word or more. */
        from = out - offset * ((LZ_WORD + offset - 1) / offset);
    }
    for (; at < size; at += LZ_WORD) {
        memcpy(out + at, from + at, LZ_WORD);
    }
}

#endif
