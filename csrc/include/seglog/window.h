/*
 * A window over a file, moved forward by pread, or over bytes that the caller fetches from an
 * object store. It never maps the file: truncation by a broker would then kill the process, while
 * pread just returns fewer bytes.
 *
 * The window owns its buffer and no descriptor. One thread at a time. After any call
 * SLG_WINDOW_SLACK bytes after the valid ones are readable (with undefined content), so that
 * decoders may load whole words at the end of the data.
 */
#ifndef SEGLOG_WINDOW_H
#define SEGLOG_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SLG_WINDOW_SLACK = 64 };

/*
 * Reads at least `least` and at most `most` bytes at `position` into `into`, and sets *got; fewer
 * than `least` only at the end. May block. SLG_OK or SLG_IO.
 */
typedef slg_status (*slg_source_read)(void *context, uint8_t *into, size_t least, size_t most,
                                      int64_t position, size_t *got, slg_error *error);

/* The source of bytes: a descriptor, or the caller's function if `read` is set. Both are the
 * caller's and outlive the window's use. */
typedef struct slg_source {
    int fd;
    slg_source_read read;
    void *context;
} slg_source;

static inline slg_source slg_source_of(int fd) { return (slg_source){.fd = fd}; }

typedef struct slg_window {
    slg_source source;
    int64_t end;      /* the file's logical end: nothing at or after it is read */
    uint8_t *data;    /* bytes [position, position + size) of the file */
    size_t size;
    size_t capacity;  /* without the slack */
    size_t target;    /* bytes per read, unless one batch needs more */
    int64_t position;
} slg_window;

/* Allocates nothing yet; `target` > 0 is the usual size of a read. */
void slg_window_init(slg_window *window, slg_source source, int64_t end, size_t target);
void slg_window_free(slg_window *window);

/* Empties the buffer and reuses it for another source or another end. */
void slg_window_restart(slg_window *window, slg_source source, int64_t end, size_t target);

/*
 * Makes [position, position + size) valid, size >= 1, position + size <= end, and more bytes after
 * it up to the target, or to the first that cannot be read. Bytes already in the window are not
 * read again. The buffer grows past the target only after the last byte proves to exist. SLG_OK,
 * SLG_IO, SLG_NO_MEMORY, or SLG_FILE_SHRANK (expected = wanted end, found = actual end).
 */
slg_status slg_window_need(slg_window *window, int64_t position, size_t size, slg_error *error);

/* The bytes at `position`, which slg_window_need made valid. */
static inline const uint8_t *slg_window_at(const slg_window *window, int64_t position) {
    return window->data + (position - window->position);
}

/* Valid bytes from `position` on; 0 if it is outside the window. */
static inline size_t slg_window_left(const slg_window *window, int64_t position) {
    const int64_t at = position - window->position;
    return at < 0 || (uint64_t)at >= window->size ? 0 : window->size - (size_t)at;
}

/* Whether all bytes are zero; true for an empty span. */
bool slg_is_zero(const uint8_t *data, size_t size);

/* SLG_ZERO_TAIL if [position, end) holds only zeros, SLG_OK if not, or the error of a read. */
slg_status slg_window_zero_tail(slg_window *window, int64_t position, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
