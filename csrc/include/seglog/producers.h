/*
 * What a log says of its producers and their transactions (reference 5.1 to 5.3), folded batch by
 * batch with origin REPLICATION, as everything while loading: sequences are not checked and an
 * epoch that goes backwards is taken.
 *
 * The state owns its memory and is one partition's, for one thread at a time. It grows by what a
 * log holds: a producer for each producer id, a transaction for each that was opened.
 */
#ifndef SEGLOG_PRODUCERS_H
#define SEGLOG_PRODUCERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Batches of a producer that are remembered. */
enum { SLG_PRODUCER_BATCHES = 5 };

typedef struct slg_producer_batch {
    int64_t last_offset;
    int64_t timestamp;     /* ms */
    int32_t last_sequence; /* -1 without sequences */
    int32_t offset_delta;  /* last offset - base offset */
} slg_producer_batch;

typedef struct slg_producer {
    int64_t id;
    int64_t last_timestamp;   /* ms, -1 for none */
    int64_t txn_first_offset; /* of the open transaction, where in_txn */
    int32_t coordinator_epoch;
    int16_t epoch;
    int8_t in_txn;
    int8_t batch_count;
    slg_producer_batch batches[SLG_PRODUCER_BATCHES]; /* oldest first */
} slg_producer;

/* A transaction. Ongoing ones are in order of their first offset, ended ones in that of their
 * markers. */
typedef struct slg_txn {
    int64_t first_offset;
    int64_t producer_id;
    int64_t last_offset; /* of the marker */
    bool ended;
    bool is_abort;
} slg_txn;

typedef struct slg_txns {
    slg_txn *all;
    size_t first; /* ongoing: the first that may not have ended */
    size_t count;
    size_t capacity;
    size_t ended; /* ongoing: how many of them have */
} slg_txns;

typedef struct slg_producers {
    slg_producer *all; /* in the order in which they were first seen */
    size_t count;
    size_t capacity;
    uint32_t *slots;   /* hash table: 1 + place in `all`, or 0 */
    size_t slot_count; /* a power of two, or 0 */
    slg_txns ongoing;
    slg_txns unreplicated;
    bool is_deferred;  /* between slg_producers_defer and slg_producers_complete: */
    slg_txns deferred; /* what markers ended */
} slg_producers;

void slg_producers_init(slg_producers *producers);
void slg_producers_free(slg_producers *producers);

/* A producer of a snapshot; another of the same id is replaced. SLG_OK or SLG_NO_MEMORY. */
slg_status slg_producers_load(slg_producers *producers, const slg_producer *producer,
                              slg_error *error);

/* An end-transaction marker, and what it ended. */
typedef struct slg_marker {
    int64_t offset;
    int64_t position;           /* of its batch in the file */
    int64_t producer_id;
    int64_t timestamp;          /* ms */
    int32_t coordinator_epoch;
    int16_t producer_epoch;
    bool is_abort;
    bool ended;                 /* a transaction was open: */
    int64_t first_offset;
    int64_t last_stable_offset; /* of the earliest other open transaction, or the marker's + 1 */
} slg_marker;

/*
 * Applies batches: *taken says how many. Those without a producer and those of magic 0 and 1 mean
 * nothing. Markers as Kafka writes them are read from the log file `fd`, unless it is -1; those
 * that ended a transaction with an abort go into `aborted`, *aborted_count of them, with room for
 * `room`. SLG_OK: all are applied. SLG_FULL: there is no room for another abort. SLG_MORE: the next
 * is a control batch of another kind, for slg_producers_end or slg_producers_touch, or one whose
 * transaction is not open. SLG_TXN_STATE: the next one has no transactional bit inside of a
 * transaction. SLG_NO_MEMORY.
 */
slg_status slg_producers_apply(slg_producers *producers, int fd, const slg_batch *batches,
                               size_t count, size_t *taken, slg_marker *aborted, size_t room,
                               size_t *aborted_count, slg_error *error);

/*
 * Applies a marker, of which the caller fills the first part. SLG_TXN_NOT_STARTED (found: the first
 * offset): no transaction of that first offset is open any more; nothing but the marker, which is
 * filled, has changed then. SLG_NO_MEMORY.
 */
slg_status slg_producers_end(slg_producers *producers, slg_marker *marker, slg_error *error);

/*
 * From here on markers end no transaction but are noted, and slg_producers_complete ends them all.
 * Kafka does so for each segment when it rebuilds producer state, which makes a difference where
 * two transactions have one first offset. SLG_TXN_NOT_STARTED: *failed is not open; what came
 * before it has ended. SLG_NO_MEMORY. `last_stable_offset` of a marker means nothing in between.
 */
void slg_producers_defer(slg_producers *producers);
slg_status slg_producers_complete(slg_producers *producers, slg_txn *failed, slg_error *error);

/* A control batch that compaction emptied: its producer is known from then on. */
slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id, slg_error *error);

/* First offset of the earliest transaction that is open or not replicated; false for none. */
bool slg_producers_first_unstable(const slg_producers *producers, int64_t *offset);

/* Forgets the ended transactions whose marker is below the high watermark. */
void slg_producers_replicated(slg_producers *producers, int64_t high_watermark);

/* Drops producers without an open transaction that were idle for that long (ms). */
void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle);

#ifdef __cplusplus
}
#endif
#endif
