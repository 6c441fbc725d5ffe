/*
 * System calls on files, bounded: each retries EINTR, goes on after a short transfer, and turns a
 * failure into SLG_IO (or a closer code) with errno. Descriptors are the caller's; only
 * slg_next_data moves a file position, and no call uses one. Safe from any thread; all may block on
 * the disk, so callers release their locks.
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
 * Opens a regular file for reading, close-on-exec, without waiting for a writer of a fifo and
 * without becoming a terminal's session. `path` is relative to `dir_fd` (AT_FDCWD: the working
 * directory). A last component that is a symbolic link is followed only when asked. On SLG_OK *fd
 * is the caller's to close and *size its size now; otherwise nothing is open. SLG_FILE_MISSING,
 * SLG_FILE_KIND (link, directory, device, fifo, socket), SLG_IO.
 */
slg_status slg_open_read(int dir_fd, const char *path, bool follow_links, int *fd, int64_t *size,
                         slg_error *error);

/* The size of an open regular file. SLG_FILE_KIND, SLG_IO. */
slg_status slg_file_size(int fd, int64_t *size, slg_error *error);

/* Up to `size` bytes from `position`; *got is less only where the file ends. SLG_IO. */
slg_status slg_pread(int fd, void *into, size_t size, int64_t position, size_t *got,
                     slg_error *error);

/* Exactly `size` bytes. SLG_FILE_SHRANK (expected = size, found = bytes there were), SLG_IO. */
slg_status slg_pread_exact(int fd, void *into, size_t size, int64_t position, slg_error *error);

/*
 * The first position at or after `position` that may hold anything but zeros, at most `end`: what
 * the file system knows of holes, which is how Kafka preallocates, and of blocks that were reserved
 * and never written nor read. A file system that knows nothing gives `position` back.
 */
int64_t slg_next_data(int fd, int64_t position, int64_t end);

/* All of `size` bytes at `position`. On failure any prefix may have been written. SLG_IO. */
slg_status slg_pwrite(int fd, const void *data, size_t size, int64_t position, slg_error *error);

/*
 * Makes the file at least `size` bytes long, the new ones zero, and reserves their blocks, so that
 * later writes neither fragment nor meet a full disk. Never shrinks and never touches bytes that
 * exist. A file system that cannot reserve gets the length alone, which is all that Kafka's
 * preallocation (KIP-20) asks for. On failure the old length is restored. SLG_FILE_KIND, SLG_IO.
 */
slg_status slg_preallocate(int fd, int64_t size, slg_error *error);

/* Cuts the file to its logical size. Never extends: SLG_FILE_SHRANK if it is shorter already. */
slg_status slg_trim(int fd, int64_t size, slg_error *error);

/*
 * Data and length on the medium; with `metadata` times and modes as well. Also on the descriptor of
 * a directory. On macOS this asks the drive to empty its cache, as fsync alone does not. A failure
 * is final: the kernel may have dropped the pages, and a second call can succeed all the same.
 */
slg_status slg_sync(int fd, bool metadata, slg_error *error);

/*
 * Starts to write these bytes to the disk, where the system can (Linux), and does not wait: the
 * slg_sync that must follow has less left to do. Promises nothing, and reports no failure.
 */
void slg_start_writeback(int fd, int64_t position, int64_t size);

/* Sets the length of the regular file `path`, never that of a link's target. SLG_FILE_MISSING,
 * SLG_FILE_KIND, SLG_IO. */
slg_status slg_set_size(const char *path, int64_t size, slg_error *error);

/* What slg_look saw of a file. */
enum { SLG_SEEN_MISSING = -1, SLG_SEEN_UNKNOWN = -2 };

typedef struct slg_seen {
    int64_t size; /* of a regular file, or SLG_SEEN_*: unknown is what is anything else, or what
                        the file system refused to tell */
    int64_t content; /* bytes that were read; -1 for a file that was not */
} slg_seen;

/*
 * Looks at `count` files of `directory` in one go. `names` are strings one behind the other. Of the
 * first `read_count` that are at most `each` bytes long the content is put at `room` + i * `each`.
 * Nothing fails here: what could not be told is for somebody else to ask again.
 */
void slg_look(const char *directory, const char *names, size_t count, size_t read_count,
              size_t each, uint8_t *room, slg_seen *seen);

#ifdef __cplusplus
}
#endif
#endif
