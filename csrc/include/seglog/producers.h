/*
 * The state of a log's producers and their transactions. It changes in two ways. The fold (Kafka:
 * ProducerAppendInfo) applies the batches of a log with origin REPLICATION, as during a load:
 * sequences are not checked and an older epoch is accepted. The span applies batches that are about
 * to be appended (UnifiedLog.analyzeAndValidateProducerState): it validates them by their origin on
 * copies, and commits when they are written. Kafka also replays whole segments this way.
 *
 * The state owns its memory and belongs to one partition; one thread at a time. It grows with the
 * log's content: one producer per producer id, one transaction per transaction opened.
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

/* Batches kept per producer. */
enum { SLG_PRODUCER_BATCHES = 5 };

typedef struct slg_producer_batch {
    int64_t last_offset;
    int64_t timestamp;     /* ms */
    int32_t last_sequence; /* -1 if the producer has no sequences */
    int32_t offset_delta;  /* last offset - base offset */
} slg_producer_batch;

typedef struct slg_producer {
    int64_t id;
    int64_t last_timestamp;   /* ms, -1 for none */
    int64_t txn_first_offset; /* of the open transaction, if in_txn */
    int32_t coordinator_epoch;
    int16_t epoch;
    int8_t in_txn;
    int8_t batch_count;
    slg_producer_batch batches[SLG_PRODUCER_BATCHES]; /* oldest first */
} slg_producer;

/* A transaction. Those of a state are found by their first offsets. */
typedef struct slg_txn {
    int64_t first_offset;
    int64_t producer_id;
    int64_t last_offset;  /* of the marker */
    int64_t segment_base; /* of the segment with the first offset, -1 if unknown, */
    int64_t position;     /* and of the batch in its file, -1 */
    bool ended;
    bool is_abort;
} slg_txn;

typedef struct slg_txns {
    slg_txn *all;
    size_t first;  /* ongoing: the first that may not have ended */
    size_t sorted; /* those from `first` to here are sorted by first offset, the others are few */
    size_t count;
    size_t capacity;
    size_t ended; /* ongoing: the number of transactions that have ended */
} slg_txns;

typedef struct slg_producer_map {
    slg_producer *all; /* in order of first appearance */
    size_t count;
    size_t capacity;
    uint32_t *slots;   /* hash table: 1 + index in `all`, or 0 */
    size_t slot_count; /* a power of two, or 0 */
    uint64_t seed;     /* of the hash */
} slg_producer_map;

/* A transaction that the coordinator must confirm before it is written to (Kafka:
 * VerificationStateEntry). `guard` is above 0 and unique in a process. */
