#include "seglog/status.h"

#include <stddef.h>

const char *slg_status_name(int code) {
    switch (code) {
#define SLG_STATUS(name, code) \
    case code: return #name;
#include "seglog/statuses.h"
#undef SLG_STATUS
    default: return NULL;
    }
}

slg_status slg_fail(slg_error *error, slg_status status, int64_t position, int64_t expected,
                    int64_t found) {
    if (error != NULL) {
        *error = (slg_error){
            .status = status, .position = position, .expected = expected, .found = found};
    }
    return status;
}

slg_status slg_fail_errno(slg_error *error, slg_status status, int64_t position, int sys_errno) {
    if (error != NULL) {
        *error = (slg_error){.status = status, .sys_errno = sys_errno, .position = position};
    }
    return status;
}
