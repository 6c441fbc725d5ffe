/*
 * Random reads by offset: Kafka's index search and its iteration over batch headers, both by pread.
 * Nothing is mapped, so a file truncated under a reader gives a status, not a signal.
 *
 * Descriptors are the caller's, open for reading. Functions allocate nothing and keep state only in
 * the caller's structs. Any thread may call them, one at a time per slg_fetch_index. All may block
 * on the disk.
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

/* An offset or time index; only the first `entries` entries are searched. */
typedef struct slg_fetch_index {
    slg_index_kind kind;
    int fd;              /* -1: no file, an index without entries */
    int64_t base_offset;
    size_t entries;
} slg_fetch_index;

typedef enum slg_fetch_bound {
    SLG_FETCH_LOWER = 0,         /* the last entry whose key is <= target */
    SLG_FETCH_UPPER_POSITION = 1 /* offset index: the first entry whose position is >= target */
} slg_fetch_bound;

/*
 * Kafka's lookups, with Kafka's result for any bytes. If no entry is found, *slot is -1 and *entry
 * is Kafka's result for an empty index: (base_offset, 0) for an offset index, (-1, base_offset) for
 * a time index. SLG_IO, or SLG_FILE_SHRANK if the file has fewer entries.
 */
slg_status slg_fetch_search(const slg_fetch_index *index, slg_fetch_bound bound, int64_t target,
                            int64_t *slot, slg_index_entry *entry, slg_error *error);

/*
 * Every `stride`-th of the first `covered` entries of an offset index, in memory, so that a lookup
 * reads at most one block of the file. Only for strictly increasing keys, for which any search
 * gives Kafka's slot. The owner frees it; it does not change once filled.
 */
typedef struct slg_fetch_samples {
    uint8_t *data;  /* `count` entries as stored; NULL: none */
    size_t count;
    size_t stride;
    size_t covered;
    int64_t last_key; /* of the last entry covered */
} slg_fetch_samples;

enum {
    /* 2 MiB: all entries of a segment with Kafka's defaults, 1 GiB with an entry per 4 KiB. */
    SLG_FETCH_SAMPLES_MAX = 262144,
    SLG_FETCH_UNCOVERED_MAX = 1024 /* entries after those covered that a lookup may read */
};

/*
 * Whether lookups among `entries` need no newer samples. New samples are due when a 64th has been
 * added, so that the cost of copying is amortized over the appended entries.
 */
bool slg_fetch_samples_serve(const slg_fetch_samples *samples, size_t entries);

/*
 * Fills `samples` from the file, continuing from `before` (NULL: from the beginning), which does
 * not change. SLG_OK; SLG_INDEX_OFFSET_ORDER if keys do not increase, then nothing is sampled;
 * SLG_IO, SLG_FILE_SHRANK, SLG_NO_MEMORY.
 */
slg_status slg_fetch_sample(const slg_fetch_index *index, const slg_fetch_samples *before,
                            slg_fetch_samples *samples, slg_error *error);
void slg_fetch_samples_free(slg_fetch_samples *samples);

/*
 * The entry that slg_fetch_search with SLG_FETCH_LOWER finds, and the next one, whose value is -1
 * if unknown. SLG_MORE: these samples are not sufficient.
 */
slg_status slg_fetch_lookup(const slg_fetch_index *index, const slg_fetch_samples *samples,
                            int64_t target, slg_index_entry *entry, slg_index_entry *next,
                            slg_error *error);

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
 * first offset; SLG_BATCH_SIZE: a batch smaller than its header; SLG_FILE_SHRANK, SLG_IO.
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
