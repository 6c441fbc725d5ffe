/* System calls on real files in the directory given as argument. */
#define _XOPEN_SOURCE 700 /* symlink, mkfifo, st_blocks */

#include "seglog/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static int scratch(void) {
    const int fd = open("scratch", O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    return fd;
}

static int64_t size_of(int fd) {
    int64_t size = -1;
    CHECK_EQ(slg_file_size(fd, &size, NULL), SLG_OK);
    return size;
}

static void check_transfers(void) {
    const int fd = scratch();
    slg_error error;
    uint8_t into[16];
    size_t got = 99;
    CHECK_EQ(slg_pwrite(fd, "hello", 5, 3, &error), SLG_OK);
    CHECK_EQ(size_of(fd), 8);
    CHECK_EQ(slg_pread(fd, into, sizeof into, 0, &got, &error), SLG_OK);
    CHECK_EQ(got, 8);
    CHECK(memcmp(into, "\0\0\0hello", 8) == 0);
    CHECK_EQ(slg_pread(fd, into, sizeof into, 8, &got, &error), SLG_OK);
    CHECK_EQ(got, 0);
    CHECK_EQ(slg_pread_exact(fd, into, 6, 3, &error), SLG_FILE_SHRANK);
    CHECK(error.position == 3 && error.expected == 6 && error.found == 5);
    CHECK_EQ(slg_pread(fd, into, 1, -1, &got, &error), SLG_IO);
    CHECK_EQ(error.sys_errno, EINVAL);
    CHECK_EQ(slg_pread(fd, into, 2, INT64_MAX, &got, &error), SLG_IO);
    CHECK_EQ(slg_pwrite(fd, into, 2, INT64_MAX, &error), SLG_IO);
    CHECK_EQ(slg_pwrite(fd, into, 0, 0, &error), SLG_OK);
    slg_start_writeback(fd, 0, 4);
    slg_start_writeback(-1, 0, 4); /* reports nothing */
    CHECK_EQ(slg_sync(fd, false, &error), SLG_OK);
    CHECK_EQ(slg_sync(fd, true, &error), SLG_OK);
    close(fd);
    CHECK_EQ(slg_pread(fd, into, 1, 0, &got, &error), SLG_IO);
    CHECK_EQ(error.sys_errno, EBADF);
    CHECK_EQ(slg_sync(fd, true, &error), SLG_IO);
}

static void check_preallocation(void) {
    const int fd = scratch();
    slg_error error;
    uint8_t into[4];
    struct stat st;
    CHECK_EQ(slg_pwrite(fd, "abc", 3, 0, &error), SLG_OK);
    CHECK_EQ(slg_preallocate(fd, 1 << 20, &error), SLG_OK);
    CHECK_EQ(size_of(fd), 1 << 20);
    CHECK_EQ(slg_preallocate(fd, 100, &error), SLG_OK); /* never shrinks */
    CHECK_EQ(size_of(fd), 1 << 20);
    CHECK_EQ(slg_pread_exact(fd, into, 4, 0, &error), SLG_OK);
    CHECK(memcmp(into, "abc\0", 4) == 0);
    CHECK_EQ(slg_pread_exact(fd, into, 4, (1 << 20) - 4, &error), SLG_OK);
    CHECK(memcmp(into, "\0\0\0\0", 4) == 0);
    /* What was written is never passed over, whatever the file system knows of the rest. */
    CHECK_EQ(slg_pwrite(fd, "x", 1, 1 << 18, &error), SLG_OK);
    for (int64_t from = 0; from <= 1 << 18; from += 1 << 14) {
        const int64_t next = slg_next_data(fd, from, 1 << 20);
        CHECK(next >= from && next <= 1 << 18);
        CHECK(slg_next_data(fd, from, from + 1) <= from + 1);
    }
    CHECK_EQ(slg_next_data(fd, 1 << 21, 1 << 22), 1 << 21); /* the file ends before */
    CHECK_EQ(slg_pwrite(fd, "\0", 1, 1 << 18, &error), SLG_OK);
    CHECK_EQ(slg_preallocate(fd, -1, &error), SLG_IO);
    CHECK_EQ(slg_preallocate(fd, INT64_MAX, &error), SLG_IO); /* no such disk */
    CHECK_EQ(size_of(fd), 1 << 20);

    CHECK_EQ(slg_trim(fd, (1 << 20) + 1, &error), SLG_FILE_SHRANK);
    CHECK_EQ(slg_trim(fd, -1, &error), SLG_IO);
    CHECK_EQ(slg_trim(fd, 3, &error), SLG_OK);
    CHECK_EQ(size_of(fd), 3);
    CHECK(fstat(fd, &st) == 0 && st.st_blocks * 512 < (1 << 20)); /* blocks are given back */
    close(fd);
}

