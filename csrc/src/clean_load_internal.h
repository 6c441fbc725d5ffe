/* Shared by the sources of `clean_load`: the loader, text files, producers, scans. */
#ifndef SEGLOG_CLEAN_LOAD_INTERNAL_H
#define SEGLOG_CLEAN_LOAD_INTERNAL_H

#include <stdbool.h>
#include <sys/types.h>

#include "segment_name.h"
#include "seglog/batch.h"
#include "seglog/clean_load.h"
#include "seglog/crc32c.h"
#include "seglog/format.h"
#include "seglog/producers.h"
#include "seglog/scan.h"
#include "seglog/window.h"

enum {
    SLG_CLEAN_BUFFER = 1 << 16, /* of small files: larger ones are not plain */
    SLG_CLEAN_BATCHES = 64,
    SLG_CLEAN_ENTRIES = 8192 /* of rebuilt indexes */
};

/* The state of one call. The functions below return whether a part of the partition is plain. */
typedef struct slg_clean_loader {
    int root; /* the data directory, and */
    int dir;  /* the partition's */
    dev_t device; /* of the root */
    unsigned checks; /* SLG_CLEAN_* */
    slg_crc32c_kernel kernel;
    slg_listing listing;
    size_t files_max;
    slg_window window;
    slg_clean_table *table;
    uint8_t buffer[SLG_CLEAN_BUFFER];
    slg_batch batches[SLG_CLEAN_BATCHES];
    uint64_t producer_ids[SLG_CLEAN_BUFFER / SLG_PRODUCER_ENTRY_SIZE];
    slg_producers producers; /* of the log up to the position of the recovery */
    uint8_t rebuilt[SLG_CLEAN_BUFFER]; /* the snapshot that a recovery writes */
    uint8_t offset_entries[SLG_CLEAN_ENTRIES * SLG_OFFSET_ENTRY_SIZE];
    uint8_t time_entries[SLG_CLEAN_ENTRIES * SLG_TIME_ENTRY_SIZE];
} slg_clean_loader;

/*
 * Whether `data` are leader epochs as LeaderEpochCheckpointFile writes them, and a start keeps all:
 * each begins at or after `start`, the checkpointed one, and before the log's end. *latest is the
 * last epoch, -1 for none.
 */
bool slg_clean_epochs(const uint8_t *data, size_t size, int64_t start, int64_t log_end_offset,
                      int32_t *latest);

/* Whether `data` are partition.metadata as PartitionMetadataFile writes it, with the id of a topic:
 * those that begin with 20 A, as zero does, have meanings of their own. */
bool slg_clean_topic_id(const uint8_t *data, size_t size, uint8_t id[SLG_TOPIC_ID_BYTES]);

/* The size of a regular file, or -1. */
int64_t slg_clean_size(int dir, const char *name);

/* Reads a whole small file of the partition into the buffer. SLG_FILE_MISSING; SLG_LIMIT for a
 * large one. */
slg_status slg_clean_read_small(slg_clean_loader *l, const char *name, size_t *size);

/* Adds bytes to l->table->contents; *at is their position. */
slg_status slg_clean_add_content(slg_clean_loader *l, const uint8_t *data, size_t size, int64_t *at,
                                 slg_error *error);

/*
 * ProducerStateManager needs only the snapshot at the log's end, and keeps those at the base of a
 * segment after the log's start. It deletes all others; a plain partition has at most one of these.
 * A log that begins and ends at 0 has no snapshot. With `is_rebuilt` the one at the log's end may
 * be missing or have any content, because a recovery writes l->producers there.
 */
bool slg_clean_producers(slg_clean_loader *l, slg_clean_partition *p, bool is_rebuilt,
                         slg_status *status, slg_error *error);

/* Sets l->producers to those with which a recovery of the last segment begins: those of the
 * snapshot at its base, or none for a log's first segment. */
bool slg_clean_begin_producers(slg_clean_loader *l, const slg_clean_partition *p);

/* Applies the first `count` of l->batches of the log `fd` to l->producers. False if one of them
 * aborts a transaction, which also writes to the transaction index, or if Kafka refuses it. */
bool slg_clean_apply_producers(slg_clean_loader *l, int fd, size_t count);

/* Begins a scan of the first `size` bytes of a log, from scan->position on. */
void slg_clean_scan_begin(slg_clean_loader *l, slg_batch_scan *scan, int fd, int64_t size,
                          size_t window_size);

/* Puts the next batches into l->batches; *is_end after the last ones. False at bytes that are no
 * batch, or a bad CRC if the scan checks it. */
bool slg_clean_scan_next(slg_clean_loader *l, slg_batch_scan *scan, size_t *count, bool *is_end);

/* Whether a start that will append to the last segment may write this file. */
bool slg_clean_is_accessible(const slg_clean_loader *l, const char *name);

/*
 * Whether a recovery of the last segment, of `log_size` bytes, would keep every byte of its log.
 * Sets the log's end, the segment's batches and records, the sizes of the entries of both indexes
 * and whether the files are longer. *highest_epoch is the highest leader epoch of its batches, -1
 * if there is none. l->producers become those after the segment.
 */
bool slg_clean_recover(slg_clean_loader *l, slg_clean_partition *p, int64_t log_size,
                       int64_t *highest_epoch, slg_status *status, slg_error *error);

#endif
