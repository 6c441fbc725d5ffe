/* A layer of faults between a process and its files, for LD_PRELOAD on 64-bit Linux with glibc.
 *
 * It counts the file calls that match, and fails, halves or kills at the one that the environment
 * names. Python's os module and the C core both come by here, as both call libc. What is set:
 *
 *   FAULT_UNDER   directory; only calls on paths in it match. Nothing matches without it.
 *   FAULT_NAME    fnmatch pattern of the last part of the path (default: every name).
 *   FAULT_CALLS   classes, with commas between them: open create read write sync truncate rename
 *                 unlink list stat time. Default: none, and the calls are only traced.
 *   FAULT_AT      number, from 1, of the matching call that goes wrong; 0 counts alone.
 *   FAULT_ACTION  an errno; `short` (half of the bytes); `full` (half of the bytes, and ENOSPC from
 *                 then on); `kill` (SIGKILL before the call); `torn` (SIGKILL after half of a
 *                 write, or after any other call).
 *   FAULT_STICKY  1: every matching call from FAULT_AT on goes wrong.
 *   FAULT_BAD     FROM-TO: bytes of matching files that no pread gets (class read): EIO.
 *   FAULT_TRACE   file that gets a line for each call that changed something under FAULT_UNDER or
 *                 made it durable: class, path, second path, offset, length, bytes as hex.
 *
 * fault_arm() reads them again: a forked child may choose its own. Safe from any thread.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN, CREATE, READ, WRITE, SYNC, TRUNCATE, RENAME, UNLINK, LIST, STAT, TIME, KINDS };
static const char *const names[KINDS] = {"open", "create", "read", "write", "sync", "truncate",
                                         "rename", "unlink", "list", "stat", "time"};
enum fate { GO, FAIL, HALF, TORN };

static char under[PATH_MAX], pattern[NAME_MAX + 1];
static unsigned wanted;
static long at, bad_from, bad_to;
static int sticky, error_number, trace_fd = -1;
static enum fate action;
static int kills, fills;
static atomic_long count;
static atomic_int armed;

#define REAL(name) ((__typeof__(&name))real(#name))
#define EXPORT __attribute__((visibility("default")))

static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL)
        abort();
    return found;
}

EXPORT long fault_count(void) { return atomic_load(&count); }

EXPORT void fault_arm(void)
{
    const char *value = getenv("FAULT_UNDER");
    atomic_store(&armed, 0);
    if (value == NULL || *value == '\0')
        return;
    snprintf(under, sizeof under, "%s", value);
    value = getenv("FAULT_NAME");
    snprintf(pattern, sizeof pattern, "%s", value != NULL ? value : "*");
    wanted = 0;
    value = getenv("FAULT_CALLS");
    for (int kind = 0; value != NULL && kind < KINDS; kind++) {
        const size_t size = strlen(names[kind]);
        for (const char *one = value; (one = strstr(one, names[kind])) != NULL; one += size)
            if ((one == value || one[-1] == ',') && (one[size] == ',' || one[size] == '\0'))
                wanted |= 1U << kind;
    }
    value = getenv("FAULT_AT");
    at = value != NULL ? atol(value) : 0;
    bad_from = bad_to = 0;
    value = getenv("FAULT_BAD");
    sscanf(value != NULL ? value : "", "%ld-%ld", &bad_from, &bad_to);
    value = getenv("FAULT_STICKY");
    sticky = value != NULL && *value == '1';
    value = getenv("FAULT_ACTION");
    value = value != NULL ? value : "5";
    fills = strcmp(value, "full") == 0;
    error_number = fills ? ENOSPC : atoi(value);
    kills = strcmp(value, "kill") == 0;
    action = strcmp(value, "short") == 0 ? HALF : strcmp(value, "torn") == 0 ? TORN : FAIL;
    value = getenv("FAULT_TRACE");
    if (trace_fd >= 0)
        close(trace_fd);
    trace_fd = value == NULL || *value == '\0' ? -1
        : (int)syscall(SYS_openat, AT_FDCWD, value, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                       0600);
    atomic_store(&count, 0);
    atomic_store(&armed, 1);
}

__attribute__((constructor)) static void begin(void) { fault_arm(); }

static void path_of(int fd, char *into)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const long size = syscall(SYS_readlinkat, AT_FDCWD, link, into, PATH_MAX - 1);
    into[size > 0 ? size : 0] = '\0';
}

static void path_at(int dir, const char *path, char *into)
{
    if (path == NULL || *path == '/') {
        snprintf(into, PATH_MAX, "%s", path != NULL ? path : "");
        return;
    }
    if (*path == '\0' && dir != AT_FDCWD) {
        path_of(dir, into);
        return;
    }
    if (dir == AT_FDCWD) {
        if (syscall(SYS_getcwd, into, PATH_MAX) < 0)
            *into = '\0';
    } else {
        path_of(dir, into);
    }
    const size_t size = strlen(into);
    snprintf(into + size, PATH_MAX - size, "/%s", path);
}

static int is_under(const char *path)
{
    const size_t size = strlen(under);
    return strncmp(path, under, size) == 0 && (path[size] == '/' || path[size] == '\0');
}

static int matches(enum kind kind, const char *path)
{
    if (!atomic_load(&armed) || (wanted & 1U << kind) == 0 || !is_under(path))
        return 0;
    const char *last = strrchr(path, '/');
    return fnmatch(pattern, last != NULL ? last + 1 : path, 0) == 0;
}

/* What becomes of a call; it does not return where that is death. errno is set for FAIL. */
static enum fate judge(enum kind kind, const char *path)
{
    if (!matches(kind, path))
        return GO;
    const long number = atomic_fetch_add(&count, 1) + 1;
    if (at == 0 || (sticky || fills ? number < at : number != at))
        return GO;
    if (fills && number == at)
        return HALF;
    if (kills)
        kill(getpid(), SIGKILL);
    errno = error_number;
    return action;
}

