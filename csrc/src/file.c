#if defined(__linux__)
#define _GNU_SOURCE /* fallocate, sync_file_range */
#elif defined(__APPLE__)
#define _DARWIN_C_SOURCE /* F_PREALLOCATE, F_FULLFSYNC */
#else
#define _POSIX_C_SOURCE 200809L
#endif
#define _FILE_OFFSET_BITS 64

#include "seglog/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux moves at most 2^31 - 4096 bytes per call and macOS refuses more than 2^31 - 1. */
enum { TRANSFER_SIZE_MAX = 1 << 30 };

static slg_status fail_io(slg_error *error, int64_t position) {
    return slg_fail_errno(error, SLG_IO, position, errno);
}

static slg_status stat_regular(int fd, struct stat *st, slg_error *error) {
    if (fstat(fd, st) != 0) {
        return fail_io(error, 0);
    }
    if (!S_ISREG(st->st_mode)) {
        return slg_fail(error, SLG_FILE_KIND, 0, 0, 0);
    }
    return SLG_OK;
}

/* `flags`: O_RDONLY or O_RDWR. */
static slg_status open_file(int dir_fd, const char *path, int flags, bool follow_links, int *fd,
                            int64_t *size, slg_error *error) {
    int opened;
    /* O_NONBLOCK: opening a fifo would wait for a writer. Regular files ignore it. */
    flags |= O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (follow_links ? 0 : O_NOFOLLOW);
    do {
        opened = openat(dir_fd, path, flags);
    } while (opened < 0 && errno == EINTR);
    if (opened < 0) {
        switch (errno) {
        case ENOENT: return slg_fail_errno(error, SLG_FILE_MISSING, 0, errno);
        case ENXIO:  /* a socket, or a device without a driver */
        case ENODEV:
        case EMLINK: /* FreeBSD's ELOOP under O_NOFOLLOW */
        case ELOOP: return slg_fail_errno(error, SLG_FILE_KIND, 0, errno);
        default: return fail_io(error, 0);
        }
    }
    const slg_status status = slg_file_size(opened, size, error);
    if (status != SLG_OK) {
        close(opened);
        return status;
    }
    *fd = opened;
    return SLG_OK;
}

slg_status slg_open_read(int dir_fd, const char *path, bool follow_links, int *fd, int64_t *size,
                         slg_error *error) {
    return open_file(dir_fd, path, O_RDONLY, follow_links, fd, size, error);
}

slg_status slg_open_directory(int dir_fd, const char *path, bool follow_links, int *fd,
                              slg_error *error) {
    const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow_links ? 0 : O_NOFOLLOW);
    do {
        *fd = openat(dir_fd, path, flags);
    } while (*fd < 0 && errno == EINTR);
    return *fd < 0 ? fail_io(error, 0) : SLG_OK;
}

slg_status slg_file_size(int fd, int64_t *size, slg_error *error) {
    struct stat st;
    const slg_status status = stat_regular(fd, &st, error);
    if (status == SLG_OK) {
        *size = (int64_t)st.st_size;
    }
    return status;
}

slg_status slg_pread(int fd, void *into, size_t size, int64_t position, size_t *got,
                     slg_error *error) {
    size_t done = 0;
    *got = 0;
    if (position < 0 || size > (uint64_t)INT64_MAX - (uint64_t)position) {
        return slg_fail_errno(error, SLG_IO, position, EINVAL);
    }
    while (done < size) {
        const size_t want = size - done < TRANSFER_SIZE_MAX ? size - done : TRANSFER_SIZE_MAX;
        const ssize_t n =
            pread(fd, (uint8_t *)into + done, want, (off_t)(position + (int64_t)done));
        if (n == 0) {
            break;
        }
        if (n > 0) {
            *got = done += (size_t)n;
        } else if (errno != EINTR) {
            return fail_io(error, position + (int64_t)done);
        }
    }
    return SLG_OK;
}

