#define _GNU_SOURCE /* AT_FDCWD, st_mtim under -std=c11 */

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment_name.h"
#include "seglog/file.h"
#include "seglog/index.h"
#include "seglog/scan.h"

/* A whole number of entries of every kind (the least common multiple of 8, 12 and 34 is 408).
 * Larger than the indexes of most segments, so that one read suffices. */
enum { BUFFER_SIZE = 408 * 160 };

static const char *const SUFFIXES[] = {".log", ".index", ".timeindex", ".txnindex"};

/* One segment under check. */
typedef struct segment {
    int dir;
    int64_t number;
    int64_t end_offset;
    int64_t log_size;
    slg_check_level level;
    uint8_t *buffer;
} segment;

static slg_status stat_log(const segment *s, int64_t *size, int64_t *mtime_ms, slg_error *error) {
    char name[SLG_NAME_SIZE];
    struct stat st;
    slg_segment_name(name, s->number, SUFFIXES[SLG_FILE_LOG]);
    if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT ? slg_fail(error, SLG_FILE_MISSING, 0, 0, 0)
                               : slg_fail_errno(error, SLG_IO, 0, errno);
    }
    if (!S_ISREG(st.st_mode)) {
        return slg_fail(error, SLG_FILE_KIND, 0, S_IFREG, (int64_t)(st.st_mode & S_IFMT));
    }
    *size = (int64_t)st.st_size;
    *mtime_ms = slg_modified_ms(&st);
    if (st.st_size > INT32_MAX) {
        return slg_fail(error, SLG_FILE_TOO_LARGE, 0, INT32_MAX, (int64_t)st.st_size);
    }
    return SLG_OK;
}

/*
 * Skips a hole at `position` and returns the position after it: each partition may have an index
 * that its broker never trimmed, 10 MiB of which few blocks were written. Small files are read.
 */
static int64_t pass_hole(int fd, slg_index_check *check, int64_t position, int64_t whole) {
    const int64_t width = (int64_t)slg_index_entry_size(check->kind);
    if (check->kind == SLG_INDEX_KIND_TXN || whole <= BUFFER_SIZE) {
        return position;
    }
    const int64_t hole = slg_next_data(fd, position, whole) - position;
    slg_index_check_feed_zeros(check, (size_t)(hole - hole % width));
    return position + hole - hole % width;
}

static slg_status check_entries(const segment *s, int fd, slg_index_check *check, int64_t file_size,
                                slg_error *error) {
    const int64_t width = (int64_t)slg_index_entry_size(check->kind);
    const int64_t whole = file_size - file_size % width;
    const int64_t limit = check->kind == SLG_INDEX_KIND_TXN ? SLG_TXN_INDEX_MAX : INT32_MAX;
    /* A sparse file of a terabyte takes no space, but hours to read. */
    if (file_size > limit) {
        return slg_fail(error, SLG_LIMIT, 0, limit, file_size);
    }
    for (int64_t position = 0; position < whole;) {
        position = pass_hole(fd, check, position, whole);
        if (position == whole) {
            break;
        }
        const size_t room = BUFFER_SIZE - BUFFER_SIZE % (size_t)width;
        const int64_t left = whole - position;
        const size_t wanted = left < (int64_t)room ? (size_t)left : room;
        slg_status status = slg_pread_exact(fd, s->buffer, wanted, position, error);
        if (status == SLG_OK) {
            status = slg_index_check_feed(check, s->buffer, wanted, error);
        }
        if (status != SLG_OK) {
            return status;
        }
        position += (int64_t)wanted;
    }
    return slg_index_check_finish(check, file_size, error);
}

static slg_status check_index_once(const segment *s, slg_file_class file, bool strict,
                                   int64_t *size, slg_error *error) {
    const slg_index_kind kind = file == SLG_FILE_INDEX        ? SLG_INDEX_KIND_OFFSET
                                : file == SLG_FILE_TIME_INDEX ? SLG_INDEX_KIND_TIME
                                                              : SLG_INDEX_KIND_TXN;
    char name[SLG_NAME_SIZE];
    slg_index_check check;
    slg_status status;
    int fd;
    slg_segment_name(name, s->number, SUFFIXES[file]);
    status = slg_open_read(s->dir, name, false, &fd, size, error);
    if (status != SLG_OK) {
        *size = -1;
        return status;
    }
    slg_index_check_begin(&check, kind, s->number, s->end_offset, s->log_size);
    check.strict = strict;
    status = check_entries(s, fd, &check, *size, error);
    close(fd);
    return status;
}

