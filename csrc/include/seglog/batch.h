/*
 * Record batches (magic 2) and messages of magic 0 and 1 as entries of a log: framing, checks,
 * scans.
 *
 * Two levels of checks. Without SLG_SCAN_STRICT an entry is judged as Kafka's file iteration and
 * its recovery judge it: length, size, CRC; any magic above 1 is read as 2, a negative one as a
 * message. With it come the rules that hold for everything Kafka writes: magic, codec, attribute
 * bits, record count, last offset, offsets that increase.
 *
 * Nothing here allocates, apart from the caller's window. One thread per scan.
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
 * Header of one entry. For magic 0 and 1: base_offset and last_offset are the stored offset (the
 * last of a wrapper), both timestamps the stored one (-1 for magic 0), record_count 1, or -1
 * (unknown) when compressed, everything about producers and epochs -1.
 */
typedef struct slg_batch {
    int64_t base_offset;
    int64_t last_offset;
    int64_t base_timestamp; /* ms; the delete horizon when attributes have bit 6 */
    int64_t max_timestamp;  /* ms */
    int64_t producer_id;
    int64_t position;       /* of the entry's first byte in the file */
    int32_t size;           /* whole entry in bytes */
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
 * Framing of the entry at `position` of a file that ends at `end`, of which `left` bytes are at
 * `data`. SLG_OK: *size is the whole entry's, within the file. SLG_END; SLG_TORN_TAIL (17 bytes or
 * fewer, or fewer than the length says: error has expected and found); SLG_MORE: 17 bytes are
 * needed. SLG_BATCH_LENGTH also for a zero tail: only the caller can look at the rest of the file.
 */
slg_status slg_batch_frame(const uint8_t *data, size_t left, int64_t position, int64_t end,
                           int32_t *size, slg_error *error);

/*
 * Header of a framed entry; `left` bytes are at `data`. SLG_OK, SLG_MORE (61 bytes, or 26 for a
 * message, are needed), SLG_BATCH_SIZE.
 */
slg_status slg_batch_parse(const uint8_t *data, size_t left, int64_t position, int32_t size,
                           slg_batch *batch, slg_error *error);

/* The whole entry is at `data`. SLG_OK or SLG_BATCH_CRC. */
slg_status slg_batch_check_crc(const slg_batch *batch, const uint8_t *data,
                               slg_crc32c_kernel kernel, slg_error *error);

/* The codec bits of a message: none, or one that magic 0 and 1 may have. */
slg_status slg_batch_check_legacy_codec(const slg_batch *batch, slg_error *error);

/* The strict rules about one header. */
slg_status slg_batch_check_header(const slg_batch *batch, slg_error *error);

enum { SLG_SCAN_CRC = 1, SLG_SCAN_STRICT = 2 };

/* A scan: the caller fills the first part, slg_batch_scan_init the second. */
typedef struct slg_batch_scan {
    unsigned checks;        /* SLG_SCAN_* */
    slg_crc32c_kernel kernel;
    int64_t position;       /* first byte not scanned; a bad entry is not passed */
    int64_t end;            /* logical end of the file */
    slg_batch *batches;     /* the caller's, or NULL to collect nothing */
    int64_t batches_left;   /* room in `batches`, or the most to accept: then SLG_FULL */

    int64_t batch_count;
    int64_t record_count;   /* of the entries that know theirs */
    int64_t first_offset;   /* base offset of the first entry, -1 without one */
    int64_t last_offset;    /* of the last entry, -1 without one */
    int64_t max_timestamp;  /* ms, -1 without one */
    int64_t offset_of_max_timestamp; /* last offset of the first entry that has it, as in indexes */
    int64_t next_position; /* after the entry that failed, -1 when its length cannot be trusted */
    int64_t until; /* lower it after the init: SLG_FULL at an entry that begins there */
} slg_batch_scan;

void slg_batch_scan_init(slg_batch_scan *scan);

/*
 * Scans entries in a window of the file: `size` bytes at `data` are those at scan->position.
 * SLG_MORE when they end inside an entry that the file still holds; scan->position says how far it
 * came. Every other outcome is final, except that SLG_BATCH_LENGTH and SLG_TORN_TAIL may turn out
 * as a zero tail.
 */
slg_status slg_batch_scan_window(slg_batch_scan *scan, const uint8_t *data, size_t size,
                                 slg_error *error);

/* The same when nothing else can be read: knows zero tails if the bytes reach scan->end. */
slg_status slg_batch_scan_memory(slg_batch_scan *scan, const uint8_t *data, size_t size,
                                 slg_error *error);

/*
 * Scans [scan->position, scan->end) by pread through the window, which keeps its size: the CRC of
 * an entry beyond it is taken piecewise. Zero tails are told from corrupt lengths by reading them.
 */
slg_status slg_batch_scan_file(slg_batch_scan *scan, slg_window *window, slg_error *error);

/*
 * Where in the middle of a file a scan may begin: the first position in [from, until) with an entry
 * that passes the strict rules and whose CRC is right. At `from` itself it may be a message of
 * magic 0 or 1, because an index may have named it; behind it only a batch. It may still be no
 * entry of the log, but bytes inside a value: whoever begins there has to see that the entries
 * before it end there.
 *
 * SLG_OK and *found; SLG_END when there is none; SLG_LIMIT when so much looks like batches and is
 * none that looking on would cost more than it saves; SLG_IO and the like. The window is the
 * caller's and ends where the file does.
 */
enum { SLG_FIND_BYTES_MAX = 64 << 20 };

slg_status slg_batch_find(slg_window *window, int64_t from, int64_t until, slg_crc32c_kernel kernel,
                          int64_t *found, slg_error *error);

/*
 * The same after damage, where no index helps: also messages of magic 0 and 1, whose lengths of key
 * and value must add up to their size before their CRC is computed. `*budget` is what may still be
 * checksummed for candidates, in bytes; one budget for all calls of a file keeps hostile bytes from
 * costing more than a multiple of its size.
 */
slg_status slg_batch_resync(slg_window *window, int64_t from, int64_t until,
                            slg_crc32c_kernel kernel, int64_t *budget, int64_t *found,
                            slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
