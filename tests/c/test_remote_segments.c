#include "seglog/remote_segments.h"

#include "check.h"

static void test_epoch_end(void) {
    struct {
        slg_remote_segment head;
        slg_segment_epoch epochs[3];
    } segment = {.head = {.end_offset = 99, .epoch_count = 3},
                 .epochs = {{10, 1, 0}, {40, 3, 0}, {INT64_MIN, 7, 0}}};
    CHECK_EQ(slg_remote_segment_epoch_end(&segment.head, 0), 9);
    CHECK_EQ(slg_remote_segment_epoch_end(&segment.head, 1), 39);
    CHECK_EQ(slg_remote_segment_epoch_end(&segment.head, 2), 39);
    CHECK_EQ(slg_remote_segment_epoch_end(&segment.head, 3), INT64_MAX);
    CHECK_EQ(slg_remote_segment_epoch_end(&segment.head, 7), 99);
    CHECK_EQ(slg_remote_segment_epoch_end(&segment.head, INT32_MAX), 99);
}

static void test_offsets_up_to(void) {
    enum { COUNT = 9 };
    int64_t offsets[COUNT];
    for (int64_t at = 0; at < COUNT; at++) {
        offsets[at] = 10 * at - 20;
    }
    for (size_t count = 0; count <= COUNT; count++) {
        for (int64_t offset = -25; offset < 70; offset++) {
            size_t expected = 0;
            while (expected < count && offsets[expected] <= offset) {
                expected++;
            }
            CHECK_EQ((int64_t)slg_offsets_up_to(offsets, count, offset), (int64_t)expected);
        }
    }
    CHECK_EQ(slg_offsets_up_to(NULL, 0, 0), 0);
    CHECK_EQ(slg_offsets_up_to(offsets, COUNT, INT64_MIN), 0);
    CHECK_EQ(slg_offsets_up_to(offsets, COUNT, INT64_MAX), COUNT);
}

int main(void) {
    test_epoch_end();
    test_offsets_up_to();
    return 0;
}