/*
 * While this reads, a running broker appends to the log and then to the mapped index: an entry may
 * be ahead of the log size that was read, or half written. So a check that fails is repeated with a
 * log size read after the entry; a problem at the same position is real. Each round that finds
 * another problem finds it further on, because all before it was sound.
 */
static slg_status check_index_again(segment *s, slg_file_class file, bool strict, int64_t *size,
                                    slg_error *error) {
    int64_t reached = -1;
    for (;;) {
        const slg_status status = check_index_once(s, file, strict, size, error);
        int64_t mtime_ms;
        slg_error ignored;
        if (status == SLG_OK || status == SLG_FILE_MISSING || status == SLG_FILE_KIND ||
            error->position <= reached ||
            stat_log(s, &s->log_size, &mtime_ms, &ignored) != SLG_OK) {
            return status;
        }
        reached = error->position;
    }
}

static slg_status check_index(segment *s, slg_file_class file, int64_t *size, slg_error *error) {
    const slg_status status = check_index_again(s, file, false, size, error);
    if (status == SLG_OK && file == SLG_FILE_TXN_INDEX && s->level == SLG_CHECK_FULL) {
        /* Kafka's rules come first, so that no stricter rule hides an error that stops Kafka. */
        return check_index_again(s, file, true, size, error);
    }
    return status;
}

/* ---- the table ------------------------------------------------------------------------------ */

typedef struct table {
    const slg_segment_columns *out;
    slg_problem *problems;
    size_t problem_count;
} table;

static void add_problem(table *t, size_t row, slg_file_class file, const slg_error *error) {
    t->problems[t->problem_count++] = (slg_problem){
        .row = (int64_t)row,
        .position = error->position,
        .expected = error->expected,
        .found = error->found,
        .status = (int32_t)error->status,
        .sys_errno = error->sys_errno,
        .file = (int32_t)file,
    };
    if (t->out->status[row] == SLG_OK) {
        t->out->status[row] = (int32_t)error->status;
    }
}

static void check_segment(table *t, segment *s, size_t row, uint8_t has) {
    const slg_segment_columns *out = t->out;
    slg_error error = {.status = SLG_OK};
    out->status[row] = SLG_OK;
    out->log_size[row] = out->index_size[row] = out->time_index_size[row] = -1;
    out->txn_index_size[row] = out->mtime_ms[row] = -1;
    if (stat_log(s, &out->log_size[row], &out->mtime_ms[row], &error) != SLG_OK) {
        add_problem(t, row, SLG_FILE_LOG, &error);
        if (error.status != SLG_FILE_TOO_LARGE) {
            return;
        }
    }
    s->log_size = out->log_size[row];
    if ((has & SLG_HAS_INDEX) == 0) {
        (void)slg_fail(&error, SLG_FILE_MISSING, 0, 0, 0);
        add_problem(t, row, SLG_FILE_INDEX, &error);
    } else if (s->level == SLG_CHECK_FULL &&
               check_index(s, SLG_FILE_INDEX, &out->index_size[row], &error) != SLG_OK) {
        add_problem(t, row, SLG_FILE_INDEX, &error);
    }
    if ((has & SLG_HAS_TIME_INDEX) != 0 && s->level == SLG_CHECK_FULL &&
        check_index(s, SLG_FILE_TIME_INDEX, &out->time_index_size[row], &error) != SLG_OK) {
        add_problem(t, row, SLG_FILE_TIME_INDEX, &error);
    }
    if ((has & SLG_HAS_TXN_INDEX) != 0 &&
        check_index(s, SLG_FILE_TXN_INDEX, &out->txn_index_size[row], &error) != SLG_OK) {
        add_problem(t, row, SLG_FILE_TXN_INDEX, &error);
    }
}

slg_status slg_check_segments(const char *path, const int64_t *numbers, const uint8_t *has,
                              size_t count, int64_t end_offset, slg_check_level level,
                              const slg_segment_columns *out, slg_problem *problems,
                              size_t *problem_count, slg_error *error) {
    table t = {.out = out, .problems = problems, .problem_count = 0};
    segment s = {.level = level};
    *problem_count = 0;
    const slg_status status = slg_open_directory(AT_FDCWD, path, true, &s.dir, error);
    if (status != SLG_OK) {
        return status;
    }
    s.buffer = malloc(BUFFER_SIZE);
    if (s.buffer == NULL) {
        close(s.dir);
        return slg_fail(error, SLG_NO_MEMORY, 0, 0, 0);
    }
    for (size_t row = 0; row < count; row++) {
        s.number = numbers[row];
        s.end_offset = row + 1 < count ? numbers[row + 1] : end_offset;
        check_segment(&t, &s, row, has[row]);
    }
    free(s.buffer);
    close(s.dir);
    *problem_count = t.problem_count;
    return SLG_OK;
}
