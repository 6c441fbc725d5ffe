/*
 * One pass over a partition directory, and checks of many segments per call.
 *
 * Both take no locks, write nothing and create nothing; several threads may run them at once, also
 * on the same directory. No descriptor outlives a call. Foreign names, links, fifos, devices and
 * files that vanish are outcomes, not failures: only regular files are opened, links are not
 * followed, and an open never blocks.
 */
#ifndef SEGLOG_SCAN_H
#define SEGLOG_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "seglog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of directory entries. The values are stable: Python's FileClass has the same. */
typedef enum slg_file_class {
    SLG_FILE_LOG = 0, /* the first five: `<20 digits><suffix>`, counted in the listing's numbers */
    SLG_FILE_INDEX = 1,
    SLG_FILE_TIME_INDEX = 2,
    SLG_FILE_TXN_INDEX = 3,
    SLG_FILE_SNAPSHOT = 4,
    SLG_FILE_DELETED = 5, /* `*.deleted`: waits for removal */
    SLG_FILE_CLEANED = 6, /* `N.*.cleaned`: unfinished output of a compaction or split */
    SLG_FILE_SWAP = 7, /* `N.*.swap`: complete replacement, not yet in place */
    SLG_FILE_LEADER_EPOCHS = 8, /* leader-epoch-checkpoint */
    SLG_FILE_PARTITION_METADATA = 9, /* partition.metadata */
    SLG_FILE_RAFT_CHECKPOINT = 10, /* `<20>-<10>.checkpoint` and its .part and .deleted forms */
    SLG_FILE_QUORUM_STATE = 11, /* quorum-state */
    SLG_FILE_TEXT_TEMPORARY = 12, /* `.tmp` beside one of the text files */
    SLG_FILE_OTHER_NUMBER = 13, /* `5.log`: Kafka reads the number, then opens another name */
    SLG_FILE_NOT_A_NUMBER = 14, /* `foo.log`: Kafka fails to load the log */
    SLG_FILE_FOREIGN = 15, /* Kafka ignores it */
    SLG_FILE_DIRECTORY = 16,
    SLG_FILE_LINK = 17,
    SLG_FILE_SPECIAL = 18 /* fifo, socket, device */
} slg_file_class;

/* Which of the five files a number has: 1 << class. */
enum {
    SLG_HAS_LOG = 1 << SLG_FILE_LOG,
    SLG_HAS_INDEX = 1 << SLG_FILE_INDEX,
    SLG_HAS_TIME_INDEX = 1 << SLG_FILE_TIME_INDEX,
    SLG_HAS_TXN_INDEX = 1 << SLG_FILE_TXN_INDEX,
    SLG_HAS_SNAPSHOT = 1 << SLG_FILE_SNAPSHOT
};

/* The class of a regular file with this name. Sets *number for the five, .swap, .cleaned and other
 * numbers; otherwise leaves it unchanged. */
slg_file_class slg_classify_name(const char *name, int64_t *number);

typedef struct slg_numbered {
    int64_t number;
    uint32_t has; /* SLG_HAS_* */
    uint32_t unused;
} slg_numbered;

typedef struct slg_listing {
    slg_numbered *numbered; /* ascending, each number once */
    size_t numbered_count;
    size_t numbered_capacity;
    char *names; /* of all other entries, each with a NUL, in directory order */
    size_t names_size;
    size_t names_capacity;
    uint8_t *classes; /* one per name */
    size_t other_count;
    size_t other_capacity;
    size_t files_max; /* 0: any number */
} slg_listing;

/* Lists the directory at `path`, relative to `dir_fd`, into *listing, which must be zeroed but
 * for `files_max`. The caller frees it in every case. SLG_IO (the directory cannot be opened or
 * read), SLG_NO_MEMORY, or SLG_LIMIT if there are more than `files_max` entries. */
slg_status slg_list_partition(int dir_fd, const char *path, slg_listing *listing, slg_error *error);
void slg_listing_free(slg_listing *listing);

typedef enum slg_check_level {
    SLG_CHECK_KAFKA = 0, /* as Kafka's load: log file, index exists, transaction index */
    SLG_CHECK_FULL = 1 /* and every entry of every index against the segment's limits */
} slg_check_level;

/* Output columns, one value per segment, owned by the caller. Sizes are bytes; -1 if the file is
 * missing or was not checked. `status` is the first problem of the segment, or SLG_OK. */
typedef struct slg_segment_columns {
    int64_t *log_size;
    int64_t *index_size;
    int64_t *time_index_size;
    int64_t *txn_index_size;
    int64_t *mtime_ms; /* of the log file */
    int32_t *status;
} slg_segment_columns;

typedef struct slg_problem {
    int64_t row; /* index into the segments of this call */
    int64_t position;
    int64_t expected;
    int64_t found;
    int32_t status; /* slg_status */
    int32_t sys_errno; /* of the system call that failed, else 0 */
    int32_t file; /* slg_file_class: which of the segment's files */
    int32_t unused;
} slg_problem;

enum { SLG_PROBLEMS_PER_SEGMENT = 4 };

/*
 * Checks `count` segments of the directory at `path`. `numbers` ascend; `end_offset` is the base of
 * the segment after the last one of this call (INT64_MAX: none). `problems` has room for
 * SLG_PROBLEMS_PER_SEGMENT * count; *problem_count is set. SLG_IO if the directory itself
 * cannot be opened; anything wrong with a segment is a problem, not a failure.
 */
slg_status slg_check_segments(const char *path, const int64_t *numbers, const uint8_t *has,
                              size_t count, int64_t end_offset, slg_check_level level,
                              const slg_segment_columns *out, slg_problem *problems,
                              size_t *problem_count, slg_error *error);

/*
 * The bytes of the log of each of `count` segments of the directory at `path`, and the offset after
 * its last batch, or its number if it has none: Kafka's LogSegment.readNextOffset, which walks the
 * headers from the last index entry and checks no CRC there. Here the entry counts only if a batch
 * with a valid CRC proves it; else the walk begins at the start of the log. Bytes that are no batch
 * end it. Both are -1 for a log that cannot be opened or read; the offset also if none can follow
 * the last. SLG_OK or SLG_NO_MEMORY.
 */
slg_status slg_segment_ends(const char *path, const int64_t *numbers, const uint8_t *has,
                            size_t count, int64_t *sizes, int64_t *next_offsets, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
