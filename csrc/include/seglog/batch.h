/*
 * Record batches (magic 2) and messages of magic 0 and 1 as entries of a log: framing, checks,
 * scans.
 *
 * There are two levels of checks. Without SLG_SCAN_STRICT an entry is checked as Kafka's file
 * iteration and recovery do: length, size, CRC; any magic above 1 is read as 2, a negative one as a
 * message. SLG_SCAN_STRICT adds the rules that hold for everything Kafka writes: magic, codec,
 * attribute bits, record count, last offset, increasing offsets.
 *
 * Only the caller's window allocates. One thread per scan.
 */
#ifndef SEGLOG_BATCH_H
#define SEGLOG_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "seglog/crc32c.h"
#include "seglog/status.h"
#include "seglog/window.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The header of one entry. For magic 0 and 1: base_offset and last_offset are the stored offset
 * (the last one of a wrapper); both timestamps are the stored one (-1 for magic 0); record_count is
 * 1, or -1 (unknown) if compressed; producer and epoch fields are -1.
 */
typedef struct slg_batch {
    int64_t base_offset;
    int64_t last_offset;
    int64_t base_timestamp; /* ms; the delete horizon if attribute bit 6 is set */
    int64_t max_timestamp;  /* ms */
    int64_t producer_id;
    int64_t position;       /* of the entry's first byte in the file */
    int32_t size;           /* bytes of the whole entry */
    int32_t partition_leader_epoch;
    int32_t base_sequence;
    int32_t record_count;
    uint32_t crc;           /* stored */
    int16_t attributes;
    int16_t producer_epoch;
    int8_t magic;           /* as stored */
} slg_batch;

static inline int slg_batch_is_legacy(const slg_batch *batch) { return batch->magic < 2; }

/*
 * The framing of the entry at `position` of a file that ends at `end`; `left` bytes of it are at
 * `data`. SLG_OK: *size is the size of the whole entry, which the file holds. SLG_END;
 * SLG_TORN_TAIL (17 bytes or fewer, or fewer than the length says: error has expected and found);
 * SLG_MORE: 17 bytes are needed. SLG_BATCH_LENGTH also for a zero tail: only the caller can check
 * the rest of the file.
 */
slg_status slg_batch_frame(const uint8_t *data, size_t left, int64_t position, int64_t end,
                           int32_t *size, slg_error *error);

/*
 * The header of a framed entry; `left` bytes are at `data`. SLG_OK, SLG_MORE (needs 61 bytes, or 26
 * for a message), SLG_BATCH_SIZE.
 */
slg_status slg_batch_parse(const uint8_t *data, size_t left, int64_t position, int32_t size,
                           slg_batch *batch, slg_error *error);

/* The whole entry is at `data`. SLG_OK or SLG_BATCH_CRC. */
slg_status slg_batch_check_crc(const slg_batch *batch, const uint8_t *data,
                               slg_crc32c_kernel kernel, slg_error *error);

/* Checks the codec bits of a message: none, or a codec of magic 0 and 1. */
slg_status slg_batch_check_legacy_codec(const slg_batch *batch, slg_error *error);

/* Checks one header by the strict rules. */
slg_status slg_batch_check_header(const slg_batch *batch, slg_error *error);

enum { SLG_SCAN_CRC = 1, SLG_SCAN_STRICT = 2 };

/* A scan. The caller sets the first part, slg_batch_scan_init the second. */
typedef struct slg_batch_scan {
    unsigned checks;        /* SLG_SCAN_* */
    slg_crc32c_kernel kernel;
    int64_t position;       /* first byte not scanned; stays at a bad entry */
    int64_t end;            /* logical end of the file */
    slg_batch *batches;     /* the caller's, or NULL to collect nothing */
    int64_t batches_left;   /* room in `batches`, or the most to accept: then SLG_FULL */

    int64_t batch_count;
    int64_t record_count;   /* of the entries with a known count */
    int64_t first_offset;   /* base offset of the first entry, or -1 */
    int64_t last_offset;    /* of the last entry, or -1 */
    int64_t max_timestamp;  /* ms, or -1 */
    int64_t offset_of_max_timestamp; /* last offset of the first entry that has it, as in indexes */
    int64_t next_position; /* after the bad entry; -1 if its length cannot be trusted */
    int64_t until; /* may be lowered after the init: SLG_FULL at an entry that begins there */
} slg_batch_scan;

void slg_batch_scan_init(slg_batch_scan *scan);

/*
 * Scans `size` bytes of the file at `data`, from scan->position, when no others can be read:
 * detects a zero tail if they reach scan->end. SLG_MORE if they end inside an entry that the file
 * holds whole; scan->position is then its start. Every other outcome is final.
 */
slg_status slg_batch_scan_memory(slg_batch_scan *scan, const uint8_t *data, size_t size,
                                 slg_error *error);

/*
 * Scans [scan->position, scan->end) by pread through the window, which does not grow: the CRC of a
 * larger entry is computed in pieces. Reads a tail to tell zeros from a corrupt length.
 */
slg_status slg_batch_scan_file(slg_batch_scan *scan, slg_window *window, slg_error *error);

/*
 * Finds where a scan may begin in the middle of a file: the first position in [from, until) with an
 * entry that passes the strict rules and has a valid CRC. At `from` itself it may be a message of
 * magic 0 or 1, because an index may point there; after it only a batch. The entry may still be
 * bytes inside a value, so the caller must check that the entries before it end exactly there.
 *
 * SLG_OK and *found; SLG_END if there is none; SLG_LIMIT if so many bytes look like batches that
 * the search would cost more than it saves; SLG_IO and the like. The window is the caller's and
 * ends where the file does.
 */
enum { SLG_FIND_BYTES_MAX = 64 << 20 };

slg_status slg_batch_find(slg_window *window, int64_t from, int64_t until, slg_crc32c_kernel kernel,
                          int64_t *found, slg_error *error);

/*
 * Finds the next entry after damage, where no index helps: a batch, or a message of magic 0 or 1,
 * whose key and value lengths must add up to its size before its CRC is computed. `*budget` is the
 * number of bytes that may still be checksummed for candidates; one budget for all calls on a file
 * limits the cost of hostile bytes to a multiple of its size.
 */
slg_status slg_batch_resync(slg_window *window, int64_t from, int64_t until,
                            slg_crc32c_kernel kernel, int64_t *budget, int64_t *found,
                            slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
