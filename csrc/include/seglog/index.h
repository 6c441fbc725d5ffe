/*
 * Offset, time and transaction index entries: searches and checks over spans of bytes, and the
 * file that such a span comes from.
 *
 * A function over a span reads only [data, data + size) or entries below `entries`, allocates
 * nothing, keeps no state of its own and may be called from any thread. An index file has no header
 * and no checksum: entries are big-endian and of fixed size (docs/format.md, "Indexes"). What is
 * stored is hostile: searches return something inside the entries whatever the bytes are, checks
 * say what is wrong with them.
 */
#ifndef SEGLOG_INDEX_H
#define SEGLOG_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "seglog/format.h"
#include "seglog/status.h"
#include "seglog/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Kafka's warm section: the end of an index, which most lookups touch. */
enum { SLG_WARM_BYTES = 8192 };

typedef enum slg_index_kind {
    SLG_INDEX_KIND_OFFSET = 0,
    SLG_INDEX_KIND_TIME = 1,
    SLG_INDEX_KIND_TXN = 2
} slg_index_kind;

/* One entry of an offset or time index, absolute. `key` is the offset (offset index) or the
 * timestamp (time index); `value` is the position in the log file or the offset. */
typedef struct slg_index_entry {
    int64_t key;
    int64_t value;
} slg_index_entry;

typedef struct slg_aborted_txn {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset;
    int64_t last_stable_offset;
    int16_t version;
} slg_aborted_txn;

/* Bytes of one entry of this kind. */
size_t slg_index_entry_size(slg_index_kind kind);

/* Entry `n`, which must be below the number of entries of the span. Offset and time index. */
slg_index_entry slg_index_entry_at(slg_index_kind kind, const uint8_t *data, size_t n,
                                   int64_t base_offset);
slg_aborted_txn slg_aborted_txn_at(const uint8_t *data, size_t n);

/*
 * A check of one index file that is fed whole entries from front to back, so that a file of any
 * size is checked through a small buffer. Begin, feed until the file ends or the status is not
 * SLG_OK, then finish. Limits are the segment's: offsets in [base_offset, end_offset) and positions
 * in [0, log_size); pass INT64_MAX for a limit that is not known.
 */
typedef struct slg_index_check {
    slg_index_kind kind;
    bool strict;         /* transaction index: also the rules that Kafka does not check at load */
    int64_t base_offset;
    int64_t end_offset;
    int64_t log_size;
    int64_t position;    /* bytes fed */
    int64_t last_key;    /* of the last entry that was not zero */
    int64_t last_value;
    int64_t used;        /* entries before the zeros that `zeros_from` tells of */
    int64_t zeros_from;  /* byte where a run of zero entries began, or -1 */
} slg_index_check;

void slg_index_check_begin(slg_index_check *check, slg_index_kind kind, int64_t base_offset,
                           int64_t end_offset, int64_t log_size);

/* `size` must be a multiple of the entry size. On a status other than SLG_OK: the cause, once. */
slg_status slg_index_check_feed(slg_index_check *check, const uint8_t *data, size_t size,
                                slg_error *error);

/* Feeds `size` zero bytes without having them: a hole of a sparse file. Not for transaction
 * indexes, whose zero entries are checked like all others. */
void slg_index_check_feed_zeros(slg_index_check *check, size_t size);

/*
 * The outcomes that only the end can tell: SLG_INDEX_SIZE or SLG_TXN_SIZE (file_size is no multiple
 * of the entry), SLG_INDEX_UNWRITTEN (zeros alone), SLG_INDEX_PADDED (entries, then zeros).
 */
slg_status slg_index_check_finish(const slg_index_check *check, int64_t file_size,
                                  slg_error *error);

/* Which entries of a file count, and what holds them. */
typedef enum slg_index_policy {
    /*
     * Kafka's: all whole entries count, zeros too, and answers are believed. A search says how many
     * entries are in use, because a writer may add some. The descriptor stays open.
     */
    SLG_INDEX_TRUSTING = 0,
    /*
     * Of a reader beside a process that may write: an answer is a hint, which the caller proves
     * with the log. Zero entries at the end, of an index never trimmed, do not count. A small file
     * is copied, because a copy needs no descriptor.
     */
    SLG_INDEX_PROVING = 1
} slg_index_policy;

