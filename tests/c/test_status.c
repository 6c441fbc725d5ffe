/* Names of codes, and that a failure fills the caller's error whole. */
#include "seglog/status.h"

#include "check.h"

int main(void) {
    slg_error error;
    memset(&error, 0xff, sizeof error);
    CHECK_EQ(slg_fail(&error, SLG_BATCH_CRC, 5, 6, 7), SLG_BATCH_CRC);
    CHECK_EQ(error.status, SLG_BATCH_CRC);
    CHECK(error.sys_errno == 0 && error.position == 5 && error.expected == 6 && error.found == 7);
    CHECK_EQ(slg_fail_errno(&error, SLG_IO, 8, 9), SLG_IO);
    CHECK(error.status == SLG_IO && error.sys_errno == 9 && error.position == 8);
    CHECK(error.expected == 0 && error.found == 0);
    CHECK_EQ(slg_fail(NULL, SLG_LIMIT, 0, 0, 0), SLG_LIMIT);
    CHECK_EQ(slg_fail_errno(NULL, SLG_IO, 0, 1), SLG_IO);

    int named = 0;
    for (int code = -1; code <= SLG_STATUS_MAX + 1; code++) {
        named += slg_status_name(code) != NULL;
    }
    CHECK(named >= 50);
    CHECK(strcmp(slg_status_name(SLG_OK), "OK") == 0);
    CHECK(strcmp(slg_status_name(SLG_BATCH_CRC), "BATCH_CRC") == 0);
    CHECK(slg_status_name(99) == NULL && slg_status_name(-1) == NULL);
    return 0;
}