/* After a call that did something: the line of the trace, and death where the call was torn. */
static void done(enum kind kind, enum fate fate, const char *path, const char *other,
                 long long offset, long long length, const void *bytes)
{
    if (trace_fd >= 0 && atomic_load(&armed) && is_under(path)) {
        const int saved = errno;
        const size_t hex = bytes != NULL ? (size_t)length * 2 : 0;
        char *line = malloc(hex + 2 * PATH_MAX + 128);
        if (line == NULL)
            abort();
        int size = sprintf(line, "%s\t%s\t%s\t%lld\t%lld\t", names[kind], path, other, offset,
                           length);
        for (size_t i = 0; i < hex / 2; i++)
            size += sprintf(line + size, "%02x", ((const unsigned char *)bytes)[i]);
        line[size++] = '\n';
        if (syscall(SYS_write, trace_fd, line, (size_t)size) != size)
            abort();
        free(line);
        errno = saved;
    }
    if (fate == TORN)
        kill(getpid(), SIGKILL);
}

/* After a call that the system refused: -1. */
static int failed(enum fate fate)
{
    if (fate == TORN)
        kill(getpid(), SIGKILL);
    return -1;
}

/* ---- open */

static int open_at(int dir, const char *path, int flags, mode_t mode)
{
    char full[PATH_MAX];
    path_at(dir, path, full);
    const enum kind kind = (flags & (O_CREAT | O_TRUNC)) != 0 ? CREATE : OPEN;
    const enum fate fate = judge(kind, full);
    if (fate == FAIL)
        return -1;
    const int fd = (int)syscall(SYS_openat, dir, path, flags, mode);
    if (fd >= 0 && kind == CREATE)
        done(CREATE, fate, full, (flags & O_TRUNC) != 0 ? "truncated" : "", 0, 0, NULL);
    else if (fate == TORN)
        failed(fate);
    return fd;
}

#define MODE(flags, mode) \
    do { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode = ((flags) & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments); \
    } while (0)

EXPORT int open(const char *path, int flags, ...)
{
    mode_t mode;
    MODE(flags, mode);
    return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int dir, const char *path, int flags, ...)
{
    mode_t mode;
    MODE(flags, mode);
    return open_at(dir, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) __attribute__((alias("open")));
EXPORT int openat64(int dir, const char *path, int flags, ...) __attribute__((alias("openat")));
EXPORT int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int dir, const char *path, int flags) { return open_at(dir, path, flags, 0); }
EXPORT int __openat64_2(int dir, const char *path, int flags)
{
    return open_at(dir, path, flags, 0);
}

EXPORT DIR *opendir(const char *path)
{
    char full[PATH_MAX];
    path_at(AT_FDCWD, path, full);
    return judge(OPEN, full) == FAIL ? NULL : REAL(opendir)(path);
}

EXPORT struct dirent *readdir(DIR *dir)
{
    char full[PATH_MAX];
    path_of(dirfd(dir), full);
    return judge(LIST, full) == FAIL ? NULL : REAL(readdir)(dir);
}
EXPORT struct dirent64 *readdir64(DIR *dir)
{
    char full[PATH_MAX];
    path_of(dirfd(dir), full);
    return judge(LIST, full) == FAIL ? NULL : REAL(readdir64)(dir);
}

/* ---- read */

static size_t fewer(enum fate fate, size_t size)
{
    return (fate == HALF || fate == TORN) && size > 1 ? size / 2 : size;
}

