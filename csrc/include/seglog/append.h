/*
 * Appends to the active segment: its size, its index entries and the state that decides when the
 * next entries are due. Kafka: LogSegment.append, and UnifiedLog.append for a leader's fast path.
 *
 * A writer borrows three descriptors and owns the memory in which it prepares a write. One thread
 * at a time. A call that fails changes nothing: `state` is as before, and the bytes of a failed
 * write are truncated from the log.
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

/* The state that an append advances. Offsets are absolute, times are in ms. */
typedef struct slg_segment_state {
    int64_t size;                  /* valid bytes of the log */
    int64_t offset_entries;
    int64_t last_index_offset; /* of the last offset entry; the base offset if there is none */
    int64_t time_entries;
    int64_t last_time; /* of the last time entry; -1 if there is none */
    int64_t last_time_offset; /* the base offset if there is none */
    int64_t bytes_since_entry;
    int64_t max_timestamp; /* of the segment so far, and */
    int64_t max_timestamp_offset; /* the last offset of its batch */
    int64_t first_timestamp; /* largest of the first batch, if the size is not 0 */
    bool knows_first_timestamp;
} slg_segment_state;

/* Memory for one write, which grows. */
typedef struct slg_append_scratch {
    slg_batch *batches;
    size_t batch_room;
    uint8_t *bytes; /* headers, and whole small batches */
    size_t bytes_room;
    struct iovec *pieces;
    size_t piece_room;
    uint8_t *offset_entries, *time_entries;
    size_t entry_room;
} slg_append_scratch;

typedef struct slg_segment_writer {
    int log_fd, index_fd, time_index_fd;
    int64_t base_offset;
    int64_t index_interval; /* bytes */
    int64_t offset_slots, time_slots;
    slg_segment_state state;
    slg_append_scratch scratch;
} slg_segment_writer;

/* Zeroes the scratch; the caller fills the rest. */
void slg_segment_writer_init(slg_segment_writer *writer);
void slg_segment_writer_free(slg_segment_writer *writer);

/* Index entries that are refused after the bytes are written: Kafka's exceptions. */
typedef enum slg_index_refusal {
    SLG_INDEX_TAKES = 0,
    SLG_INDEX_OFFSET_FULL,
    SLG_INDEX_OFFSET_BACK, /* an offset not above the last entry's */
    SLG_INDEX_OFFSET_FAR, /* too far from the base for an entry */
    SLG_INDEX_TIME_FULL,
    SLG_INDEX_TIME_OFFSET_BACK,
    SLG_INDEX_TIME_BACK,
    SLG_INDEX_TIME_FAR,
} slg_index_refusal;

/*
 * Writes whole batches with their offsets, `size` bytes at `data`; `rows` describe them. The caller
 * has checked the segment's limits. Returns SLG_OK also with a *refusal at row *row: as in Kafka,
 * the bytes are then in the log, and the entries before that row in the indexes. SLG_IO,
 * SLG_NO_MEMORY: nothing has changed.
 */
slg_status slg_segment_append(slg_segment_writer *writer, const uint8_t *data, size_t size,
                              const slg_batch *batches, size_t count, slg_index_refusal *refusal,
                              size_t *row, slg_error *error);

/* The rules of a leader's topic, and the state of its log. */
typedef struct slg_leader_rules {
    slg_record_rules records; /* `now` is the time of the append */
    int64_t batch_bytes_max; /* max.message.bytes */
    int64_t segment_bytes_max;
    int64_t segment_age_max; /* ms, less the jitter */
    int64_t created; /* ms, when the segment was opened */
    int64_t next_offset; /* the log end offset */
    int32_t leader_epoch;
    bool is_span; /* each batch is a separate append; else at most one batch */
    slg_crc32c_kernel kernel;
} slg_leader_rules;

typedef struct slg_appended {
    size_t bytes; /* of the caller's bytes that were taken */
    size_t batches;
    int64_t first_offset, last_offset;
    int64_t first_last_offset; /* last offset of the first batch in the caller's bytes */
    int64_t max_timestamp;
    int32_t last_leader_epoch; /* of the last batch in the caller's bytes */
} slg_appended;

/*
 * The fast path: appends the plain batches at the beginning of a client's bytes. A plain batch has
 * magic 2, is valid and uncompressed, is no control batch, does not begin a transaction, is in
 * sequence if it has one, and fits in the segment. The first other batch ends the call, as does a
 * partial batch, and without is_span a second batch. *appended says what was taken, which may be
 * nothing; the reference path decides about the rest.
 */
slg_status slg_append_as_leader(slg_segment_writer *writer, slg_producers *producers,
                                slg_span *span, const slg_leader_rules *rules, const uint8_t *data,
                                size_t size, slg_appended *appended, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
