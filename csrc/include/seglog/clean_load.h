/*
 * Loads partitions that were closed cleanly, or lost nothing when the process died, many per call.
 *
 * A partition is plain when Kafka's LogLoader.load would report nothing of it but a recovery
 * that changes no log, and would change nothing in its directory but the length of the last
 * segment's indexes, which are truncated again at the close. Three things more are plain, which the
 * caller does: a producer snapshot of the shutdown before is deleted, as by every start; after a
 * crash the last segment's indexes and the snapshot at the log's end become those of the recovery.
 * Such a partition becomes one row. The loader of single partitions takes all others: a row says
 * that a partition is not plain, never why.
 *
 * A load writes nothing. No descriptor outlives a call. Several threads may load at the same time.
 */
#ifndef SEGLOG_CLEAN_LOAD_H
#define SEGLOG_CLEAN_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { SLG_TOPIC_ID_BYTES = 16 };

/* What else must hold of a plain partition. */
enum {
    SLG_CLEAN_WRITABLE = 1, /* the indexes of the last segment are writable */
    SLG_CLEAN_CRCS = 2,     /* every batch of the last segment has a good CRC; 1 MiB at most */
    /* The shutdown was not clean. The recovery point is in the last segment (16 MiB at most) or
     * behind it, and Kafka's recovery keeps every byte of that log, and finds no leader epoch in it
     * that the checkpoint lacks. The segment aborts no transaction. */
    SLG_CLEAN_AFTER_CRASH = 4
};

/* One partition. Sizes are bytes. Where `plain` is 0 nothing else means anything. */
typedef struct slg_clean_partition {
    /* In: what the checkpoint says, 0 without an entry. Out: where the log starts. */
    int64_t log_start_offset;
    /* In: the checkpoint's. Out, after a crash: what is below it is flushed. */
    int64_t recovery_point;
    int64_t index_interval_bytes; /* In, as the next one: the topic's, read after a crash only */
    int64_t index_bytes;
    int64_t log_end_offset;
    int64_t segments;
    int64_t first_base_offset;
    int64_t second_base_offset; /* -1 for a partition of one segment */
    int64_t last_base_offset;
    int64_t size; /* of all logs */
    int64_t first_size; /* of the first log */
    int64_t last_size;
    int64_t last_batches; /* of the last log, after a crash */
    int64_t last_records;
    int64_t index_size; /* of the last segment's indexes; after a crash of their entries */
    int64_t time_index_size;
    int64_t producers; /* in the snapshot at the log's end */
    int64_t producers_at; /* where their timestamps begin in slg_clean_table.timestamps */
    int64_t stray_snapshot; /* the offset of a snapshot to delete, -1 for none */
    int64_t snapshot_at; /* after a crash: where in slg_clean_table.contents the snapshot is that
                          * the caller writes at the log's end, -1 if the one there is the same */
    int64_t snapshot_size;
    int64_t indexes_at; /* after a crash: where the entries of the last segment's indexes are, the
                         * offset index's first; -1 if the files begin with them */
    int32_t leader_epoch; /* the latest one, -1 for none */
    uint8_t has_topic_id;
    uint8_t has_snapshot;
    uint8_t plain;
    uint8_t has_longer_indexes; /* after a crash: than their entries */
    uint8_t topic_id[SLG_TOPIC_ID_BYTES];
} slg_clean_partition;

/* When each producer of the plain partitions was last active, in ms, and what files get. */
typedef struct slg_clean_table {
    int64_t *timestamps;
    size_t timestamp_count;
    size_t timestamp_capacity;
    uint8_t *contents;
    size_t contents_size;
    size_t contents_capacity;
    /* In, for a recovery: producers that were idle this long (ms) at `now_ms` are dropped from the
     * snapshot with which it begins; 0: none are. */
    int64_t producer_idle_ms;
    int64_t now_ms;
} slg_clean_table;

/*
 * Loads `count` partitions of the data directory `root`, an absolute path. `names` are the names of
 * their directories, one NUL-terminated string behind the other. One with more than `segments_max`
 * segments is not plain (0: however many); such a one is for many threads. `checks` are
 * SLG_CLEAN_*. What `table` gives back must be zeroed before the first call, and freed.
 * SLG_NO_MEMORY; nothing else fails.
 */
slg_status slg_clean_load(const char *root, const char *names, size_t count, size_t segments_max,
                          unsigned checks, slg_clean_partition *partitions, slg_clean_table *table,
                          slg_error *error);
void slg_clean_table_free(slg_clean_table *table);

/*
 * Gives the last segments of plain partitions the indexes that their recovery found: the entries of
 * `contents` (slg_clean_table) where a row has some, and no byte behind the entries. A partition
 * whose files cannot be written is not plain afterwards.
 */
void slg_clean_write_indexes(const char *root, const char *names, slg_clean_partition *partitions,
                             size_t count, const uint8_t *contents);

/*
 * Makes durable what the plain partitions of a load after a crash rely on: the names of their
 * files, the indexes of their last segments and the snapshots at their ends, which the process that
 * died may have left to the page cache; with `logs` the last segments' logs too. Linux syncs the
 * file system of `root` once for more than 64 partitions. SLG_IO, SLG_FILE_MISSING; *failed is then the
 * row, or `count` for the root.
 */
slg_status slg_clean_sync(const char *root, const char *names,
                          const slg_clean_partition *partitions, size_t count, bool logs,
                          size_t *failed, slg_error *error);

/*
 * The largest timestamp of each of `count` segments, in ms, as retention asks for it: of the last
 * entry of its time index, or when its log was last changed if that index has none. `names` are
 * those of the partitions. INT64_MIN where it cannot be told.
 */
void slg_clean_timestamps(const char *root, const char *names, const int64_t *base_offsets,
                          size_t count, int64_t *timestamps);

#ifdef __cplusplus
}
#endif
#endif
