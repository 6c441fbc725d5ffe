/*
 * Numbers in bytes: big-endian loads and stores, a bounded cursor, and reads and writes of Kafka's
 * varints.
 *
 * Everything is inline, uses only the caller's memory and is thread-safe. Loads and stores take any
 * alignment; the caller has checked that the bytes exist. Cursor reads check: they return false if
 * bytes are missing (or are no varint), and then change neither the cursor nor the output.
 */
#ifndef SEGLOG_WIRE_H
#define SEGLOG_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- loads and stores ---------------------------------------------------------------------- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define SLG_BE16(x) (x)
#define SLG_BE32(x) (x)
#define SLG_BE64(x) (x)
#define SLG_LE32(x) __builtin_bswap32(x)
#define SLG_LE64(x) __builtin_bswap64(x)
#else
#define SLG_BE16(x) __builtin_bswap16(x)
#define SLG_BE32(x) __builtin_bswap32(x)
#define SLG_BE64(x) __builtin_bswap64(x)
#define SLG_LE32(x) (x)
#define SLG_LE64(x) (x)
#endif

static inline uint16_t slg_load_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return SLG_BE16(v);
}

static inline uint32_t slg_load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return SLG_BE32(v);
}

static inline uint64_t slg_load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return SLG_BE64(v);
}

static inline uint32_t slg_load_le32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return SLG_LE32(v);
}

static inline uint64_t slg_load_le64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return SLG_LE64(v);
}

static inline int8_t slg_load_i8(const uint8_t *p) { return (int8_t)*p; }
static inline int16_t slg_load_i16(const uint8_t *p) { return (int16_t)slg_load_u16(p); }
static inline int32_t slg_load_i32(const uint8_t *p) { return (int32_t)slg_load_u32(p); }
static inline int64_t slg_load_i64(const uint8_t *p) { return (int64_t)slg_load_u64(p); }

static inline void slg_store_u16(uint8_t *p, uint16_t v) {
    v = SLG_BE16(v);
    memcpy(p, &v, sizeof v);
}

static inline void slg_store_u32(uint8_t *p, uint32_t v) {
    v = SLG_BE32(v);
    memcpy(p, &v, sizeof v);
}

static inline void slg_store_u64(uint8_t *p, uint64_t v) {
    v = SLG_BE64(v);
    memcpy(p, &v, sizeof v);
}

static inline void slg_store_i16(uint8_t *p, int16_t v) { slg_store_u16(p, (uint16_t)v); }
static inline void slg_store_i32(uint8_t *p, int32_t v) { slg_store_u32(p, (uint32_t)v); }
static inline void slg_store_i64(uint8_t *p, int64_t v) { slg_store_u64(p, (uint64_t)v); }

/* ---- cursor -------------------------------------------------------------------------------- */

/* begin <= pos <= end; [begin, end) is the caller's and outlives the cursor. */
typedef struct slg_cursor {
    const uint8_t *begin;
    const uint8_t *pos;
    const uint8_t *end;
} slg_cursor;

/* NULL is allowed for size 0 and replaced, because arithmetic on NULL is undefined. */
static inline slg_cursor slg_cursor_of(const uint8_t *data, size_t size) {
    const uint8_t *begin = data == NULL ? (const uint8_t *)"" : data;
    return (slg_cursor){begin, begin, begin + size};
}

static inline size_t slg_cursor_left(const slg_cursor *c) { return (size_t)(c->end - c->pos); }

/* Bytes already read. */
static inline size_t slg_cursor_read(const slg_cursor *c) { return (size_t)(c->pos - c->begin); }

/* `size` bytes in place; false for a negative size. */
static inline bool slg_take(slg_cursor *c, int64_t size, const uint8_t **out) {
    if (size < 0 || (uint64_t)size > slg_cursor_left(c)) {
        return false;
    }
    *out = c->pos;
    c->pos += size;
    return true;
}

static inline bool slg_read_i8(slg_cursor *c, int8_t *out) {
    if (slg_cursor_left(c) < 1) {
        return false;
    }
    *out = slg_load_i8(c->pos);
    c->pos += 1;
    return true;
}

/* ---- varints ------------------------------------------------------------------------------- */

/*
 * Seven bits per byte, least significant group first; a set high bit means that more follow. As in
 * Kafka's ByteUtils a varint has at most 5 bytes and a varlong at most 10. The last possible byte
 * must not have the high bit; its bits past the width are dropped silently.
 */
enum { SLG_VARINT_SIZE_MAX = 5, SLG_VARLONG_SIZE_MAX = 10 };

static inline int32_t slg_zigzag32(uint32_t v) { return (int32_t)((v >> 1) ^ (0U - (v & 1U))); }
static inline int64_t slg_zigzag64(uint64_t v) { return (int64_t)((v >> 1) ^ (0U - (v & 1U))); }

