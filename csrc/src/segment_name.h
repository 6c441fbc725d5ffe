/* Names and times of segment files: what clean_load and scan_check share. */
#ifndef SEGLOG_SEGMENT_NAME_H
#define SEGLOG_SEGMENT_NAME_H

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

enum { SLG_NAME_DIGITS = 20, SLG_NAME_SIZE = SLG_NAME_DIGITS + sizeof ".timeindex" };

/* Writes the 20 digits of `number`, then `suffix`. */
static inline const char *slg_segment_name(char name[SLG_NAME_SIZE], int64_t number,
                                           const char *suffix) {
    uint64_t rest = (uint64_t)number;
    for (int at = SLG_NAME_DIGITS - 1; at >= 0; at--) {
        name[at] = (char)('0' + rest % 10);
        rest /= 10;
    }
    memcpy(name + SLG_NAME_DIGITS, suffix, strlen(suffix) + 1);
    return name;
}

/* When a file was last changed, in ms. It wraps as in Java's File.lastModified: some file systems
 * keep any number of seconds. */
static inline int64_t slg_modified_ms(const struct stat *st) {
#if defined(__APPLE__)
    const struct timespec time = st->st_mtimespec;
#else
    const struct timespec time = st->st_mtim;
#endif
    return (int64_t)((uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000);
}

#endif