slg_status slg_pread_exact(int fd, void *into, size_t size, int64_t position, slg_error *error) {
    size_t got = 0;
    const slg_status status = slg_pread(fd, into, size, position, &got, error);
    if (status == SLG_OK && got != size) {
        return slg_fail(error, SLG_FILE_SHRANK, position, (int64_t)size, (int64_t)got);
    }
    return status;
}

int64_t slg_next_data(int fd, int64_t position, int64_t end) {
#if defined(SEEK_DATA)
    const off_t found = position < end ? lseek(fd, (off_t)position, SEEK_DATA) : (off_t)position;
    struct stat st;
    if (found < 0) {
        /* ENXIO: no data up to the end of the file, if that is not before `end` by now. */
        return errno == ENXIO && fstat(fd, &st) == 0 && st.st_size >= end ? end : position;
    }
    if (found > position) {
        return (int64_t)found < end ? (int64_t)found : end;
    }
#else
    (void)fd;
    (void)end;
#endif
    return position;
}

slg_status slg_pwrite(int fd, const void *data, size_t size, int64_t position, slg_error *error) {
    size_t done = 0;
    if (position < 0 || size > (uint64_t)INT64_MAX - (uint64_t)position) {
        return slg_fail_errno(error, SLG_IO, position, EINVAL);
    }
    while (done < size) {
        const size_t want = size - done < TRANSFER_SIZE_MAX ? size - done : TRANSFER_SIZE_MAX;
        const ssize_t n =
            pwrite(fd, (const uint8_t *)data + done, want, (off_t)(position + (int64_t)done));
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0) {
            /* POSIX permits 0 for a non-empty write; do not spin on it. */
            return slg_fail_errno(error, SLG_IO, position + (int64_t)done, EIO);
        } else if (errno != EINTR) {
            return fail_io(error, position + (int64_t)done);
        }
    }
    return SLG_OK;
}

static int truncate_to(int fd, int64_t size) {
    int result;
    do {
        result = ftruncate(fd, (off_t)size);
    } while (result != 0 && errno == EINTR);
    return result;
}

/* Reserves blocks for [from, to). 0 if reserved, or if this file system cannot reserve. */
static int reserve(int fd, int64_t from, int64_t to) {
    int result;
#if defined(__linux__)
    do {
        result = fallocate(fd, 0, (off_t)from, (off_t)(to - from));
    } while (result != 0 && errno == EINTR);
    return result != 0 && (errno == EOPNOTSUPP || errno == ENOSYS) ? 0 : result;
#elif defined(__APPLE__)
    /* One extent if possible, else any. F_PEOFPOSMODE counts from the end of the file. */
    fstore_t store = {F_ALLOCATECONTIG | F_ALLOCATEALL, F_PEOFPOSMODE, 0, (off_t)(to - from), 0};
    result = fcntl(fd, F_PREALLOCATE, &store);
    if (result == -1) {
        store.fst_flags = F_ALLOCATEALL;
        result = fcntl(fd, F_PREALLOCATE, &store);
    }
    return result == -1 && errno != ENOTSUP ? -1 : 0;
#else
    result = posix_fallocate(fd, (off_t)from, (off_t)(to - from));
    errno = result;
    return result == 0 || result == EOPNOTSUPP || result == EINVAL ? 0 : -1;
#endif
}

slg_status slg_preallocate(int fd, int64_t size, slg_error *error) {
    struct stat st;
    const slg_status status = stat_regular(fd, &st, error);
    if (status != SLG_OK) {
        return status;
    }
    if (size < 0) {
        return slg_fail_errno(error, SLG_IO, size, EINVAL);
    }
    if ((int64_t)st.st_size >= size) {
        return SLG_OK;
    }
    if (reserve(fd, (int64_t)st.st_size, size) != 0 || truncate_to(fd, size) != 0) {
        const int cause = errno;
        /* On a full disk ext4 keeps part of the blocks: release them. */
        (void)truncate_to(fd, (int64_t)st.st_size);
        return slg_fail_errno(error, SLG_IO, size, cause);
    }
    return SLG_OK;
}