/* Any length, byte by byte: near the end of the span, and the 9 and 10 byte varlongs. */
static inline bool slg_read_varint_slow(slg_cursor *c, unsigned size_max, uint64_t *out) {
    uint64_t value = 0;
    const uint8_t *p = c->pos;
    for (unsigned i = 0; i < size_max && p < c->end; i++) {
        const uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7fU) << (7U * i);
        if (byte < 0x80U) {
            *out = value;
            c->pos = p;
            return true;
        }
    }
    return false;
}

/*
 * Eight bytes at once: the lowest clear high bit ends the varint, and three shifts close the gaps
 * between the groups. No branch depends on the length, which varies between real records. Returns
 * the size, or 0 if all eight bytes have the high bit.
 */
static inline unsigned slg_varint_word(const uint8_t *p, uint64_t *out) {
    uint64_t word = slg_load_le64(p);
    const uint64_t stop = ~word & UINT64_C(0x8080808080808080);
    if (stop == 0) {
        return 0;
    }
    word &= stop ^ (stop - 1U);
    word = ((word & UINT64_C(0x7f007f007f007f00)) >> 1) | (word & UINT64_C(0x007f007f007f007f));
    word = ((word & UINT64_C(0x3fff00003fff0000)) >> 2) | (word & UINT64_C(0x00003fff00003fff));
    word = ((word & UINT64_C(0x0fffffff00000000)) >> 4) | (word & UINT64_C(0x000000000fffffff));
    *out = word;
    return ((unsigned)__builtin_ctzll(stop) >> 3) + 1U;
}

/* Unsigned, without zig-zag (Kafka's flexible messages); the other reads use it. */
static inline bool slg_read_uvarint(slg_cursor *c, uint32_t *out) {
    uint64_t value;
    const size_t left = slg_cursor_left(c);
    if (left >= 1 && *c->pos < 0x80U) {
        *out = *c->pos++;
        return true;
    }
    if (left >= 8) {
        const unsigned size = slg_varint_word(c->pos, &value);
        if (size == 0 || size > SLG_VARINT_SIZE_MAX) {
            return false;
        }
        c->pos += size;
    } else if (!slg_read_varint_slow(c, SLG_VARINT_SIZE_MAX, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

static inline bool slg_read_uvarlong(slg_cursor *c, uint64_t *out) {
    const size_t left = slg_cursor_left(c);
    if (left >= 1 && *c->pos < 0x80U) {
        *out = *c->pos++;
        return true;
    }
    if (left >= 8) {
        const unsigned size = slg_varint_word(c->pos, out);
        if (size != 0) {
            c->pos += size;
            return true;
        }
    }
    return slg_read_varint_slow(c, SLG_VARLONG_SIZE_MAX, out);
}

/* Zig-zag, as every number of a v2 record. */
static inline bool slg_read_varint(slg_cursor *c, int32_t *out) {
    uint32_t value;
    if (!slg_read_uvarint(c, &value)) {
        return false;
    }
    *out = slg_zigzag32(value);
    return true;
}

static inline bool slg_read_varlong(slg_cursor *c, int64_t *out) {
    uint64_t value;
    if (!slg_read_uvarlong(c, &value)) {
        return false;
    }
    *out = slg_zigzag64(value);
    return true;
}

/* ---- varints written ----------------------------------------------------------------------- */

static inline uint32_t slg_zigzagged32(int32_t v) {
    return (uint32_t)v << 1 ^ (v < 0 ? UINT32_MAX : 0U);
}

static inline uint64_t slg_zigzagged64(int64_t v) {
    return (uint64_t)v << 1 ^ (v < 0 ? UINT64_MAX : 0U);
}

/*
 * The number of bytes that slg_put_uvarlong writes: one per seven bits, at least one. The shift
 * that replaces the division by 7 is exact for 0 to 63 (tests/c/test_encode.c checks all).
 */
static inline unsigned slg_uvarlong_size(uint64_t v) {
    return ((63U - (unsigned)__builtin_clzll(v | 1U)) * 9U + 73U) >> 6;
}

static inline unsigned slg_varint_size(int32_t v) { return slg_uvarlong_size(slg_zigzagged32(v)); }
static inline unsigned slg_varlong_size(int64_t v) { return slg_uvarlong_size(slg_zigzagged64(v)); }

/* Writes at `p`, where the bytes exist. Returns the address after them. */
static inline uint8_t *slg_put_uvarlong(uint8_t *p, uint64_t v) {
    while (v >= 0x80U) {
        *p++ = (uint8_t)(v | 0x80U);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

static inline uint8_t *slg_put_varint(uint8_t *p, int32_t v) {
    return slg_put_uvarlong(p, slg_zigzagged32(v));
}

static inline uint8_t *slg_put_varlong(uint8_t *p, int64_t v) {
    return slg_put_uvarlong(p, slg_zigzagged64(v));
}

/* A size and its bytes; -1 for null. */
static inline uint8_t *slg_put_field(uint8_t *p, const uint8_t *data, int64_t size) {
    p = slg_put_varint(p, (int32_t)size);
    if (size > 0) {
        memcpy(p, data, (size_t)size);
        p += size;
    }
    return p;
}

#ifdef __cplusplus
}
#endif
#endif
