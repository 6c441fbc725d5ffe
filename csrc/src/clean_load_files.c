#define _GNU_SOURCE /* AT_FDCWD, st_mtim under -std=c11 */

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clean_load_internal.h"
#include "seglog/file.h"
#include "seglog/index.h"

/* ---- small files ---------------------------------------------------------------------------- */

slg_status slg_clean_read_small(slg_clean_loader *l, const char *name, size_t *size) {
    int64_t length;
    int fd;
    slg_error error;
    slg_status status = slg_open_read(l->dir, name, false, &fd, &length, &error);
    if (status != SLG_OK) {
        return status;
    }
    status = length > SLG_CLEAN_BUFFER ? SLG_LIMIT
                                       : slg_pread_exact(fd, l->buffer, (size_t)length, 0, &error);
    close(fd);
    *size = (size_t)length;
    return status;
}

/* A number as Java prints one that is not negative. */
static bool take_number(const uint8_t **at, const uint8_t *end, int64_t most, char stop,
                        int64_t *number) {
    const uint8_t *from = *at;
    int64_t value = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        const int64_t digit = **at - '0';
        if (value > (most - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (*at == from || (*from == '0' && *at - from > 1) || *at == end || **at != (uint8_t)stop) {
        return false;
    }
    (*at)++;
    *number = value;
    return true;
}

bool slg_clean_epochs(const uint8_t *data, size_t size, int64_t start, int64_t log_end_offset,
                      int32_t *latest) {
    int64_t version, entries, epoch = -1, offset = -1;
    const uint8_t *at = data;
    const uint8_t *const end = at + size;
    *latest = -1;
    if (size == 0) {
        return true;
    }
    if (!take_number(&at, end, INT32_MAX, '\n', &version) || version != 0 ||
        !take_number(&at, end, INT32_MAX, '\n', &entries)) {
        return false;
    }
    for (int64_t n = 0; n < entries; n++) {
        const int64_t last_epoch = epoch;
        const int64_t last_offset = offset;
        if (!take_number(&at, end, INT32_MAX, ' ', &epoch) ||
            !take_number(&at, end, INT64_MAX, '\n', &offset) || epoch <= last_epoch ||
            offset <= last_offset || offset >= log_end_offset || offset < start) {
            return false;
        }
    }
    *latest = (int32_t)epoch;
    return at == end;
}

static int base64_digit(uint8_t c) {
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

bool slg_clean_topic_id(const uint8_t *data, size_t size, uint8_t id[SLG_TOPIC_ID_BYTES]) {
    static const char HEAD[] = "version: 0\ntopic_id: ";
    static const char SMALL[] = "AAAAAAAAAAAAAAAAAAAA"; /* of ids with a meaning, as zero */
    enum { HEAD_SIZE = sizeof HEAD - 1, ID_DIGITS = 22 };
    uint32_t bits = 0;
    int held = 0;
    if (size < HEAD_SIZE + ID_DIGITS || size > HEAD_SIZE + ID_DIGITS + 1 ||
        memcmp(data, HEAD, HEAD_SIZE) != 0 ||
        (size == HEAD_SIZE + ID_DIGITS + 1 && data[size - 1] != '\n') ||
        memcmp(data + HEAD_SIZE, SMALL, sizeof SMALL - 1) == 0) {
        return false;
    }
    for (int n = 0, filled = 0; n < ID_DIGITS; n++) {
        const int digit = base64_digit(data[HEAD_SIZE + n]);
        if (digit < 0) {
            return false;
        }
        bits = (bits << 6 | (uint32_t)digit) & 0xffff;
        held += 6;
        if (held >= 8 && filled < SLG_TOPIC_ID_BYTES) {
            held -= 8;
            id[filled++] = (uint8_t)(bits >> held);
        }
    }
    return true;
}

/* ---- timestamps ----------------------------------------------------------------------------- */

static int64_t largest_timestamp(int dir, int64_t base) {
    const int64_t width = (int64_t)slg_index_entry_size(SLG_INDEX_KIND_TIME);
    char name[SLG_NAME_SIZE];
    uint8_t entry[16];
    struct stat st;
    slg_error error;
    int64_t size;
    int64_t found = -1;
    int fd;
    if (slg_open_read(dir, slg_segment_name(name, base, ".timeindex"), false, &fd, &size, &error) !=
        SLG_OK) {
        return INT64_MIN;
    }
    if (size >= width) {
        found = slg_pread_exact(fd, entry, (size_t)width, size / width * width - width, &error) ==
                        SLG_OK
                    ? slg_index_entry_at(SLG_INDEX_KIND_TIME, entry, 0, base).key
                    : INT64_MIN;
    }
    close(fd);
    if (found >= 0 || found == INT64_MIN) {
        return found;
    }
    if (fstatat(dir, slg_segment_name(name, base, ".log"), &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return INT64_MIN;
    }
    return slg_modified_ms(&st);
}

void slg_clean_timestamps(const char *root, const char *names, const int64_t *base_offsets,
                          size_t count, int64_t *timestamps) {
    int home;
    const bool is_open = slg_open_directory(AT_FDCWD, root, true, &home, NULL) == SLG_OK;
    for (size_t row = 0; row < count; row++, names += strlen(names) + 1) {
        int dir;
        timestamps[row] = INT64_MIN;
        if (is_open && slg_open_directory(home, names, false, &dir, NULL) == SLG_OK) {
            timestamps[row] = largest_timestamp(dir, base_offsets[row]);
            close(dir);
        }
    }
    if (is_open) {
        close(home);
    }
}
