/*
 * What a log says of its producers and their transactions. Two ways lead into it. The fold
 * (Kafka: ProducerAppendInfo) takes what a log holds with origin REPLICATION, as everything while
 * loading: sequences are not checked and an epoch that goes backwards is taken. The span takes
 * what is about to be appended (UnifiedLog.analyzeAndValidateProducerState): it is judged by its
 * origin on copies, and committed when it has been written. Kafka replays whole segments so, too.
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

/* A transaction. Those of a state are in order of their first offset. */
typedef struct slg_txn {
    int64_t first_offset;
    int64_t producer_id;
    int64_t last_offset;  /* of the marker */
    int64_t segment_base; /* where the first offset is: of the segment, -1 where nobody said, */
    int64_t position;     /* and of the batch in its file, -1 */
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

typedef struct slg_producer_map {
    slg_producer *all; /* in the order in which they were first seen */
    size_t count;
    size_t capacity;
    uint32_t *slots;   /* hash table: 1 + place in `all`, or 0 */
    size_t slot_count; /* a power of two, or 0 */
} slg_producer_map;

/* A transaction that somebody asks the coordinator about before it is written to (Kafka:
 * VerificationStateEntry). `guard` is above 0 and not twice the same in a process. */
typedef struct slg_verification {
    int64_t producer_id;
    int64_t timestamp; /* ms, when it was made */
    int64_t guard;
    int32_t lowest_sequence; /* of those that were seen in its epoch */
    int16_t epoch;
    bool supports_epoch_bump; /* transactions of version 2 */
} slg_verification;

typedef struct slg_producers {
    slg_producer_map producers;
    slg_txns ongoing;
    slg_txns unreplicated;
    slg_verification *verifications; /* by producer id */
    size_t verification_count;
    size_t verification_capacity;
    int64_t oldest_txn_timestamp;    /* see slg_producers_oldest_txn_timestamp */
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

/* A control batch that compaction emptied: its producer is known from then on. */
slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id, slg_error *error);

/* The earliest transaction that is open or not replicated, good until the next change; or NULL. */
const slg_txn *slg_producers_first_unstable(const slg_producers *producers);

/* The last timestamp (ms) of the producer of the earliest open transaction, -1 without one: as of
 * the last call that changed transactions. Any thread may ask, also during such a call. */
int64_t slg_producers_oldest_txn_timestamp(const slg_producers *producers);

/* The producer of an id, good until the next change; or NULL. */
const slg_producer *slg_producers_find(const slg_producers *producers, int64_t producer_id);

/* Forgets the ended transactions whose marker is below the high watermark. */
void slg_producers_replicated(slg_producers *producers, int64_t high_watermark);

/* Drops producers without an open transaction that were idle for that long (ms), and
 * verifications of that age. */
void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle);

/* Forgets producers and transactions, and keeps the verifications (Kafka: truncateAndReload). */
void slg_producers_clear(slg_producers *producers);

/* ---- verification of transactions ---------------------------------------------------------- */

/* That of a producer, or NULL. Good until the next change of any. */
const slg_verification *slg_producers_verification(const slg_producers *producers,
                                                   int64_t producer_id);

/*
 * Finds the producer's verification or makes one of `wanted`, and notes the sequence and epoch of
 * `wanted` in it where they count. SLG_OK or SLG_NO_MEMORY.
 */
slg_status slg_producers_verify(slg_producers *producers, const slg_verification *wanted,
                                const slg_verification **found, slg_error *error);

void slg_producers_drop_verification(slg_producers *producers, int64_t producer_id);

/* ---- appends ------------------------------------------------------------------------------- */

typedef enum slg_origin {
    SLG_ORIGIN_REPLICATION = 0,
    SLG_ORIGIN_COORDINATOR = 1,
    SLG_ORIGIN_CLIENT = 2,
    SLG_ORIGIN_RAFT_LEADER = 3
} slg_origin;

/* What an append is judged by. */
typedef struct slg_append_rules {
    slg_origin origin;
    int16_t transaction_version; /* of its markers; -1: unknown */
    bool is_verified;   /* a new transaction needs the guard of its verification: */
    int64_t guard;      /* that of the request, 0 for none */
    int64_t segment_base;     /* of the segment that will be written; -1: places are not noted */
    int64_t segment_position; /* where its file has the byte that a batch's position 0 means */
    int log_fd;               /* where markers are read when their bytes are not given */
} slg_append_rules;

