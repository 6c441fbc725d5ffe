/* The whole test framework: a failed check prints itself and ends the program. */
#ifndef SEGLOG_TEST_CHECK_H
#define SEGLOG_TEST_CHECK_H

#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* Two integers, shown in decimal and hexadecimal when they differ. */
#define CHECK_EQ(left, right)                                                                      \
    do {                                                                                           \
        const int64_t left_ = (int64_t)(left);                                                     \
        const int64_t right_ = (int64_t)(right);                                                   \
        if (left_ != right_) {                                                                     \
            fprintf(stderr,                                                                        \
                    "%s:%d: %s is %" PRId64 " (%" PRIx64 "), not %s, %" PRId64 " (%" PRIx64 ")\n", \
                    __FILE__, __LINE__, #left, left_, (uint64_t)left_, #right, right_,             \
                    (uint64_t)right_);                                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* splitmix64: the same numbers on every machine. */
static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/*
 * An exact copy on the heap: one byte read too many, in front or behind, is an AddressSanitizer
 * report. Never NULL; the caller frees it.
 */
static inline uint8_t *exact_copy(const void *data, size_t size) {
    uint8_t *copy = calloc(size > 0 ? size : 1, 1);
    CHECK(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

typedef ptrdiff_t decompressor(const uint8_t *bytes, size_t size, uint8_t *into, size_t room);

/* Decompresses an exact copy into exactly `room` bytes on the heap, and copies the result to
 * `plain`. */
static inline ptrdiff_t decompress_exactly(decompressor *decompress, const uint8_t *bytes,
                                           size_t size, uint8_t *plain, size_t room) {
    uint8_t *exact = exact_copy(bytes, size);
    uint8_t *into = malloc(room > 0 ? room : 1);
    CHECK(into != NULL);
    const ptrdiff_t found = decompress(exact, size, into, room);
    CHECK(found >= -1 && found <= (ptrdiff_t)room);
    if (found > 0) {
        memcpy(plain, into, (size_t)found);
    }
    free(into);
    free(exact);
    return found;
}

#endif
