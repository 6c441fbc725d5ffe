#include "seglog/window.h"

#include <stdlib.h>
#include <string.h>

#include "seglog/file.h"

void slg_window_init(slg_window *window, slg_source source, int64_t end, size_t target) {
    /* The window need not exceed a small file. */
    const uint64_t whole = end > 0 ? (uint64_t)end : 1;
    *window = (slg_window){
        .source = source, .end = end, .target = target < whole ? target : (size_t)whole};
}

void slg_window_free(slg_window *window) {
    free(window->data);
    window->data = NULL;
    window->size = window->capacity = 0;
}

void slg_window_restart(slg_window *window, slg_source source, int64_t end, size_t target) {
    if (window->capacity > target) {
        slg_window_free(window); /* do not keep the memory of one large batch */
    }
    uint8_t *const data = window->data;
    const size_t capacity = window->capacity;
    slg_window_init(window, source, end, target);
    window->data = data;
    window->capacity = capacity;
}

/* Reads at least `least` bytes, and up to `most`. What cannot be read after `least` is the next
 * call's error: the batches before an unreadable page are delivered. */
static slg_status read_at(const slg_window *window, uint8_t *into, size_t least, size_t most,
                          int64_t position, size_t *got, slg_error *error) {
    const slg_source *source = &window->source;
    slg_status status;
    if (source->read == NULL) {
        status = slg_pread(source->fd, into, most, position, got, error);
        status = status == SLG_IO && *got >= least ? SLG_OK : status;
    } else {
        status = source->read(source->context, into, least, most, position, got, error);
    }
    if (status == SLG_OK && *got < least) {
        const int64_t at = position + (int64_t)*got;
        return slg_fail(error, SLG_FILE_SHRANK, at, position + (int64_t)least, at);
    }
    return status;
}

static slg_status grow(slg_window *window, int64_t position, size_t size, slg_error *error) {
    size_t wanted = size > window->target ? size : window->target;
    if ((int64_t)wanted > window->end - position) {
        wanted = (size_t)(window->end - position);
    }
    if (wanted <= window->capacity) {
        return SLG_OK;
    }
    if (size > window->target) {
        /* A length field may claim up to 2 GiB: check the last byte before allocating. */
        uint8_t last;
        size_t got;
        const slg_status status =
            read_at(window, &last, 1, 1, position + (int64_t)size - 1, &got, error);
        if (status != SLG_OK) {
            return status;
        }
    }
    uint8_t *data = realloc(window->data, wanted + SLG_WINDOW_SLACK);
    if (data == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, position, (int64_t)wanted, 0);
    }
    /* Loads past the valid bytes must see defined memory, whatever it holds. */
    memset(data + wanted, 0, SLG_WINDOW_SLACK);
    window->data = data;
    window->capacity = wanted;
    return SLG_OK;
}

slg_status slg_window_need(slg_window *window, int64_t position, size_t size, slg_error *error) {
    const size_t kept = slg_window_left(window, position);
    if (kept >= size) {
        return SLG_OK;
    }
    if (kept > 0 && position != window->position) {
        memmove(window->data, slg_window_at(window, position), kept);
    }
    window->position = position;
    window->size = kept;
    slg_status status = grow(window, position, size, error);
    if (status != SLG_OK) {
        return status;
    }
    const int64_t left = window->end - position;
    size_t most = size > window->target ? size : window->target;
    if ((int64_t)most > left) {
        most = (size_t)left;
    }
    size_t got = 0;
    status = read_at(window, window->data + kept, size - kept, most - kept,
                     position + (int64_t)kept, &got, error);
    window->size = kept + got;
    return status;
}

bool slg_is_zero(const uint8_t *data, size_t size) {
    /* Each byte equals its neighbour, and the first is zero: one vectorised memcmp. */
    return size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0);
}

slg_status slg_window_zero_tail(slg_window *window, int64_t position, slg_error *error) {
    while (position < window->end) {
        if (slg_window_left(window, position) == 0) {
            /* A preallocated segment is a gigabyte of zeros: skip them. */
            if (window->source.read == NULL) {
                position = slg_next_data(window->source.fd, position, window->end);
            }
            if (position == window->end) {
                break;
            }
        }
        const slg_status status = slg_window_need(window, position, 1, error);
        if (status != SLG_OK) {
            return status;
        }
        const size_t here = slg_window_left(window, position);
        if (!slg_is_zero(slg_window_at(window, position), here)) {
            return SLG_OK;
        }
        position += (int64_t)here;
    }
    return SLG_ZERO_TAIL;
}
