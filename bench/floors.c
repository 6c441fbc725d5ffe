/*
 * Floors: the least that a measure cannot do without, in a plain C loop. bench/floors.py compiles
 * this with the machine's C compiler, and with csrc's own CRC-32C kernels, so that a floor is never
 * slower for want of a good checksum. Errors are -1 with errno; spans belong to the caller.
 */
#define _GNU_SOURCE

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "seglog/crc32c.h"

enum { NUMBER_DIGITS = 20, INDEX_BYTES_MAX = 1 << 16, SHARE_SEGMENTS = 256,
       BATCH_HEADER_BYTES = 61, STRETCH_BYTES_MAX = 1 << 16 };

/* CRC-32C of bytes [0, size) of a file, window by window: what reading every byte once costs. */
int64_t floor_crc_pread(int fd, int64_t size, int64_t window, uint32_t *crc) {
    const slg_crc32c_kernel kernel = slg_crc32c_best();
    char *buffer = malloc((size_t)window);
    int64_t done = 0;
    if (buffer == NULL) {
        return -1;
    }
    *crc = 0;
    while (done < size) {
        const int64_t wanted = size - done < window ? size - done : window;
        const ssize_t got = pread(fd, buffer, (size_t)wanted, (off_t)done);
        if (got <= 0) {
            break;
        }
        *crc = slg_crc32c(kernel, *crc, buffer, (size_t)got);
        done += got;
    }
    free(buffer);
    return done;
}

/* Values of `width` bytes copied one by one, and the CRC-32C of every `batch` of them: what writing
   them in batches costs without any length or delta. The batches take turns in `room` bytes. */
int64_t floor_copy_crc(const char *values, int64_t count, int64_t width, int64_t batch,
                       int64_t room, uint32_t *crc) {
    const slg_crc32c_kernel kernel = slg_crc32c_best();
    char *out = malloc((size_t)room);
    int64_t at = 0;
    if (out == NULL || batch * width > room) {
        free(out);
        return -1;
    }
    *crc = 0;
    for (int64_t n = 0; n < count; n += batch) {
        const int64_t here = count - n < batch ? count - n : batch;
        at = at + batch * width > room ? 0 : at;
        for (int64_t i = 0; i < here; i++) {
            memcpy(out + at + i * width, values + (n + i) * width, (size_t)width);
        }
        *crc ^= slg_crc32c(kernel, 0, out + at, (size_t)(here * width));
        at += here * width;
    }
    free(out);
    return count;
}

/* A batch written `count` times from the beginning of a file, its CRC-32C taken each time: what an
   append costs that knows neither offsets nor records. `together` of them lie behind one another at
   `data` and are one write. Bytes written, or -1. */
int64_t floor_crc_write(int fd, const char *data, int64_t size, int64_t together, int64_t count,
                        uint32_t *crc) {
    const slg_crc32c_kernel kernel = slg_crc32c_best();
    int64_t at = 0;
    *crc = 0;
    for (int64_t n = 0; n < count; n += together) {
        for (int64_t i = 0; i < together; i++) {
            *crc ^= slg_crc32c(kernel, 0, data + i * size, (size_t)size);
        }
        const ssize_t done = pwrite(fd, data, (size_t)(size * together), (off_t)at);
        if (done != size * together) {
            return -1;
        }
        at += done;
    }
    return at;
}

static int64_t load_u32(const unsigned char *p) {
    uint32_t raw;
    memcpy(&raw, p, sizeof raw);
    return __builtin_bswap32(raw);
}

/* The last of `length` big-endian (offset, position) entries whose offset is not above the target,
   or NULL. */
static const unsigned char *entry_of(const unsigned char *entries, int64_t length, int64_t target) {
    int64_t low = 0, high = length;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (load_u32(entries + middle * 8) <= target) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? entries + (low - 1) * 8 : NULL;
}

/* Binary search, `count` times: how many offsets of `found` were written, the largest not above
   each target, or 0. */
int64_t floor_bisect(const unsigned char *entries, int64_t length, const int64_t *targets,
                     int64_t count, int64_t *found) {
    for (int64_t n = 0; n < count; n++) {
        const unsigned char *entry = entry_of(entries, length, targets[n]);
        found[n] = entry == NULL ? 0 : load_u32(entry);
    }
    return count;
}