typedef struct slg_verification {
    int64_t producer_id;
    int64_t timestamp; /* ms, when it was created */
    int64_t guard;
    int32_t lowest_sequence; /* of the sequences seen in its epoch */
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

/* Adds a producer from a snapshot; replaces one with the same id. SLG_OK or SLG_NO_MEMORY. */
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
 * Applies *taken batches. Ignores batches without a producer and messages of magic 0 and 1. Reads
 * markers in Kafka's form from the log file `fd`, unless it is -1; puts those that aborted a
 * transaction into `aborted`, *aborted_count of them, at most `room`. SLG_OK: all are applied.
 * SLG_FULL: there is no room for another abort. SLG_MORE: the next one is a control batch of
 * another kind, for slg_producers_end or slg_producers_touch, or its transaction is not open.
 * SLG_TXN_STATE: the next one lacks the transactional bit inside a transaction. SLG_NO_MEMORY.
 */
slg_status slg_producers_apply(slg_producers *producers, int fd, const slg_batch *batches,
                               size_t count, size_t *taken, slg_marker *aborted, size_t room,
                               size_t *aborted_count, slg_error *error);

/*
 * Applies a marker; the caller fills its first part. SLG_TXN_NOT_STARTED (found: the first offset):
 * no transaction with that first offset is open; only the marker is filled, and nothing else has
 * changed. SLG_NO_MEMORY.
 */
slg_status slg_producers_end(slg_producers *producers, slg_marker *marker, slg_error *error);

/* Applies a control batch that compaction emptied: adds its producer. */
slg_status slg_producers_touch(slg_producers *producers, int64_t producer_id, slg_error *error);

/* The earliest transaction that is open or not replicated, valid until the next change; or NULL. */
const slg_txn *slg_producers_first_unstable(const slg_producers *producers);

/* The last timestamp (ms) of the producer of the earliest open transaction, or -1, as of the last
 * call that changed transactions. Any thread may call it, also during such a call. */
int64_t slg_producers_oldest_txn_timestamp(const slg_producers *producers);

/* The producer with an id, valid until the next change; or NULL. */
const slg_producer *slg_producers_find(const slg_producers *producers, int64_t producer_id);

/* Removes ended transactions whose marker is below the high watermark. */
void slg_producers_replicated(slg_producers *producers, int64_t high_watermark);

/* Removes producers without an open transaction that have been idle this long (ms), and
 * verifications of that age. */
void slg_producers_expire(slg_producers *producers, int64_t now, int64_t idle);

/* Removes producers and transactions, keeps verifications (Kafka: truncateAndReload). */
void slg_producers_clear(slg_producers *producers);

/* ---- snapshots ----------------------------------------------------------------------------- */

/* Bytes of the snapshot of this state. */
size_t slg_snapshot_size(const slg_producers *producers);

/* Writes the snapshot, in the order of Kafka's map. `data` has slg_snapshot_size bytes. SLG_OK or
 * SLG_NO_MEMORY. */
slg_status slg_snapshot_write(const slg_producers *producers, uint8_t *data, slg_error *error);

/* Whether `data` are a snapshot with a good CRC and nothing after its *count entries. */
bool slg_snapshot_is_sound(const uint8_t *data, size_t size, size_t *count);

/* Entry `number` of a sound snapshot. */
slg_producer slg_snapshot_entry(const uint8_t *data, size_t number);

/* ---- verification of transactions ---------------------------------------------------------- */

/* The verification of a producer, or NULL. Valid until the next change of any verification. */
const slg_verification *slg_producers_verification(const slg_producers *producers,
                                                   int64_t producer_id);

/*
 * Finds the producer's verification or creates one from `wanted`, and updates it with the sequence
 * and epoch of `wanted` if they apply. SLG_OK or SLG_NO_MEMORY.
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

/* The rules by which an append is validated. */
typedef struct slg_append_rules {
    slg_origin origin;
    int16_t transaction_version; /* of its markers; -1: unknown */
    bool is_verified;   /* a new transaction must have the guard of its verification: */
    int64_t guard;      /* that of the request, 0 for none */
    int64_t segment_base;     /* of the segment to be written; -1: positions are not recorded */
    int64_t segment_position; /* the position in its file of a batch's position 0 */
    int log_fd;               /* source of markers if no bytes are given */
} slg_append_rules;

/* The decision about a batch, one per message of Kafka. `known` is a field of the span. */
typedef enum slg_verdict {
    SLG_APPEND_OK = 0,
    SLG_APPEND_DUPLICATE = 1, /* of a batch that is kept: the span's `duplicate` */
    SLG_APPEND_MARKER = 2,    /* a control batch of another form: slg_span_marker takes it */
    /* InvalidProducerEpochException */
    SLG_APPEND_TXN_EPOCH = 3, /* the batch would begin a transaction: known = last epoch */
    SLG_APPEND_EPOCH = 4,     /* known = last epoch */
    /* InvalidTxnStateException */
    SLG_APPEND_UNVERIFIED = 5,
    SLG_APPEND_TXN_STATE = 6, /* not transactional inside a transaction */
    /* OutOfOrderSequenceException */
    SLG_APPEND_SEQUENCE_FIRST = 7,  /* not 0, transactions version 2, unknown producer */
    SLG_APPEND_SEQUENCE_LOWEST = 8, /* above the lowest one under verification, `known` */
    SLG_APPEND_SEQUENCE_EPOCH = 9,  /* not 0 in a new epoch: known = last epoch */
    SLG_APPEND_SEQUENCE = 10,       /* not the next: known = last sequence */
    /* IllegalArgumentException: a marker of unknown transaction version */
    SLG_APPEND_TXN_VERSION = 11,
    /* TransactionCoordinatorFencedException: known = last epoch of a coordinator */
    SLG_APPEND_COORDINATOR_EPOCH = 12,
} slg_verdict;

/* What Kafka logs but accepts: a replicated old epoch or coordinator epoch, and a repeated marker
 * of transactions version 2 (known: -1). */
typedef struct slg_append_note {
    size_t row;
    slg_verdict verdict; /* SLG_APPEND_EPOCH, _COORDINATOR_EPOCH; SLG_APPEND_MARKER for the last */
    int64_t known;
    int32_t coordinator_epoch; /* of the marker */
} slg_append_note;

/*
 * Batches that are about to be appended, and the changes that they would make. A span owns its
 * memory and is reused for each append. All lists are valid until the next slg_span_begin.
 */
typedef struct slg_span {
    size_t row; /* the batch of the verdict, or the end */
    slg_verdict verdict;
    int64_t known;
    int32_t coordinator_epoch; /* of the verdict's marker */
    slg_producer_batch duplicate;
    slg_producer_map changed; /* copies; their batches are only those of the span */
    slg_txns started;
    slg_txns completed; /* in marker order; still open in the state */
    slg_append_note *notes;
    size_t note_count;
    size_t note_capacity;
    int64_t *verified; /* producers whose verification was used */
    size_t verified_count;
    size_t verified_capacity;
    uint64_t *order; /* of `changed`, in the order of Java's map */
    size_t order_capacity;
} slg_span;

void slg_span_init(slg_span *span);
void slg_span_free(slg_span *span);

/* Empties a span. */
void slg_span_begin(slg_span *span);

/* Continues the span with other batches, from row 0 on; drops the notes about earlier ones. */
void slg_span_continue(slg_span *span);

/*
 * Validates the batches from span->row on and sets the span's verdict. Their bytes are `data`
 * (batches[i].position counts from there), and their offsets are assigned. If `data` is NULL,
 * markers are read from rules->log_fd, and positions are in that file. The state does not change,
 * but with SLG_APPEND_OK it has room for all changes. SLG_OK or SLG_NO_MEMORY.
 */
slg_status slg_span_check(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                          const slg_batch *batches, size_t count, const uint8_t *data, size_t size,
                          slg_error *error);

/*
 * Validates batch `row` as the marker that the caller found in it (coordinator_epoch, timestamp and
 * is_abort are used), NULL if compaction emptied it. The verdict is in the span; after
 * SLG_APPEND_OK the span is past the batch, and slg_span_check continues.
 */
slg_status slg_span_marker(slg_span *span, slg_producers *producers, const slg_append_rules *rules,
                           const slg_batch *batch, const slg_marker *marker, slg_error *error);

/* Drops the used verifications; as in Kafka, also if the append fails later. */
void slg_span_drop_verified(slg_span *span, slg_producers *producers);

/* Commits the changes of a span that ended with SLG_APPEND_OK. Completed transactions stay open
 * until slg_producers_complete_txn. */
void slg_span_commit(slg_span *span, slg_producers *producers);

/* First offset of the earliest open transaction of another producer, or the marker's + 1. */
int64_t slg_producers_last_stable(const slg_producers *producers, int64_t producer_id,
                                  int64_t marker_offset);

/* Ends a transaction; `last_offset` is its marker's. SLG_TXN_NOT_STARTED if none with this first
 * offset is open, SLG_NO_MEMORY. */
slg_status slg_producers_complete_txn(slg_producers *producers, int64_t first_offset,
                                      int64_t last_offset, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