static void check_kinds(void) {
    int fd = scratch();
    int64_t size = -7;
    slg_error error;
    CHECK_EQ(slg_pwrite(fd, "sample", 6, 0, &error), SLG_OK);
    close(fd);
    fd = -7;
    CHECK(mkdir("directory", 0700) == 0 && mkfifo("fifo", 0600) == 0);
    CHECK(symlink("scratch", "link") == 0);
    static const char *const refused[] = {"directory", "fifo", "link", "/dev/null"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CHECK_EQ(slg_open_read(AT_FDCWD, refused[i], false, &fd, &size, &error), SLG_FILE_KIND);
    }
    CHECK_EQ(slg_open_read(AT_FDCWD, "fifo", true, &fd, &size, &error), SLG_FILE_KIND);
    CHECK_EQ(slg_open_read(AT_FDCWD, "nothing", true, &fd, &size, &error), SLG_FILE_MISSING);
    CHECK_EQ(slg_open_read(AT_FDCWD, "scratch/x", true, &fd, &size, &error), SLG_IO);
    CHECK_EQ(error.sys_errno, ENOTDIR);
    CHECK(fd == -7 && size == -7); /* untouched on failure */
    CHECK_EQ(slg_open_read(AT_FDCWD, "link", true, &fd, &size, &error), SLG_OK);
    CHECK_EQ(size, 6);
    close(fd);

    const int directory = open(".", O_RDONLY);
    CHECK_EQ(slg_open_read(directory, "scratch", false, &fd, &size, &error), SLG_OK);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK_EQ(slg_pwrite(fd, "x", 1, 0, &error), SLG_IO); /* open for reading only */
    close(fd);
    CHECK_EQ(slg_file_size(directory, &size, &error), SLG_FILE_KIND);
    CHECK_EQ(slg_preallocate(directory, 1, &error), SLG_FILE_KIND);
    CHECK_EQ(slg_trim(directory, 0, &error), SLG_FILE_KIND);
    CHECK_EQ(slg_sync(directory, true, &error), SLG_OK);
    close(directory);
}

/* After check_kinds, whose files are there. */
static void check_looks(void) {
    uint8_t room[4 * 8];
    slg_seen seen[8];
    slg_error error;
    CHECK_EQ(slg_set_size("scratch", 8, &error), SLG_OK);
    slg_look(".", "scratch\0nothing\0link\0fifo\0scratch\0nothing\0link\0fifo", 8, 4, 8, room,
             seen);
    CHECK(seen[0].size == 8 && seen[0].content == 8 && memcmp(room + 6, "\0\0", 2) == 0);
    CHECK(seen[1].size == SLG_SEEN_MISSING && seen[5].size == SLG_SEEN_MISSING);
    CHECK(seen[2].size == SLG_SEEN_UNKNOWN && seen[6].size == SLG_SEEN_UNKNOWN);
    CHECK(seen[3].size == SLG_SEEN_UNKNOWN && seen[7].size == SLG_SEEN_UNKNOWN);
    CHECK(seen[4].size == 8 && seen[4].content == -1);
    CHECK_EQ(slg_set_size("scratch", 9, &error), SLG_OK);
    slg_look(".", "scratch", 1, 1, 8, room, seen); /* more than is read */
    CHECK(seen[0].size == 9 && seen[0].content == -1);
    slg_look("nothing", "scratch", 1, 0, 0, NULL, seen);
    CHECK(seen[0].size == SLG_SEEN_UNKNOWN && seen[0].content == -1);
    CHECK_EQ(slg_set_size("nothing", 1, &error), SLG_FILE_MISSING);
    CHECK_EQ(slg_set_size("link", 1, &error), SLG_FILE_KIND);
    CHECK_EQ(slg_set_size("fifo", 1, &error), SLG_FILE_KIND);
    CHECK_EQ(slg_set_size("scratch", -1, &error), SLG_IO);
    CHECK_EQ(error.sys_errno, EINVAL);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    check_transfers();
    check_preallocation();
    check_kinds();
    check_looks();
    return 0;
}
