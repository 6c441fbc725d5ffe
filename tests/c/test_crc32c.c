/* Every kernel against the definition of a CRC, one bit at a time. */
#include "seglog/crc32c.h"

#include "check.h"

enum { SPAN_SIZE = 9000 };

static uint32_t by_bits(uint32_t polynomial, uint32_t crc, const uint8_t *data, size_t size) {
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1U) ? polynomial : 0U);
        }
    }
    return ~crc;
}

static uint32_t expected(uint32_t crc, const uint8_t *data, size_t size) {
    return by_bits(0x82f63b78U, crc, data, size);
}

static void check_kernel(slg_crc32c_kernel kernel, const uint8_t *span) {
    static const size_t sizes[] = {1007, 1008, 1009, 1024,     2047,           2048, 4079,
                                   4080, 4081, 4096, 5088 + 1, 5088 + 192 + 7, 8191, SPAN_SIZE};
    for (size_t size = 0; size <= 1100; size++) {
        uint8_t *exact = exact_copy(span, size);
        CHECK_EQ(slg_crc32c(kernel, 0, exact, size), expected(0, exact, size));
        free(exact);
    }
    for (size_t start = 0; start <= 64; start++) {
        for (size_t size = 0; size <= 700; size += 3) {
            CHECK_EQ(slg_crc32c(kernel, 7, span + start, size), expected(7, span + start, size));
        }
    }
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint8_t *exact = exact_copy(span, sizes[i]);
        const uint32_t whole = expected(0, exact, sizes[i]);
        CHECK_EQ(slg_crc32c(kernel, 0, exact, sizes[i]), whole);
        const size_t cut = sizes[i] / 3;
        const uint32_t first = slg_crc32c(kernel, 0, exact, cut);
        CHECK_EQ(slg_crc32c(kernel, first, exact + cut, sizes[i] - cut), whole);
        free(exact);
    }
}

int main(void) {
    static const uint8_t digits[] = "123456789";
    static uint8_t span[SPAN_SIZE];
    uint64_t state = 1;
    int kernels = 0;
    for (size_t i = 0; i < SPAN_SIZE; i++) {
        span[i] = (uint8_t)random_next(&state);
    }
    for (int id = 0; id < SLG_CRC32C_KERNELS; id++) {
        const slg_crc32c_kernel kernel = (slg_crc32c_kernel)id;
        CHECK(strcmp(slg_crc32c_name(kernel), "unknown") != 0);
        if (slg_crc32c_available(kernel)) {
            printf("%s\n", slg_crc32c_name(kernel));
            CHECK_EQ(slg_crc32c(kernel, 0, digits, 9), 0xe3069283U);
            check_kernel(kernel, span);
            kernels++;
        }
    }
    CHECK(kernels >= 1);
    CHECK(slg_crc32c_available(SLG_CRC32C_PORTABLE));
    CHECK(slg_crc32c_available(slg_crc32c_best()));
    CHECK(!slg_crc32c_available(SLG_CRC32C_KERNELS));

    CHECK_EQ(slg_crc32(0, digits, 9), 0xcbf43926U);
    for (size_t size = 0; size <= 1100; size++) {
        uint8_t *exact = exact_copy(span, size);
        CHECK_EQ(slg_crc32(9, exact, size), by_bits(0xedb88320U, 9, exact, size));
        free(exact);
    }
    return 0;
}
