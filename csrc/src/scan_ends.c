#define _GNU_SOURCE /* AT_FDCWD under -std=c11 */

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "segment_name.h"
#include "seglog/batch.h"
#include "seglog/file.h"
#include "seglog/index.h"
#include "seglog/scan.h"

enum {
    HEADERS_SIZE = 4096, /* of a read that wants headers alone */
    CHECKED_SIZE = 1 << 16,
    INDEX_STEP_MAX = 16 << 20 /* no broker writes entries that are further apart */
};

/* The segment at work. */
typedef struct segment {
    char *path; /* of one of its files, whose name begins at `name` */
    char *name;
    int64_t base_offset;
    int fd; /* the log */
    int64_t size;
    slg_crc32c_kernel kernel;
    slg_window window;
} segment;

/* Scans at most `most` batches of [start, end). */
static slg_status scan(segment *s, slg_batch_scan *found, unsigned checks, int64_t start,
                       int64_t end, int64_t most) {
    slg_error ignored;
    *found = (slg_batch_scan){
        .checks = checks, .kernel = s->kernel, .position = start, .end = end, .batches_left = most};
    slg_batch_scan_init(found);
    slg_window_restart(&s->window, slg_source_of(s->fd), end,
                       checks == 0 ? HEADERS_SIZE : CHECKED_SIZE);
    return slg_batch_scan_file(found, &s->window, &ignored);
}

/*
 * Whether a batch with a valid CRC begins at the position of an index entry and ends with its
 * offset, and the batches from the entry before lead there: the value of a record may contain the
 * bytes of a valid batch.
 */
static bool is_boundary(segment *s, slg_index_entry entry, slg_index_entry before) {
    const int64_t at = entry.value;
    slg_batch_scan batch;
    slg_batch_scan checked;
    slg_batch_scan walk;
    if (at <= 0 || at >= s->size) {
        return false;
    }
    scan(s, &batch, 0, at, s->size, 1);
    if (batch.batch_count == 0 || batch.last_offset != entry.key) {
        return false;
    }
    scan(s, &checked, SLG_SCAN_CRC, at, batch.position, 1);
    if (checked.batch_count == 0 || before.value < 0 || at <= before.value ||
        at - before.value > INDEX_STEP_MAX) {
        return false;
    }
    return scan(s, &walk, 0, before.value, at, INT64_MAX) == SLG_END && walk.batch_count > 0 &&
           walk.last_offset < batch.first_offset;
}

/* The position of the last index entry, if it is a boundary; else 0. */
static int64_t last_boundary(segment *s) {
    slg_index_file index;
    slg_index_entry last = {0};
    slg_index_found before;
    slg_error ignored;
    slg_segment_name(s->name, s->base_offset, ".index");
    if (slg_index_file_open(&index, SLG_INDEX_KIND_OFFSET, s->base_offset, SLG_INDEX_PROVING,
                            s->path, &ignored) != SLG_OK) {
        return 0;
    }
    const bool is_read = index.entries > 0 &&
                         slg_index_file_entry(&index, index.entries - 1, &last, &ignored) ==
                             SLG_OK &&
                         slg_index_file_search(&index, index.entries, SLG_INDEX_LOWER,
                                               last.key > INT64_MIN ? last.key - 1 : last.key,
                                               &before, &ignored) == SLG_OK;
    slg_index_file_close(&index);
    return is_read && is_boundary(s, last, before.entry) ? last.value : 0;
}

static void find_end(segment *s, uint8_t has, int64_t *size, int64_t *next_offset) {
    slg_batch_scan walk;
    slg_error ignored;
    *size = *next_offset = -1;
    slg_segment_name(s->name, s->base_offset, ".log");
    if (slg_open_read(AT_FDCWD, s->path, false, &s->fd, &s->size, &ignored) != SLG_OK) {
        return;
    }
    const int64_t start = (has & SLG_HAS_INDEX) != 0 ? last_boundary(s) : 0;
    const slg_status status = scan(s, &walk, 0, start, s->size, INT64_MAX);
    close(s->fd);
    if (status == SLG_IO || status == SLG_NO_MEMORY) {
        return; /* the walk may have ended before the last batch */
    }
    *size = s->size;
    if (walk.batch_count == 0) {
        *next_offset = s->base_offset;
    } else if (walk.last_offset < INT64_MAX) {
        *next_offset = walk.last_offset + 1;
    }
}

slg_status slg_segment_ends(const char *path, const int64_t *numbers, const uint8_t *has,
                            size_t count, int64_t *sizes, int64_t *next_offsets, slg_error *error) {
    const size_t length = strlen(path);
    segment s = {.kernel = slg_crc32c_best()};
    s.path = malloc(length + 1 + SLG_NAME_SIZE);
    if (s.path == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
    }
    memcpy(s.path, path, length);
    s.path[length] = '/';
    s.name = s.path + length + 1;
    slg_window_init(&s.window, slg_source_of(-1), 0, HEADERS_SIZE);
    for (size_t row = 0; row < count; row++) {
        s.base_offset = numbers[row];
        find_end(&s, has[row], &sizes[row], &next_offsets[row]);
    }
    slg_window_free(&s.window);
    free(s.path);
    return SLG_OK;
}