EXPORT ssize_t read(int fd, void *into, size_t size)
{
    char path[PATH_MAX];
    path_of(fd, path);
    const enum fate fate = judge(READ, path);
    return fate == FAIL ? -1 : syscall(SYS_read, fd, into, fewer(fate, size));
}

EXPORT ssize_t pread(int fd, void *into, size_t size, off_t offset)
{
    char path[PATH_MAX];
    path_of(fd, path);
    const enum fate fate = judge(READ, path);
    if (offset < bad_to && (off_t)size > bad_from - offset && matches(READ, path)) {
        if (offset >= bad_from)
            return errno = EIO, -1;
        size = (size_t)(bad_from - offset); /* as a disk gives the pages before a bad one */
    }
    return fate == FAIL ? -1 : syscall(SYS_pread64, fd, into, fewer(fate, size), offset);
}

EXPORT ssize_t pread64(int fd, void *into, size_t size, off64_t offset)
    __attribute__((alias("pread")));
EXPORT ssize_t __read_chk(int fd, void *into, size_t size, size_t room)
{ return size > room ? (abort(), -1) : read(fd, into, size); }
EXPORT ssize_t __pread_chk(int fd, void *into, size_t size, off_t offset, size_t room)
{ return size > room ? (abort(), -1) : pread(fd, into, size, offset); }
EXPORT ssize_t __pread64_chk(int fd, void *into, size_t size, off_t offset, size_t room)
{ return size > room ? (abort(), -1) : pread(fd, into, size, offset); }

/* ---- write */

static ssize_t write_at(int fd, const void *bytes, size_t size, off_t offset, int positioned)
{
    char path[PATH_MAX];
    path_of(fd, path);
    const enum fate fate = judge(WRITE, path);
    if (fate == FAIL)
        return -1;
    const off_t where = positioned ? offset : (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    const size_t part = fewer(fate, size);
    const ssize_t got = positioned ? syscall(SYS_pwrite64, fd, bytes, part, offset)
                                   : syscall(SYS_write, fd, bytes, part);
    return got < 0 ? failed(fate) : (done(WRITE, fate, path, "", where, got, bytes), got);
}

EXPORT ssize_t write(int fd, const void *bytes, size_t size)
{ return write_at(fd, bytes, size, 0, 0); }
EXPORT ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset)
{ return write_at(fd, bytes, size, offset, 1); }
EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
    __attribute__((alias("pwrite")));

EXPORT ssize_t pwritev(int fd, const struct iovec *parts, int n, off_t offset)
{
    size_t size = 0;
    for (int i = 0; i < n; i++)
        size += parts[i].iov_len;
    char *bytes = malloc(size + 1), *end = bytes;
    if (bytes == NULL)
        abort();
    for (int i = 0; i < n; end += parts[i++].iov_len)
        memcpy(end, parts[i].iov_base, parts[i].iov_len);
    const ssize_t got = write_at(fd, bytes, size, offset, 1);
    const int saved = errno;
    free(bytes);
    errno = saved;
    return got;
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *parts, int n, off64_t offset)
    __attribute__((alias("pwritev")));

/* Ways to write that nothing here may take: no byte goes past this layer unseen. */
static ssize_t refuse(int fd)
{
    char path[PATH_MAX];
    path_of(fd, path);
    if (atomic_load(&armed) && is_under(path)) {
        fprintf(stderr, "a way of writing that the shim does not know: %s\n", path);
        abort();
    }
    errno = ENOSYS;
    return -1;
}
EXPORT ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t n, unsigned flags)
{
    (void)from, (void)a, (void)b, (void)n, (void)flags;
    return refuse(to);
}
EXPORT ssize_t sendfile64(int to, int from, off64_t *a, size_t n)
{
    (void)from, (void)a, (void)n;
    return refuse(to);
}

static int change_size(const char *path, int fd, off_t size)
{
    char full[PATH_MAX];
    if (path != NULL)
        path_at(AT_FDCWD, path, full);
    else
        path_of(fd, full);
    const enum fate fate = judge(TRUNCATE, full);
    if (fate == FAIL)
        return -1;
    const int result = (int)(path != NULL ? syscall(SYS_truncate, path, size)
                                          : syscall(SYS_ftruncate, fd, size));
    return result != 0 ? failed(fate) : (done(TRUNCATE, fate, full, "", 0, size, NULL), 0);
}
EXPORT int ftruncate(int fd, off_t size) { return change_size(NULL, fd, size); }
EXPORT int ftruncate64(int fd, off64_t size) __attribute__((alias("ftruncate")));
EXPORT int truncate(const char *path, off_t size) { return change_size(path, -1, size); }
EXPORT int truncate64(const char *path, off64_t size) __attribute__((alias("truncate")));

