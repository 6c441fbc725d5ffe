/*
 * Loads partitions that were closed cleanly, or lost nothing when the process died, many per call.
 *
 * A partition is plain if Kafka's LogLoader.load would report nothing about it but a recovery that
 * changes no log, and would change nothing in its directory but the length of the last segment's
 * indexes, which are truncated again at the close. Three more changes are allowed, which the caller
 * makes: it deletes a producer snapshot of the previous shutdown, as every start does; after a
 * crash it replaces the last segment's indexes and the snapshot at the log's end by those of the
 * recovery. A plain partition becomes one row. The loader of single partitions takes all others: a
 * row says that a partition is not plain, but not why.
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

/* More conditions on plain partitions. */
enum {
    SLG_CLEAN_WRITABLE = 1, /* the indexes of the last segment are writable */
    SLG_CLEAN_CRCS = 2,     /* the last segment has at most 1 MiB, and all its CRCs are valid */
    /* The shutdown was not clean. The recovery point is in or after the last segment (at most 16
     * MiB). Kafka's recovery keeps every byte of that log, and the checkpoint has all its leader
     * epochs. The segment aborts no transaction. */
    SLG_CLEAN_AFTER_CRASH = 4
};

/* One partition. Sizes are bytes. If `plain` is 0, all other fields are undefined. */
typedef struct slg_clean_partition {
    /* In: the checkpoint's, 0 if it has no entry. Out: the log's. */
    int64_t log_start_offset;
    /* In: the checkpoint's. Out, after a crash: all below it is flushed. */
    int64_t recovery_point;
    int64_t index_interval_bytes; /* In, like the next one: the topic's; used after a crash */
    int64_t index_bytes;
    int64_t log_end_offset;
    int64_t segments;
    int64_t filled_segments; /* those with a log that is not empty */
    int64_t first_base_offset;
    int64_t second_base_offset; /* -1 for a partition of one segment */
    int64_t last_base_offset;
    int64_t size; /* of all logs */
    int64_t first_size; /* of the first log */
    int64_t last_size;
    int64_t last_batches; /* of the last log, after a crash */
    int64_t last_records;
    int64_t index_size; /* of the last segment's index; after a crash, of its entries */
    int64_t time_index_size;
    int64_t producers; /* in the snapshot at the log's end */
    int64_t producers_at; /* index of their first timestamp in slg_clean_table.timestamps */
    int64_t stray_snapshot; /* the offset of a snapshot to delete, -1 for none */
    int64_t snapshot_at; /* after a crash: position in slg_clean_table.contents of the snapshot that
                          * the caller writes at the log's end; -1 if the file is the same */
    int64_t snapshot_size;
    int64_t indexes_at; /* after a crash: position there of the entries of the last segment's
                         * indexes, offset index first; -1 if the files begin with them */
    int32_t leader_epoch; /* the latest one, -1 for none */
    uint8_t has_topic_id;
    uint8_t has_snapshot;
    uint8_t plain;
    uint8_t has_longer_indexes; /* after a crash: the files are longer than their entries */
    uint8_t topic_id[SLG_TOPIC_ID_BYTES];
} slg_clean_partition;

/* The last timestamps (ms) of the producers of plain partitions, and contents of files to write. */
typedef struct slg_clean_table {
    int64_t *timestamps;
    size_t timestamp_count;
    size_t timestamp_capacity;
    uint8_t *contents;
    size_t contents_size;
    size_t contents_capacity;
    /* In, for a recovery: it drops producers of its first snapshot that were idle for this long
     * (ms) at `now_ms`; 0: none. */
    int64_t producer_idle_ms;
    int64_t now_ms;
} slg_clean_table;

/*
 * Loads `count` partitions of the data directory `root`. `names` are the names of their
 * directories, consecutive strings. A partition with more than `segments_max` segments is not plain
 * (0: no limit), because many threads load it faster. `checks` are SLG_CLEAN_*. The caller zeroes
 * the output fields of `table` before the first call and frees it. SLG_OK or SLG_NO_MEMORY.
 */
slg_status slg_clean_load(const char *root, const char *names, size_t count, size_t segments_max,
                          unsigned checks, slg_clean_partition *partitions, slg_clean_table *table,
                          slg_error *error);
void slg_clean_table_free(slg_clean_table *table);

/*
 * Writes the indexes of the last segments of plain partitions as their recovery found them: with
 * the entries in `contents` (slg_clean_table) if the row has some, and no byte after the entries. A
 * partition whose files cannot be written is not plain afterwards.
 */
void slg_clean_write_indexes(const char *root, const char *names, slg_clean_partition *partitions,
                             size_t count, const uint8_t *contents);

/*
 * Makes durable what the dead process may have left in the page cache, and plain partitions of a
 * load after a crash need: the names of their files, the indexes of their last segments and the
 * snapshots at their ends; with `logs` the last segments' logs too. Linux syncs the file system of
 * `root` once for more than 64 partitions. SLG_IO, SLG_FILE_MISSING; *failed is then the row, or
 * `count` for the root.
 */
slg_status slg_clean_sync(const char *root, const char *names,
                          const slg_clean_partition *partitions, size_t count, bool logs,
                          size_t *failed, slg_error *error);

/*
 * The largest timestamp (ms) of each of `count` segments, for retention: that of the last entry of
 * its time index, or if that is empty the time of the log's last change. `names` are those of the
 * partitions. INT64_MIN if a file cannot be read.
 */
void slg_clean_timestamps(const char *root, const char *names, const int64_t *base_offsets,
                          size_t count, int64_t *timestamps);

#ifdef __cplusplus
}
#endif
#endif
