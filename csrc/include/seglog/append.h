/*
 * The segment at the end of a log, as appends see it: its size, its index entries and what decides
 * about the next ones. Kafka: LogSegment.append, and UnifiedLog.append for the ordinary batches of
 * a leader.
 *
 * A writer borrows three descriptors and owns the memory in which it prepares a write. It is one
 * thread's at a time. What a call could not do it has not begun: `state` is as before, and what a
 * failed write left in the log is cut off.
 */
#ifndef SEGLOG_APPEND_H
#define SEGLOG_APPEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/producers.h"
#include "seglog/status.h"
#include "seglog/validate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an append moves on. Offsets are absolute, times ms. */
typedef struct slg_segment_state {
    int64_t size;                  /* bytes of the log that count */
    int64_t offset_entries;
    int64_t last_index_offset;     /* of the last offset entry; the base offset without one */
    int64_t time_entries;
    int64_t last_time;             /* of the last time entry; -1 without one */
    int64_t last_time_offset;      /* the base offset without one */
    int64_t bytes_since_entry;
    int64_t max_timestamp;         /* of the segment so far, and */
    int64_t max_timestamp_offset;  /* the last offset of its batch */
    int64_t first_timestamp;       /* largest of the first batch, while the size is not 0 */
    bool knows_first_timestamp;
} slg_segment_state;

/* Memory for one write, which grows. */
typedef struct slg_append_scratch {
    slg_batch *batches;
    size_t batch_room;
    uint8_t *bytes;      /* headers, and small batches whole */
    size_t bytes_room;
    struct iovec *pieces;
    size_t piece_room;
    uint8_t *offset_entries, *time_entries;
    size_t entry_room;
} slg_append_scratch;

typedef struct slg_segment_writer {
    int log_fd, index_fd, time_index_fd;
    int64_t base_offset;
    int64_t index_interval;        /* bytes */
    int64_t offset_slots, time_slots;
    slg_segment_state state;
    slg_append_scratch scratch;
} slg_segment_writer;

/* Zeroes the scratch; the caller fills the rest. */
void slg_segment_writer_init(slg_segment_writer *writer);
void slg_segment_writer_free(slg_segment_writer *writer);

/* What an index does not take when the bytes are written already: Kafka's exceptions. */
typedef enum slg_index_refusal {
    SLG_INDEX_TAKES = 0,
    SLG_INDEX_OFFSET_FULL,
    SLG_INDEX_OFFSET_BACK,  /* an offset not above the last entry's */
    SLG_INDEX_OFFSET_FAR,   /* too far from the base for an entry */
    SLG_INDEX_TIME_FULL,
    SLG_INDEX_TIME_OFFSET_BACK,
    SLG_INDEX_TIME_BACK,
    SLG_INDEX_TIME_FAR,
} slg_index_refusal;

/*
 * Writes whole batches, offsets and all, `size` bytes at `data`; rows are theirs. The caller has
 * seen to segment limits. SLG_OK also with a *refusal, at row *row: then the bytes are in the log
 * and the entries before it in the indexes, as in Kafka. SLG_IO, SLG_NO_MEMORY: nothing has
 * changed.
 */
slg_status slg_segment_append(slg_segment_writer *writer, const uint8_t *data, size_t size,
                              const slg_batch *batches, size_t count, slg_index_refusal *refusal,
                              size_t *row, slg_error *error);

/* What a leader's topic asks, and where its log stands. */
typedef struct slg_leader_rules {
    slg_record_rules records;      /* `now` is the append's */
    int64_t batch_bytes_max;       /* max.message.bytes */
    int64_t segment_bytes_max;
    int64_t segment_age_max;       /* ms, jitter taken off */
    int64_t created;               /* ms, when the segment was opened */
    int64_t next_offset;           /* the log's end */
    int32_t leader_epoch;
    bool is_span;                  /* each batch is an append of its own; else there may be one */
    slg_crc32c_kernel kernel;
} slg_leader_rules;

typedef struct slg_appended {
    size_t bytes;                  /* of the caller's that were taken */
    size_t batches;
    int64_t first_offset, last_offset;
    int64_t first_last_offset;     /* last offset of the first batch, as the caller has it */
    int64_t max_timestamp;
    int32_t last_leader_epoch;     /* of the last batch, as the caller has it */
} slg_appended;

/*
 * Appends the ordinary batches at the beginning of a client's bytes: of magic 2, not compressed, no
 * control batches, not the first of a transaction, good in every way, in sequence if their
 * producer counts, and with room in the segment. The first that is anything else ends it, bytes
 * that are no whole batch
 * too, and without is_span a second batch as well: *appended says what was taken, which may be
 * nothing, and whoever knows all of Kafka's rules decides about the rest.
 */
slg_status slg_append_as_leader(slg_segment_writer *writer, slg_producers *producers,
                                slg_span *span, const slg_leader_rules *rules, const uint8_t *data,
                                size_t size, slg_appended *appended, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