/*
 * An index file opened for searching. A file that does not exist is an index without entries. One
 * owner; searches only read.
 *
 * Entries are copied, mapped or read. A broker that resets an index in recovery cuts entries, and a
 * map touched beyond the end of its file ends the process with SIGBUS: only an owner of the
 * directory maps, and detaches the map before it cuts the file.
 */
typedef struct slg_index_file {
    slg_index_kind kind;
    int64_t base_offset;
    size_t entries;      /* those that count */
    size_t size;         /* their bytes */
    int64_t file_size;   /* when it was opened; -1: no file */
    int fd;              /* of a file that is not copied, else -1 */
    const uint8_t *data; /* `held` bytes: a copy, or with a descriptor a map; else NULL */
    size_t held;
    int32_t detached;    /* the map holds zeros */
    slg_source source;   /* where entries are read if its function is set */
} slg_index_file;

enum {
    SLG_INDEX_COPY_MAX = 64 * 1024,   /* larger offset and time indexes are not copied */
    SLG_TXN_INDEX_MAX = 1 << 30       /* bytes; the aborts that fit into a log file need less */
};

/* SLG_FILE_KIND (no regular file) or SLG_IO; if proving, also SLG_FILE_SHRANK, SLG_LIMIT or
 * SLG_NO_MEMORY. Transaction indexes are only copied. */
slg_status slg_index_file_open(slg_index_file *file, slg_index_kind kind, int64_t base_offset,
                               slg_index_policy policy, const char *path, slg_error *error);
/* The same, proving, of an index whose whole content, not NULL, is in memory. It is copied.
 * SLG_LIMIT or SLG_NO_MEMORY. */
slg_status slg_index_file_copy(slg_index_file *file, slg_index_kind kind, int64_t base_offset,
                               const uint8_t *data, size_t size, slg_error *error);
/* Entries in the memory of the caller; nothing to close. */
slg_index_file slg_index_file_over(slg_index_kind kind, int64_t base_offset, const uint8_t *data,
                                   size_t entries);
/* Entries that the caller's function reads, a block at a time; nothing to close. */
slg_index_file slg_index_file_through(slg_index_kind kind, int64_t base_offset, slg_source source,
                                      size_t entries);

/*
 * Maps the first `size` bytes, so that a search costs no system call; it asks only for entries that
 * the file has by then. Only of a trusting file that no other process changes. SLG_IO, and then
 * entries are read.
 */
slg_status slg_index_file_map(slg_index_file *file, size_t size, slg_error *error);
/* From then on the file may be cut: memory takes the place of its pages, and searches, also those
 * that are at work in other threads, read the file. SLG_IO, and then the file may not be cut. */
slg_status slg_index_file_detach(slg_index_file *file, slg_error *error);

/* What a search looks for. */
typedef enum slg_index_bound {
    SLG_INDEX_LOWER = 0,       /* the last entry whose key is <= target */
    SLG_INDEX_LOWER_VALUE = 1, /* the last entry whose value is <= target */
    SLG_INDEX_UPPER_VALUE = 2  /* the first entry whose value is >= target */
} slg_index_bound;

typedef struct slg_index_found {
    int64_t slot;          /* -1: none */
    slg_index_entry entry; /* of no slot: Kafka's answer for an empty index, (base_offset, 0) of an
                            * offset index, (-1, base_offset) of a time index */
    slg_index_entry next; /* the entry after it; its value is -1 if it was not read */
} slg_index_found;

/*
 * Kafka's search among the first `entries`, slot for slot, whatever the bytes are. On
 * SLG_FILE_SHRANK the file has fewer entries by now. Also SLG_IO. May block on the disk if the file
 * has a descriptor.
 */
slg_status slg_index_file_search(const slg_index_file *file, size_t entries, slg_index_bound bound,
                                 int64_t target, slg_index_found *found, slg_error *error);
/* Entry `n`. SLG_FILE_SHRANK or SLG_IO. */
slg_status slg_index_file_entry(const slg_index_file *file, size_t n, slg_index_entry *entry,
                                slg_error *error);
/* The bytes of all entries, `file->size` of them. */
slg_status slg_index_file_read(const slg_index_file *file, uint8_t *into, slg_error *error);
/* Whether the file has fewer entries than when it was opened: then close and open again. */
bool slg_index_file_shrank(const slg_index_file *file);
/* When no thread searches it. */
void slg_index_file_close(slg_index_file *file);

#ifdef __cplusplus
}
#endif
#endif