/* The same search, and a read of `size` bytes from where the entry points. How many bytes that
   were, or -1. */
int64_t floor_pread(int fd, const unsigned char *entries, int64_t length, const int64_t *targets,
                    int64_t count, int64_t size) {
    unsigned char *into = malloc((size_t)size);
    int64_t total = into == NULL ? -1 : 0;
    for (int64_t n = 0; n < count && total >= 0; n++) {
        const unsigned char *entry = entry_of(entries, length, targets[n]);
        const ssize_t got = pread(fd, into, (size_t)size, entry == NULL ? 0 : load_u32(entry + 4));
        total = got < 0 ? -1 : total + got;
    }
    free(into);
    return total;
}

/* Batches by offset, of a log in which each has `size` bytes and `offsets` offsets: the same
   search, a read from where the entry points to the header behind the wanted batch, which it thus
   knows beforehand, and the batch that the headers say, copied out. Bytes of the batches, or -1. */
int64_t floor_fetch(int fd, const unsigned char *entries, int64_t length, const int64_t *targets,
                    int64_t count, int64_t size, int64_t offsets) {
    unsigned char into[STRETCH_BYTES_MAX], *taken = malloc((size_t)size);
    int64_t total = taken == NULL ? -1 : 0;
    for (int64_t n = 0; n < count && total >= 0; n++) {
        const unsigned char *entry = entry_of(entries, length, targets[n]);
        const int64_t from = entry == NULL ? 0 : load_u32(entry + 4);
        const int64_t wanted = (targets[n] / offsets + 1) * size + BATCH_HEADER_BYTES - from;
        if (wanted > STRETCH_BYTES_MAX) {
            total = -1;
            break;
        }
        const ssize_t got = pread(fd, into, (size_t)wanted, (off_t)from);
        int64_t at = 0, before = -1;
        while (at + BATCH_HEADER_BYTES <= got && load_u32(into + at + 4) <= targets[n]) {
            before = at;
            at += 12 + load_u32(into + at + 8);
        }
        if (before < 0 || at - before != size || at > got) {
            total = -1;
            break;
        }
        memcpy(taken, into + before, (size_t)size);
        total += size;
    }
    free(taken);
    return total;
}

static int is_log(const char *name) {
    return strlen(name) == NUMBER_DIGITS + 4 && strcmp(name + NUMBER_DIGITS, ".log") == 0;
}

/* Bytes of both indexes of one segment, or -1. */
static int64_t open_indexes(int dir, const char *log_name, char *buffer) {
    int64_t bytes = 0;
    for (int time_index = 0; time_index < 2; time_index++) {
        char name[NUMBER_DIGITS + 16];
        struct stat st;
        memcpy(name, log_name, NUMBER_DIGITS);
        strcpy(name + NUMBER_DIGITS, time_index ? ".timeindex" : ".index");
        const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            return -1;
        }
        if (fstat(fd, &st) == 0) {
            bytes += (int64_t)pread(fd, buffer, INDEX_BYTES_MAX, 0);
        }
        close(fd);
    }
    return bytes;
}

/* One pass over a partition directory: how many segments it did. With `indexes`, opens, fstats,
   reads and closes both indexes of each; without, asks for the size of each log. Threads share a
   directory: each lists it, and does the blocks of SHARE_SEGMENTS that are its own. */
int64_t floor_load(const char *path, int indexes, int share, int shares, int64_t *bytes) {
    DIR *dir = opendir(path);
    char *buffer = malloc(INDEX_BYTES_MAX);
    const struct dirent *entry;
    int64_t segments = 0, listed = 0;
    *bytes = 0;
    while (dir != NULL && buffer != NULL && (entry = readdir(dir)) != NULL) {
        struct stat st;
        if (!is_log(entry->d_name) || listed++ / SHARE_SEGMENTS % shares != share) {
            continue;
        }
        segments++;
        if (indexes) {
            *bytes += open_indexes(dirfd(dir), entry->d_name, buffer);
        } else if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0) {
            *bytes += (int64_t)st.st_size;
        }
    }
    free(buffer);
    if (dir != NULL) {
        closedir(dir);
    }
    return dir == NULL || buffer == NULL ? -1 : segments;
}
