/*
 * System calls on files. Each retries EINTR, continues after a short transfer, and turns a failure
 * into SLG_IO (or a more specific code) with errno. Descriptors are the caller's; no call uses a
 * file position, and only slg_next_data moves it. Thread-safe; all may block on the disk, so
 * callers release their locks.
 */
#ifndef SEGLOG_FILE_H
#define SEGLOG_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens a regular file for reading, close-on-exec, without waiting for the writer of a fifo or
 * acquiring a controlling terminal. `path` is relative to `dir_fd` (AT_FDCWD: the working
 * directory). A symbolic link as last component is followed only on request. On SLG_OK the caller
 * closes *fd, and *size is its current size; otherwise nothing is open. SLG_FILE_MISSING,
 * SLG_FILE_KIND (link, directory, device, fifo, socket), SLG_IO.
 */
slg_status slg_open_read(int dir_fd, const char *path, bool follow_links, int *fd, int64_t *size,
                         slg_error *error);

/* Opens a directory for its names and for calls relative to it, close-on-exec. On SLG_OK the caller
 * closes *fd. SLG_IO. */
slg_status slg_open_directory(int dir_fd, const char *path, bool follow_links, int *fd,
                              slg_error *error);

/* The size of an open regular file. SLG_FILE_KIND, SLG_IO. */
slg_status slg_file_size(int fd, int64_t *size, slg_error *error);

/* Reads up to `size` bytes at `position`; *got is less only at the end of the file, and with
 * SLG_IO: the bytes before the one that cannot be read. */
slg_status slg_pread(int fd, void *into, size_t size, int64_t position, size_t *got,
                     slg_error *error);

/* Reads exactly `size` bytes. SLG_FILE_SHRANK (expected = size, found = bytes read); SLG_IO
 * (position = the first byte that cannot be read; those before it were read). */
slg_status slg_pread_exact(int fd, void *into, size_t size, int64_t position, slg_error *error);

/*
 * The first position at or after `position`, at most `end`, that may hold non-zero bytes. The file
 * system reports holes, with which Kafka preallocates, and blocks that were reserved but never
 * written or read. Returns `position` if it reports neither.
 */
int64_t slg_next_data(int fd, int64_t position, int64_t end);

/* Writes `size` bytes at `position`. On failure any prefix may have been written. SLG_IO. */
slg_status slg_pwrite(int fd, const void *data, size_t size, int64_t position, slg_error *error);

/*
 * Extends the file with zeros to at least `size` bytes and reserves their blocks, so that later
 * writes neither fragment the file nor find the disk full. Never shrinks the file or changes
 * existing bytes. If the file system cannot reserve, sets only the length, as Kafka's preallocation
 * (KIP-20) does. On failure the old length is restored. SLG_FILE_KIND, SLG_IO.
 */
slg_status slg_preallocate(int fd, int64_t size, slg_error *error);

/* Truncates the file to its logical size. Never extends: SLG_FILE_SHRANK if it is shorter. */
slg_status slg_trim(int fd, int64_t size, slg_error *error);

/*
 * Makes data and length durable; with `metadata` times and modes as well. Also takes the descriptor
 * of a directory. On macOS it flushes the drive's cache, which fsync alone does not. A failure is
 * final: the kernel may have dropped the pages, and a second call can still succeed.
 */
slg_status slg_sync(int fd, bool metadata, slg_error *error);

/*
 * Starts writing these bytes to disk where the system can (Linux), without waiting, so that the
 * slg_sync that must follow has less to do. Guarantees nothing and reports no failure.
 */
void slg_start_writeback(int fd, int64_t position, int64_t size);

/* Sets the length of the regular file `path`, never that of a link's target. SLG_FILE_MISSING,
 * SLG_FILE_KIND, SLG_IO, also for a directory. */
slg_status slg_set_size(const char *path, int64_t size, slg_error *error);

/* What slg_look found about a file. */
enum { SLG_SEEN_MISSING = -1, SLG_SEEN_UNKNOWN = -2 };

typedef struct slg_seen {
    int64_t size; /* of a regular file, or SLG_SEEN_*: unknown is what is anything else, or what
                        the file system refused to tell */
    int64_t content; /* bytes read; -1 if the file was not read */
} slg_seen;

/*
 * Checks `count` files of `directory` in one call. `names` are consecutive strings. Reads those of
 * the first `read_count` that are at most `each` bytes long into `room` + i * `each`. Never fails:
 * the caller asks again about a file that is unknown.
 */
void slg_look(const char *directory, const char *names, size_t count, size_t read_count,
              size_t each, uint8_t *room, slg_seen *seen);

#ifdef __cplusplus
}
#endif
#endif
