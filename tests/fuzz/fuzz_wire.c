/* Varints: the wide path agrees with the path of one byte at a time, and both stay in the span. */
#include "fuzz.h"
#include "seglog/wire.h"

static void one_varint(const uint8_t *exact, size_t size) {
    slg_cursor fast = slg_cursor_of(exact, size);
    slg_cursor slow = fast;
    int32_t value = 0;
    uint64_t expected = 0;
    const bool read = slg_read_varint(&fast, &value);
    REQUIRE(read == slg_read_varint_slow(&slow, SLG_VARINT_SIZE_MAX, &expected));
    REQUIRE(fast.pos == slow.pos && fast.pos <= fast.end);
    REQUIRE(!read || value == slg_zigzag32((uint32_t)expected));
}

static void one_varlong(const uint8_t *exact, size_t size) {
    slg_cursor fast = slg_cursor_of(exact, size);
    slg_cursor slow = fast;
    int64_t value = 0;
    uint64_t expected = 0;
    const bool read = slg_read_varlong(&fast, &value);
    REQUIRE(read == slg_read_varint_slow(&slow, SLG_VARLONG_SIZE_MAX, &expected));
    REQUIRE(fast.pos == slow.pos && fast.pos <= fast.end);
    REQUIRE(!read || value == slg_zigzag64(expected));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (size_t start = 0; start < size && start < 64; start++) {
        const size_t left = size - start < 16 ? size - start : 16;
        uint8_t *exact = fuzz_exact(data + start, left);
        one_varint(exact, left);
        one_varlong(exact, left);
        free(exact);
    }
    return 0;
}
