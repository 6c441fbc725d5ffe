/* Finds where a scan may begin in the middle of a file, or continue after damage. */
#include <string.h>

#include "message.h"

/* ---- beginning in the middle --------------------------------------------------------------- */

/* Runs all checks on an entry at `at`: SLG_OK if it is one. */
static slg_status try_entry(slg_window *window, int64_t at, unsigned checks,
                            slg_crc32c_kernel kernel) {
    slg_batch_scan scan = {
        .checks = checks, .kernel = kernel, .position = at, .end = window->end, .batches_left = 1};
    slg_error ignored;
    slg_batch_scan_init(&scan);
    const slg_status status = slg_batch_scan_file(&scan, window, &ignored);
    return scan.batch_count == 1 ? SLG_OK : status;
}

/* The next byte from `at` on that may be the magic of a batch, or NULL. */
static const uint8_t *next_magic(const slg_window *window, int64_t at, size_t here) {
    const uint8_t *data = slg_window_at(window, at);
    return memchr(data + SLG_BATCH_MAGIC_AT, SLG_MAGIC_MAX, here - SLG_BATCH_MAGIC_AT);
}

/*
 * Whether the bytes at `at`, of which the window holds a header, look like an entry: *size. One
 * position in millions of random bytes does. A message of magic 0 or 1 looks like any bytes.
 */
static bool looks_like_entry(const slg_window *window, int64_t at, int32_t *size) {
    const uint8_t *data = slg_window_at(window, at);
    const size_t left = slg_window_left(window, at);
    slg_batch batch;
    return slg_batch_frame(data, left, at, window->end, size, NULL) == SLG_OK &&
           slg_batch_parse(data, left, at, *size, &batch, NULL) == SLG_OK &&
           slg_batch_check_header(&batch, NULL) == SLG_OK;
}

/*
 * Whether an entry is at `at`: SLG_OK or SLG_END. Checksums at most *budget bytes: lengths are
 * hostile, and an entry larger than the window costs a read of it and of the window again.
 */
static slg_status find_at(slg_window *window, int64_t at, slg_crc32c_kernel kernel, int64_t *budget,
                          slg_error *error) {
    int32_t size;
    if (!looks_like_entry(window, at, &size)) {
        return SLG_END;
    }
    const int64_t cost = size + (int64_t)window->target;
    if (cost > *budget) {
        return slg_fail(error, SLG_LIMIT, at, SLG_FIND_BYTES_MAX, cost);
    }
    *budget -= cost;
    return try_entry(window, at, SLG_SCAN_CRC | SLG_SCAN_STRICT, kernel) == SLG_OK ? SLG_OK
                                                                                   : SLG_END;
}

slg_status slg_batch_find(slg_window *window, int64_t from, int64_t until, slg_crc32c_kernel kernel,
                          int64_t *found, slg_error *error) {
    int64_t budget = SLG_FIND_BYTES_MAX;
    for (int64_t at = from; at < until;) {
        if (window->end - at < SLG_BATCH_HEADER_SIZE) {
            return SLG_END;
        }
        slg_status status = slg_window_need(window, at, SLG_BATCH_HEADER_SIZE, error);
        if (status != SLG_OK) {
            return status;
        }
        if (at > from) {
            const size_t here = slg_window_left(window, at);
            const uint8_t *magic = next_magic(window, at, here);
            if (magic == NULL) {
                /* The last bytes may begin a batch whose magic is not in the window yet. */
                at += (int64_t)(here - SLG_BATCH_MAGIC_AT);
                continue;
            }
            at += magic - slg_window_at(window, at) - SLG_BATCH_MAGIC_AT;
            if (at >= until || slg_window_left(window, at) < SLG_BATCH_HEADER_SIZE) {
                continue;
            }
        }
        status = find_at(window, at, kernel, &budget, error);
        if (status != SLG_END) {
            *found = status == SLG_OK ? at : *found;
            return status;
        }
        at++;
    }
    return SLG_END;
}

/* ---- after damage -------------------------------------------------------------------------- */

/* Whether the sizes in a message of magic 0 or 1 add up; `here` bytes of it are in memory. */
static bool message_adds_up(const uint8_t *data, size_t here, int64_t size) {
    const int32_t least = slg_message_size_min(data[SLG_MAGIC_AT]);
    slg_message message;
    if (size < least || here < (size_t)least) {
        return false;
    }
    const slg_message_part part = slg_message_read(data, here, &message);
    if (message.key_size < -1 || message.value_at > size) {
        return false;
    }
    if (part == SLG_MESSAGE_NO_KEY || part == SLG_MESSAGE_NO_VALUE_SIZE) {
        return true; /* the CRC decides */
    }
    return message.value_size >= -1 &&
           message.value_at + (message.value_size > 0 ? message.value_size : 0) == size;
}

/* The first of `count` positions from `data` on that may begin an entry, by length and magic. */
static size_t next_candidate(const uint8_t *data, size_t count, int64_t rest) {
    for (size_t i = 0; i < count; i++) {
        if (data[i + SLG_MAGIC_AT] <= SLG_MAGIC_MAX) {
            int64_t size;
            if (slg_frame(data + i, &size) && size <= rest - (int64_t)i) {
                return i;
            }
        }
    }
    return count;
}

slg_status slg_batch_resync(slg_window *window, int64_t from, int64_t until,
                            slg_crc32c_kernel kernel, int64_t *budget, int64_t *found,
                            slg_error *error) {
    for (int64_t at = from; at < until;) {
        const int64_t rest = window->end - at;
        if (rest < SLG_V0_SIZE_MIN) {
            return SLG_END;
        }
        const size_t header = rest < SLG_BATCH_HEADER_SIZE ? (size_t)rest : SLG_BATCH_HEADER_SIZE;
        slg_status status = slg_window_need(window, at, header, error);
        if (status != SLG_OK) {
            return status;
        }
        const size_t here = slg_window_left(window, at);
        const size_t whole = here - header + 1; /* positions whose header is in memory */
        const size_t wanted = (int64_t)whole < until - at ? whole : (size_t)(until - at);
        const size_t passed = next_candidate(slg_window_at(window, at), wanted, rest);
        at += (int64_t)passed;
        if (passed == wanted) {
            continue;
        }
        const uint8_t *data = slg_window_at(window, at);
        int64_t size;
        (void)slg_frame(data, &size);
        if (data[SLG_MAGIC_AT] == SLG_MAGIC_MAX ||
            message_adds_up(data, slg_window_left(window, at), size)) {
            status = find_at(window, at, kernel, budget, error);
            if (status != SLG_END) {
                *found = status == SLG_OK ? at : *found;
                return status;
            }
        }
        at++;
    }
    return SLG_END;
}
