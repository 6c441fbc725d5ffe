/* What the targets share. A target is one function; libFuzzer or driver.c calls it. */
#ifndef SEGLOG_FUZZ_H
#define SEGLOG_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A property that no input may break. */
#define REQUIRE(condition)                                                          \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                \
        }                                                                           \
    } while (0)

/* The first bytes of an input steer the target; the rest are what would be on disk. */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t size;
} fuzz_input;

/* 0 when the input has run out. */
static inline uint8_t fuzz_byte(fuzz_input *input) {
    if (input->size == 0) {
        return 0;
    }
    input->size--;
    return *input->data++;
}

static inline uint64_t fuzz_number(fuzz_input *input) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) {
        value = value << 8 | fuzz_byte(input);
    }
    return value;
}

/* On the heap without a byte to spare, so that any overrun is reported. The caller frees it. */
static inline uint8_t *fuzz_exact(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size > 0 ? size : 1);
    REQUIRE(copy != NULL);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    return copy;
}

#endif
