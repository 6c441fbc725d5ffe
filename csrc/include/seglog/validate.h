/*
 * The checks of a leader or follower on record batches before an append: the batches one by one, as
 * Kafka's in-memory iteration finds them (UnifiedLog.analyzeAndValidateRecords), and the records of
 * a batch of magic 2 (LogValidator, DefaultRecord).
 *
 * The bytes are a client's. A refusal is not a status but a cause with two numbers, from which the
 * caller makes Kafka's exception. Nothing is allocated, the caller's bytes do not change, no state
 * is kept; one thread per struct.
 */
#ifndef SEGLOG_VALIDATE_H
#define SEGLOG_VALIDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/batch.h"
#include "seglog/producers.h"
#include "seglog/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Why Kafka rejects a batch or a record. `a` and `b` are the numbers in its message. */
typedef enum slg_refusal {
    SLG_ACCEPTED = 0,
    SLG_NO_MORE, /* the end, or fewer bytes than a batch, which Kafka drops silently */

    /* Batches, by ByteBufferLogInputStream and analyzeAndValidateRecords. */
    SLG_REFUSE_LENGTH,      /* a = length field, below 14 */
    SLG_REFUSE_OVERFLOW,    /* a = size as Java sees it, negative */
    SLG_REFUSE_MAGIC,       /* a = magic */
    SLG_REFUSE_RAFT_EPOCH,  /* a = leader epoch of the batch */
    SLG_REFUSE_BASE_OFFSET, /* a = base offset, not 0 */
    SLG_REFUSE_SHORT,       /* the header ends before a field: Java's IndexOutOfBoundsException */
    SLG_REFUSE_SIZE,        /* a = size, above the largest */
    SLG_REFUSE_CRC,         /* a = stored CRC; also a batch shorter than its header */
    SLG_REFUSE_CODEC,       /* a = codec bits that name none */
    SLG_REFUSE_ORDER,       /* a last offset not above the previous one */

    /* Headers, by LogValidator.validateBatch. */
    SLG_REFUSE_RANGE,     /* a, b = base and last offset */
    SLG_REFUSE_COUNT,     /* a = record count, not positive */
    SLG_REFUSE_COUNT_OF_RANGE, /* offsets and record count disagree */
    SLG_REFUSE_CONTROL,
    SLG_REFUSE_SEQUENCE,  /* a = base sequence */

    /* Records that do not parse, by DefaultRecord and DefaultRecordBatch. */
    SLG_REFUSE_RECORD_COUNT,  /* a = negative record count */
    SLG_REFUSE_PREMATURE_END,
    SLG_REFUSE_VARINT,        /* a = value so far; Java's IllegalArgumentException */
    SLG_REFUSE_BODY,          /* a = announced, b = bytes left */
    SLG_REFUSE_BODY_END,      /* a = announced; the stream ends before */
    SLG_REFUSE_BODY_SIZE,     /* a = announced, b = read */
    SLG_REFUSE_STRUCTURE,
    SLG_REFUSE_HEADER_COUNT,  /* a = negative */
    SLG_REFUSE_HEADERS_LEFT,  /* a = more than bytes are left */
    SLG_REFUSE_HEADER_KEY,    /* a = negative size */
    SLG_REFUSE_SKIP,          /* a = bytes that are missing */
    SLG_REFUSE_BYTES_LEFT,

    /* Records that a topic's rules reject; the walk may continue after them. */
    SLG_REFUSE_NO_KEY,
    SLG_REFUSE_TIMESTAMP,
    SLG_REFUSE_TIMESTAMP_TYPE,
} slg_refusal;

/* ---- batches ------------------------------------------------------------------------------- */

typedef struct slg_analysis {
    /* The caller's. */
    slg_origin origin;
    int32_t leader_epoch;    /* the leader's, or the highest that a follower accepts */
    int64_t batch_bytes_max; /* of one batch; INT64_MAX for any */
    bool needs_order;        /* last offsets must increase */
    bool is_plain;           /* iterate without checks */
    slg_crc32c_kernel kernel;

    /* slg_analysis_init sets these: Kafka's LogAppendInfo. */
    size_t position;         /* of the next batch */
    int64_t first_offset, last_offset, last_offset_of_first_batch;
    int64_t max_timestamp;
    int32_t last_leader_epoch;
    int64_t valid_bytes;
    int codec;               /* the last that is not NONE */
    bool is_skipping;        /* a follower found an epoch above its own */
    bool is_ordered;
    bool has_batch;

    int64_t a;               /* of the refusal */
} slg_analysis;

