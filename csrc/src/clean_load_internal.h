/* What the files of the clean load share: names, paths, text files. */
#ifndef SEGLOG_CLEAN_LOAD_INTERNAL_H
#define SEGLOG_CLEAN_LOAD_INTERNAL_H

#include <limits.h>
#include <stdbool.h>

#include "segment_name.h"
#include "seglog/clean_load.h"

/* Puts `root` with a slash behind it into `path`; false where it does not fit. */
bool slg_clean_root(char path[PATH_MAX], size_t *root_size, const char *root);

/*
 * Whether `data` are leader epochs as LeaderEpochCheckpointFile writes them, of which a start keeps
 * all: none that begins at the log's end or behind it, at most one at `start`, the checkpointed
 * one, and none before. *latest is the last epoch, -1 for none.
 */
bool slg_clean_epochs(const uint8_t *data, size_t size, int64_t start, int64_t log_end_offset,
                      int32_t *latest);

/* Whether `data` are partition.metadata as PartitionMetadataFile writes it, with an id that does
 * not begin with A: so it is not the zero id. */
bool slg_clean_topic_id(const uint8_t *data, size_t size, uint8_t id[SLG_TOPIC_ID_BYTES]);

#endif
