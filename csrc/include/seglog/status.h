/*
 * One status code per cause, named and numbered, never reused (docs/format.md quotes the names).
 *
 * Every function of csrc that can find a bad byte returns slg_status and, on anything but SLG_OK,
 * fills the caller's slg_error. C never allocates or formats a message: only `_native/status.pyx`
 * turns a status into a Python exception.
 */
#ifndef SEGLOG_STATUS_H
#define SEGLOG_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* statuses.h has the codes, and the meaning of `expected` and `found`. */
typedef enum slg_status {
#define SLG_STATUS(name, code) SLG_##name = (code),
#include "seglog/statuses.h"
#undef SLG_STATUS
} slg_status;

enum { SLG_STATUS_MAX = 255 };

/* Details of an error. The caller owns it; functions write it only if they do not return SLG_OK. */
typedef struct slg_error {
    slg_status status;
    int32_t sys_errno; /* of the system call that failed (also SLG_FILE_MISSING, _KIND), else 0 */
    int64_t position;  /* byte offset in the caller's file */
    int64_t expected;
    int64_t found;
} slg_error;

/* The name without the prefix ("BATCH_CRC"), or NULL for an unknown code. */
const char *slg_status_name(int code);

/* Fills *error (which may be NULL) and returns the status, for `return slg_fail(...)`. */
slg_status slg_fail(slg_error *error, slg_status status, int64_t position, int64_t expected,
                    int64_t found);
slg_status slg_fail_errno(slg_error *error, slg_status status, int64_t position, int sys_errno);

#ifdef __cplusplus
}
#endif
#endif