/* What becomes of a batch: one for each of Kafka's texts. `known` is the span's. */
typedef enum slg_verdict {
    SLG_APPEND_OK = 0,
    SLG_APPEND_DUPLICATE = 1, /* of a batch that is remembered: `duplicate` of the span */
    SLG_APPEND_MARKER = 2,    /* a control batch of another form: slg_span_marker takes it */
    /* InvalidProducerEpochException */
    SLG_APPEND_TXN_EPOCH = 3, /* of a batch that would begin a transaction: known = last epoch */
    SLG_APPEND_EPOCH = 4,     /* known = last epoch */
    /* InvalidTxnStateException */
    SLG_APPEND_UNVERIFIED = 5,
    SLG_APPEND_TXN_STATE = 6, /* not transactional inside of a transaction */
    /* OutOfOrderSequenceException */
    SLG_APPEND_SEQUENCE_FIRST = 7,  /* of transactions version 2 and not 0, of nobody known */
    SLG_APPEND_SEQUENCE_LOWEST = 8, /* above the lowest under verification: known = that */
    SLG_APPEND_SEQUENCE_EPOCH = 9,  /* of a new epoch and not 0: known = last epoch */
    SLG_APPEND_SEQUENCE = 10,       /* not the next: known = last sequence */
    /* IllegalArgumentException: a marker of unknown transaction version */
    SLG_APPEND_TXN_VERSION = 11,
    /* TransactionCoordinatorFencedException: known = last epoch of a coordinator */
    SLG_APPEND_COORDINATOR_EPOCH = 12,
} slg_verdict;

/* What Kafka says and lets pass: an old epoch or coordinator epoch that is replicated, and a
 * marker of transactions version 2 that came before (known: -1). */
typedef struct slg_append_note {
    size_t row;
    slg_verdict verdict; /* SLG_APPEND_EPOCH, _COORDINATOR_EPOCH; SLG_APPEND_MARKER for the last */
    int64_t known;
    int32_t coordinator_epoch; /* of the marker */
} slg_append_note;

/*
 * Batches that are about to be appended, and what they would change. It owns its memory and serves
 * one append after the other. All lists are good until the next slg_span_begin.
 */
typedef struct slg_span {
    size_t row; /* the batch that the verdict is about, or the end */
    slg_verdict verdict;
    int64_t known;
    int32_t coordinator_epoch; /* of the marker that the verdict is about */
    slg_producer_batch duplicate;
    slg_producer_map changed; /* copies; their batches are those of the span alone */
    slg_txns started;
    slg_txns completed; /* in the order of their markers; none is ended yet in the state */
    slg_append_note *notes;
    size_t note_count;
    size_t note_capacity;
    int64_t *verified; /* producers whose verification has served */
    size_t verified_count;
    size_t verified_capacity;
    uint64_t *order; /* of `changed`, as Java's map lists them */
    size_t order_capacity;
} slg_span;

void slg_span_init(slg_span *span);
void slg_span_free(slg_span *span);

/* Empties a span. */
void slg_span_begin(slg_span *span);

/* The span goes on with other batches, from row 0 on; notes about those before are gone. */
void slg_span_continue(slg_span *span);

/*
 * Judges the batches from span->row on, whose bytes are `data` (batches[i].position counts from
 * there) and whose offsets are assigned, and leaves the verdict in the span. Without `data` (NULL)
 * markers are read from rules->log_fd, and positions are in that file. The state keeps what
 * it knows, but has room for it all when the verdict is SLG_APPEND_OK. SLG_OK or SLG_NO_MEMORY.
 */
slg_status slg_span_check(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                          const slg_batch *batches, size_t count, const uint8_t *data, size_t size,
                          slg_error *error);

/*
 * Judges batch `row` as the marker that the caller found in it (coordinator_epoch, timestamp and
 * is_abort count), NULL for one that compaction emptied. The verdict is in the span; after
 * SLG_APPEND_OK the span stands behind it, and slg_span_check goes on.
 */
slg_status slg_span_marker(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                           const slg_batch *batch, const slg_marker *marker, slg_error *error);

/* Drops the verifications that have served: Kafka does so also where the append fails later. */
void slg_span_drop_verified(slg_span *span, slg_producers *producers);

/* Takes over what a span that ended with SLG_APPEND_OK has changed. Completed transactions stay
 * open until slg_producers_complete_txn. */
void slg_span_commit(slg_span *span, slg_producers *producers);

/* First offset of the earliest open transaction of another producer, or the marker's + 1. */
int64_t slg_producers_last_stable(const slg_producers *producers, int64_t producer_id,
                                  int64_t marker_offset);

/* Ends a transaction. SLG_TXN_NOT_STARTED where none of its first offset is open, SLG_NO_MEMORY. */
slg_status slg_producers_complete_txn(slg_producers *producers, const slg_txn *done,
                                      slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
