/* Loads, the bounded cursor and varints, each span on the heap with not a byte to spare. */
#include "seglog/wire.h"

#include "check.h"

/* What slg_read_* gives for exactly these bytes, and where it stops: 0 when refused. */
static size_t varint(const uint8_t *bytes, size_t size, int32_t *value) {
    uint8_t *exact = exact_copy(bytes, size);
    slg_cursor c = slg_cursor_of(exact, size);
    const bool ok = slg_read_varint(&c, value);
    const size_t used = slg_cursor_read(&c);
    CHECK(ok == (used > 0));
    free(exact);
    return used;
}

static size_t varlong(const uint8_t *bytes, size_t size, int64_t *value) {
    uint8_t *exact = exact_copy(bytes, size);
    slg_cursor c = slg_cursor_of(exact, size);
    const bool ok = slg_read_varlong(&c, value);
    const size_t used = slg_cursor_read(&c);
    CHECK(ok == (used > 0));
    free(exact);
    return used;
}

static size_t write_uvarlong(uint8_t *into, uint64_t value) {
    size_t size = 0;
    for (; value >= 0x80U; value >>= 7) {
        into[size++] = (uint8_t)(value | 0x80U);
    }
    into[size++] = (uint8_t)value;
    return size;
}

/* Every width, alone and followed by others' bytes, so that the short and the wide path agree. */
static void check_value(int64_t value) {
    const uint64_t zigzag = ((uint64_t)value << 1) ^ (value < 0 ? UINT64_MAX : 0);
    for (size_t after = 0; after <= 12; after++) {
        uint8_t bytes[24];
        memset(bytes, 0xff, sizeof bytes);
        const size_t size = write_uvarlong(bytes, zigzag);
        int64_t wide = 1;
        CHECK_EQ(varlong(bytes, size + after, &wide), size);
        CHECK_EQ(wide, value);
        CHECK_EQ(varlong(bytes, size - 1, &wide), 0);
        if (value >= INT32_MIN && value <= INT32_MAX) {
            int32_t narrow = 1;
            CHECK_EQ(varint(bytes, size + after, &narrow), size);
            CHECK_EQ(narrow, value);
            CHECK_EQ(varint(bytes, size - 1, &narrow), 0);
        }
    }
}

static void check_widths(void) {
    for (int shift = 0; shift < 64; shift++) {
        const uint64_t power = UINT64_C(1) << shift;
        const int64_t around[] = {(int64_t)power, (int64_t)~power, (int64_t)(power - 1U),
                                  (int64_t)(power ^ UINT64_C(0x55555555))};
        for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
            check_value(around[i]);
        }
    }
    check_value(0);
    check_value(-1);
    check_value(INT64_MIN);
    check_value(INT64_MAX);
}

/* Kafka drops the surplus bits of the last byte and refuses one that says "more". */
static void check_limits(void) {
    static const uint8_t surplus[] = {0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0};
    static const uint8_t endless[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    static const uint8_t six[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 0, 0, 0, 0};
    static const uint8_t ten[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f, 0};
    static const uint8_t eleven[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
                                     0x80, 0x80, 0x80, 0x80, 0x00};
    static const uint8_t padded[] = {0x80, 0x80, 0x80, 0x00, 0x09, 0x09, 0x09, 0x09};
    int32_t narrow;
    int64_t wide;
    CHECK_EQ(varint(surplus, 5, &narrow), 5);
    CHECK_EQ(narrow, INT32_MIN);
    CHECK_EQ(varint(surplus, 10, &narrow), 5);
    CHECK_EQ(narrow, INT32_MIN);
    for (size_t size = 0; size <= sizeof endless; size++) {
        CHECK_EQ(varint(endless, size, &narrow), 0);
        CHECK_EQ(varlong(endless, size, &wide), 0);
    }
    for (size_t size = 0; size <= sizeof six; size++) {
        CHECK_EQ(varint(six, size, &narrow), 0);
    }
    CHECK_EQ(varlong(six, sizeof six, &wide), 6);
    CHECK_EQ(varlong(ten, 10, &wide), 10);
    CHECK_EQ(wide, INT64_C(0x4000000000000000)); /* bit 63 of the last byte, less the sign */
    CHECK_EQ(varlong(eleven, sizeof eleven, &wide), 0);
    CHECK_EQ(varint(padded, 4, &narrow), 4); /* longer than needed is allowed */
    CHECK_EQ(varint(padded, sizeof padded, &narrow), 4);
    CHECK_EQ(narrow, 0);
}

static void check_numbers(void) {
    uint8_t bytes[9];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(0xf1U + i);
    }
    const uint8_t *odd = bytes + 1; /* any alignment */
    CHECK_EQ(slg_load_u16(odd), 0xf2f3);
    CHECK_EQ(slg_load_i16(odd), (int16_t)0xf2f3);
    CHECK_EQ(slg_load_u32(odd), 0xf2f3f4f5);
    CHECK(slg_load_u64(odd) == UINT64_C(0xf2f3f4f5f6f7f8f9));
    CHECK(slg_load_le64(odd) == UINT64_C(0xf9f8f7f6f5f4f3f2));
    slg_store_i16(bytes + 1, -2);
    CHECK_EQ(slg_load_i16(odd), -2);
    slg_store_i32(bytes + 1, -3);
    CHECK_EQ(slg_load_i32(odd), -3);
    slg_store_i64(bytes + 1, INT64_MIN);
    CHECK_EQ(slg_load_i64(odd), INT64_MIN);
    CHECK_EQ(bytes[1], 0x80);
}

static void check_cursor(void) {
    uint8_t *exact = exact_copy("\0\1\2\3\4\5\6\7", 8);
    slg_cursor c = slg_cursor_of(exact, 8);
    const uint8_t *at;
    int8_t i8;
    int32_t i32;
    CHECK(!slg_take(&c, -1, &at) && !slg_take(&c, 9, &at) && !slg_take(&c, INT64_MAX, &at));
    CHECK(!slg_take(&c, INT64_MIN, &at));
    CHECK_EQ(slg_cursor_left(&c), 8);
    CHECK(slg_take(&c, 8, &at) && at == exact && slg_cursor_left(&c) == 0);
    CHECK(!slg_read_i8(&c, &i8) && !slg_take(&c, 1, &at));
    CHECK(slg_take(&c, 0, &at) && at == exact + 8);
    c.pos = exact;
    CHECK(slg_read_i8(&c, &i8) && i8 == 0);
    CHECK(slg_read_i8(&c, &i8) && i8 == 1 && slg_cursor_read(&c) == 2);
    c = slg_cursor_of(NULL, 0);
    CHECK(!slg_read_i8(&c, &i8) && !slg_read_varint(&c, &i32) && slg_take(&c, 0, &at));
    free(exact);
}

int main(void) {
    check_numbers();
    check_cursor();
    check_widths();
    check_limits();
    return 0;
}
