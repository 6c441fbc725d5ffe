/*
 * Random reads by offset in a log, by pread: Kafka's walk over headers from the position that an
 * index gives. A file that is cut under a reader is a status and no signal.
 *
 * Descriptors are the caller's, open for reading. Functions allocate nothing and keep state only in
 * the caller's structs. Any thread may call them. All may block on the disk.
 */
#ifndef SEGLOG_FETCH_H
#define SEGLOG_FETCH_H

#include <stddef.h>
#include <stdint.h>

#include "seglog/index.h"
#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A batch in a log file. */
typedef struct slg_fetch_batch {
    int64_t base_offset;
    int64_t position;
    int64_t size;
} slg_fetch_batch;

/* Bytes of a log file that a search has read; the caller may use them. */
enum { SLG_FETCH_WINDOW = 8192 };
typedef struct slg_fetch_window {
    int64_t position;
    size_t size;
    uint8_t data[SLG_FETCH_WINDOW];
} slg_fetch_window;

/*
 * How many bytes to read at `start`, to which `entry` points, on the way to `target`. Between two
 * near entries: up to the estimated end of the batch and the header after it, assuming equal
 * records, and not past the batch of `next`. Only a header if batches are large.
 */
size_t slg_fetch_first_read(int64_t target, int64_t start, const slg_index_entry *entry,
                            const slg_index_entry *next, int64_t batch_size);

/*
 * The batch that contains `target`, else the first one after it, searching from `position` to `end`
 * (the valid bytes of the log). Reads only headers, and checks them as Kafka's file iteration does.
 * SLG_OK; SLG_END: all batches end before `target`; SLG_BATCH_LENGTH: an invalid length (Kafka:
 * CorruptRecordException); SLG_BATCH_MAGIC: a message of magic 0 or 1, whose header may lack its
 * first offset; SLG_BATCH_SIZE: a batch smaller than its header; SLG_FILE_SHRANK; SLG_IO: a
 * header on the way to `target` cannot be read (bytes after the batch may be unreadable).
 * `first_read` is the size of the first read; a good estimate avoids a second one.
 */
slg_status slg_fetch_find(int fd, int64_t position, int64_t end, int64_t target, size_t first_read,
                          slg_fetch_window *window, slg_fetch_batch *found, slg_error *error);

/* The batches at the beginning of a span of log bytes. */
typedef struct slg_fetch_span {
    size_t size;         /* bytes of whole batches, at most the given size */
    size_t first_size;   /* of the first batch, whole or not; 0 if its length is missing */
    int64_t base_offset; /* stored in the first batch */
    int64_t next_offset; /* after the last whole batch; undefined if size is 0 */
} slg_fetch_span;

/*
 * The whole batches, of any format, at the beginning of `data`, found by their lengths alone. They
 * end before the first one that begins at or above `stop_offset`. SLG_OK, or SLG_BATCH_LENGTH if
 * the first one has an invalid length; a later invalid length ends the span.
 */
slg_status slg_fetch_whole(const uint8_t *data, size_t size, int64_t position, int64_t stop_offset,
                           slg_fetch_span *span, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