void slg_analysis_init(slg_analysis *analysis);

/*
 * Validates the next batch of `size` bytes at `data`, in Kafka's order. SLG_ACCEPTED: it is *batch
 * (position counts from `data`), and part of the append unless is_skipping is set. SLG_NO_MORE:
 * done.
 */
slg_refusal slg_analyze_next(slg_analysis *analysis, const uint8_t *data, size_t size,
                             slg_batch *batch);

/* Checks the header of a client's batch of magic 2 (rules 2 to 6 of LogValidator.validateBatch). */
slg_refusal slg_check_client_header(const slg_batch *batch);

/* ---- records of magic 2 -------------------------------------------------------------------- */

typedef struct slg_record {
    int64_t offset, timestamp;
    int32_t offset_delta;
    int32_t key_size, value_size; /* negative for null */
    int32_t header_count;
    const uint8_t *key, *value;   /* not set by SLG_RECORDS_SKIP */
    slg_cursor headers;           /* keys and values of all headers, checked */
} slg_record;

/* How Kafka reads them: from the batch, from a decompressing stream, or skipping the data. */
typedef enum slg_record_source {
    SLG_RECORDS_BUFFER,
    SLG_RECORDS_STREAM,
    SLG_RECORDS_SKIP,
} slg_record_source;

/* The topic's rules for records. */
typedef struct slg_record_rules {
    bool needs_key;         /* a compacted topic */
    bool has_create_time;   /* message.timestamp.type */
    int64_t now, before_max, after_max; /* ms */
} slg_record_rules;

enum { SLG_WALK_SLACK = 32 };

typedef struct slg_record_walk {
    slg_cursor bytes;                /* plain records */
    slg_record_source source;
    bool has_slack; /* the caller's, false at first: SLG_WALK_SLACK more bytes may be read */
    int64_t base_offset, base_timestamp, append_time;
    bool has_append_time; /* the batch has LogAppendTime: append_time is the records' timestamp */
    int32_t count; /* from the header */
    const slg_record_rules *rules; /* NULL: any */

    int32_t index; /* records read */
    int64_t max_timestamp; /* -1 if none is larger */
    bool is_sequential; /* offsets were 0, 1, 2 ... */
    slg_record record; /* the last one that slg_record_next read */
    int64_t a, b; /* of the refusal */
} slg_record_walk;

/* Begins a walk over the uncompressed records of a batch. */
void slg_record_walk_init(slg_record_walk *walk, const slg_batch *batch, const uint8_t *records,
                          size_t size, slg_record_source source, const slg_record_rules *rules);

/* The next record. SLG_ACCEPTED, SLG_NO_MORE after the last, or the cause of a refusal. */
slg_refusal slg_record_next(slg_record_walk *walk);

/* All remaining records, up to the first refusal. SLG_NO_MORE: all were accepted. */
slg_refusal slg_record_walk_run(slg_record_walk *walk);

/* ---- what an append changes ---------------------------------------------------------------- */

typedef struct slg_assignment {
    int64_t next_offset; /* the log end offset, which becomes the first record's */
    int32_t leader_epoch;
    bool has_append_time; /* the topic has LogAppendTime */
    int64_t max_timestamp; /* `now` with LogAppendTime, else the records' largest */
} slg_assignment;

/*
 * Sets offsets, leader epoch and timestamps in the header of a batch of magic 2, as Kafka does in
 * place. `header` are its 61 bytes, which change; `records` are the bytes after them, read for the
 * CRC only if the timestamps change. `count` is the number of records. Updates *batch.
 */
void slg_assign(uint8_t *header, const uint8_t *records, const slg_assignment *assignment,
                int64_t count, slg_crc32c_kernel kernel, slg_batch *batch);

/*
 * Rewrites the headers of a record as Kafka does: keys that are not UTF-8 become Java's decoding of
 * them. Returns their size; `into` has room for slg_headers_bound.
 */
static inline size_t slg_headers_bound(const slg_record *record) {
    return 3 * slg_cursor_left(&record->headers) +
           (size_t)record->header_count * SLG_VARINT_SIZE_MAX;
}

size_t slg_headers_rewrite(const slg_record *record, uint8_t *into);

#ifdef __cplusplus
}
#endif
#endif