slg_status slg_trim(int fd, int64_t size, slg_error *error) {
    struct stat st;
    const slg_status status = stat_regular(fd, &st, error);
    if (status != SLG_OK) {
        return status;
    }
    if (size < 0) {
        return slg_fail_errno(error, SLG_IO, size, EINVAL);
    }
    if ((int64_t)st.st_size < size) {
        return slg_fail(error, SLG_FILE_SHRANK, 0, size, (int64_t)st.st_size);
    }
    return truncate_to(fd, size) == 0 ? SLG_OK : fail_io(error, size);
}

slg_status slg_sync(int fd, bool metadata, slg_error *error) {
    int result;
    do {
#if defined(__APPLE__)
        (void)metadata;
        result = fcntl(fd, F_FULLFSYNC);
        if (result == -1 && errno != EINTR) {
            result = fsync(fd); /* network file systems have no F_FULLFSYNC */
        }
#else
        result = metadata ? fsync(fd) : fdatasync(fd);
#endif
    } while (result != 0 && errno == EINTR);
    return result == 0 ? SLG_OK : fail_io(error, 0);
}

void slg_start_writeback(int fd, int64_t position, int64_t size) {
#if defined(__linux__) && defined(SYNC_FILE_RANGE_WRITE)
    if (position >= 0 && size > 0) {
        (void)sync_file_range(fd, (off_t)position, (off_t)size, SYNC_FILE_RANGE_WRITE);
    }
#else
    (void)fd, (void)position, (void)size;
#endif
}

slg_status slg_set_size(const char *path, int64_t size, slg_error *error) {
    int64_t before;
    int fd;
    slg_status status = open_file(AT_FDCWD, path, O_RDWR, false, &fd, &before, error);
    if (status != SLG_OK) {
        return status;
    }
    if (truncate_to(fd, size) != 0) {
        status = fail_io(error, size);
    }
    close(fd);
    return status;
}

static slg_seen see(int dir, const char *name) {
    slg_seen seen = {SLG_SEEN_UNKNOWN, -1};
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        seen.size = errno == ENOENT ? SLG_SEEN_MISSING : SLG_SEEN_UNKNOWN;
    } else if (S_ISREG(st.st_mode)) {
        seen.size = (int64_t)st.st_size;
    }
    return seen;
}

static slg_seen see_and_read(int dir, const char *name, size_t each, uint8_t *room) {
    slg_seen seen = {SLG_SEEN_UNKNOWN, -1};
    slg_error error;
    int64_t size;
    size_t got;
    int fd;
    const slg_status status = slg_open_read(dir, name, false, &fd, &size, &error);
    if (status != SLG_OK) {
        seen.size = status == SLG_FILE_MISSING ? SLG_SEEN_MISSING : SLG_SEEN_UNKNOWN;
        return seen;
    }
    seen.size = size;
    if (size <= (int64_t)each) {
        if (slg_pread(fd, room, (size_t)size, 0, &got, &error) == SLG_OK && got == (size_t)size) {
            seen.content = size;
        } else {
            seen.size = SLG_SEEN_UNKNOWN;
        }
    }
    close(fd);
    return seen;
}

void slg_look(const char *directory, const char *names, size_t count, size_t read_count,
              size_t each, uint8_t *room, slg_seen *seen) {
    int dir;
    (void)slg_open_directory(AT_FDCWD, directory, true, &dir, NULL);
    for (size_t i = 0; i < count; i++, names += strlen(names) + 1) {
        if (dir < 0) {
            seen[i] = (slg_seen){SLG_SEEN_UNKNOWN, -1};
        } else if (i < read_count) {
            seen[i] = see_and_read(dir, names, each, room + i * each);
        } else {
            seen[i] = see(dir, names);
        }
    }
    if (dir >= 0) {
        close(dir);
    }
}
