/* Kafka's known answers, keys at an odd address, and columns with nulls and bad offsets. */
#include "seglog/murmur2.h"

#include "check.h"

static void check_known(const char *text, int32_t expected) {
    uint8_t *copy = exact_copy((const uint8_t *)text, strlen(text));
    CHECK_EQ(slg_murmur2(copy, strlen(text)), expected);
    free(copy);
}

int main(void) {
    check_known("21", -973932308);
    check_known("foobar", -790332482);
    check_known("a-little-bit-long-string", -985981536);
    check_known("a-little-bit-longer-string", -1486304829);
    check_known("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971);
    check_known("abc", 479470107);

    const uint8_t odd[] = "xabcfoobar";
    const int32_t offsets[] = {1, 4, 4, 10};
    const uint8_t validity = 5; /* the second value is null */
    slg_input_binary column = {.kind = SLG_INPUT_BINARY,
                               .validity = &validity,
                               .offsets = offsets,
                               .data = odd,
                               .end = 10};
    slg_error error;
    int32_t out[3];
    CHECK_EQ(slg_murmur2_column(&column, 3, 0, -1, out, &error), SLG_OK);
    CHECK_EQ(out[0], 479470107);
    CHECK_EQ(out[1], -1);
    CHECK_EQ(out[2], -790332482);
    CHECK_EQ(slg_murmur2_column(&column, 3, 7, -1, out, &error), SLG_OK);
    CHECK_EQ(out[0], 479470107 % 7);
    CHECK_EQ(out[2], (-790332482 & 0x7fffffff) % 7);
    column.end = 9;
    CHECK_EQ(slg_murmur2_column(&column, 3, 7, -1, out, &error), SLG_ARROW_LAYOUT);
    CHECK_EQ(error.position, 2);
    return 0;
}