EXPORT int fallocate(int fd, int mode, off_t offset, off_t size)
{
    char path[PATH_MAX];
    path_of(fd, path);
    const enum fate fate = judge(TRUNCATE, path);
    if (fate == FAIL)
        return -1;
    const int result = (int)syscall(SYS_fallocate, fd, mode, offset, size);
    if (result != 0)
        return failed(fate);
    done(TRUNCATE, fate, path, "allocated", 0, offset + size, NULL);
    return 0;
}
EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t size)
    __attribute__((alias("fallocate")));
EXPORT int posix_fallocate(int fd, off_t offset, off_t size)
{
    return fallocate(fd, 0, offset, size) == 0 ? 0 : errno;
}
EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t size)
    __attribute__((alias("posix_fallocate")));

/* Nothing here pulls the plug: the page cache is as good, and the tests are faster. */
static int make_durable(int fd)
{
    char path[PATH_MAX];
    path_of(fd, path);
    const enum fate fate = judge(SYNC, path);
    if (fate == FAIL)
        return -1;
    done(SYNC, fate, path, "", 0, 0, NULL);
    return 0;
}
EXPORT int fsync(int fd) { return make_durable(fd); }
EXPORT int fdatasync(int fd) { return make_durable(fd); }
EXPORT int syncfs(int fd) { return make_durable(fd); }
/* A hint: nothing is durable after it, and nobody looks at what it returns. */
EXPORT int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags)
{ return fd < 0 || offset < 0 || size < 0 || flags == 0 ? -1 : 0; }

/* ---- names */
EXPORT int renameat2(int dir, const char *path, int new_dir, const char *new_path, unsigned flags)
{
    char full[PATH_MAX], other[PATH_MAX];
    path_at(dir, path, full);
    path_at(new_dir, new_path, other);
    const enum fate fate = judge(RENAME, full);
    if (fate == FAIL)
        return -1;
    const int result = (int)syscall(SYS_renameat2, dir, path, new_dir, new_path, flags);
    return result != 0 ? failed(fate) : (done(RENAME, fate, full, other, 0, 0, NULL), 0);
}
EXPORT int renameat(int dir, const char *path, int new_dir, const char *new_path)
{ return renameat2(dir, path, new_dir, new_path, 0); }
EXPORT int rename(const char *path, const char *new_path)
{ return renameat2(AT_FDCWD, path, AT_FDCWD, new_path, 0); }

EXPORT int unlinkat(int dir, const char *path, int flags)
{
    char full[PATH_MAX];
    path_at(dir, path, full);
    const enum fate fate = judge(UNLINK, full);
    if (fate == FAIL)
        return -1;
    const int result = (int)syscall(SYS_unlinkat, dir, path, flags);
    return result != 0 ? failed(fate) : (done(UNLINK, fate, full, "", 0, 0, NULL), 0);
}
EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORT int mkdir(const char *path, mode_t mode)
{
    char full[PATH_MAX];
    path_at(AT_FDCWD, path, full);
    const enum fate fate = judge(CREATE, full);
    if (fate == FAIL)
        return -1;
    const int result = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    return result != 0 ? failed(fate) : (done(CREATE, fate, full, "directory", 0, 0, NULL), 0);
}

EXPORT int utimensat(int dir, const char *path, const struct timespec times[2], int flags)
{
    char full[PATH_MAX];
    path_at(dir, path, full);
    const enum fate fate = judge(TIME, full);
    if (fate == FAIL)
        return -1;
    const int result = (int)syscall(SYS_utimensat, dir, path, times, flags);
    return fate == TORN ? failed(fate) : result;
}

/* ---- what is asked of files */

#define ASK(name, declared, passed, dir, path) \
    EXPORT int name declared \
    { \
        char full[PATH_MAX]; \
        path_at(dir, path, full); \
        return judge(STAT, full) == FAIL ? -1 : REAL(name) passed; \
    }
ASK(stat64, (const char *path, struct stat64 *into), (path, into), AT_FDCWD, path)
ASK(lstat64, (const char *path, struct stat64 *into), (path, into), AT_FDCWD, path)
ASK(fstat64, (int fd, struct stat64 *into), (fd, into), fd, "")
ASK(fstat, (int fd, struct stat *into), (fd, into), fd, "")
ASK(fstatat64, (int dir, const char *path, struct stat64 *into, int flags),
    (dir, path, into, flags), dir, path)
ASK(fstatat, (int dir, const char *path, struct stat *into, int flags), (dir, path, into, flags),
    dir, path)
ASK(faccessat, (int dir, const char *path, int how, int flags), (dir, path, how, flags), dir, path)
ASK(access, (const char *path, int how), (path, how), AT_FDCWD, path)
