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

/*
 * An index file opened for searching. Small ones are copied, because a copy needs no descriptor;
 * larger ones keep their descriptor, and a search reads the entries that it looks at. Nothing is
 * mapped: a broker that resets an index in recovery cuts entries, and a map touched beyond the end
 * of its file kills the process with SIGBUS.
 *
 * A file that does not exist is an index without entries. One owner; searches only read.
 */
typedef struct slg_index_file {
    const uint8_t *data; /* `entries` whole entries of a copied file; else NULL */
    size_t entries;      /* without the zero entries at the end of an index never trimmed */
    size_t size;         /* bytes of the entries */
    int64_t file_size;   /* when it was opened; -1: no file */
    int fd;              /* of a file that is not copied, else -1 */
} slg_index_file;

enum {
    SLG_INDEX_COPY_MAX = 64 * 1024,   /* larger offset and time indexes are not copied */
    SLG_TXN_INDEX_MAX = 1 << 30       /* bytes; the aborts that fit into a log file need less */
};

/* SLG_FILE_KIND (no regular file), SLG_FILE_SHRANK, SLG_LIMIT, SLG_IO or SLG_NO_MEMORY. */
slg_status slg_index_file_open(slg_index_file *file, slg_index_kind kind, const char *path,
                               slg_error *error);
/* The same of an index whose whole content, not NULL, is in memory. It is copied. SLG_LIMIT or
 * SLG_NO_MEMORY. */
slg_status slg_index_file_copy(slg_index_file *file, slg_index_kind kind, const uint8_t *data,
                               size_t size, slg_error *error);
/*
 * Entry `n`, and Kafka's searches, slot for slot. Lookup: the slot of the entry with the largest
 * key <= target, or -1 for none. Upper bound: that of the first entry of an offset index whose
 * *position* is >= target, or -1. On SLG_FILE_SHRANK the file has fewer entries by now: close and
 * open again. Also SLG_IO.
 */
slg_status slg_index_file_entry(const slg_index_file *file, slg_index_kind kind, size_t n,
                                int64_t base_offset, slg_index_entry *entry, slg_error *error);
slg_status slg_index_file_lookup(const slg_index_file *file, slg_index_kind kind,
                                 int64_t base_offset, int64_t target, int64_t *slot,
                                 slg_error *error);
slg_status slg_index_file_upper_bound(const slg_index_file *file, int64_t position, int64_t *slot,
                                      slg_error *error);
/* The bytes of all entries, `file->size` of them. */
slg_status slg_index_file_read(const slg_index_file *file, uint8_t *into, slg_error *error);
/* Whether the file has fewer entries than when it was opened: then close and open again. */
bool slg_index_file_shrank(const slg_index_file *file);
void slg_index_file_close(slg_index_file *file);

#ifdef __cplusplus
}
#endif
#endif
