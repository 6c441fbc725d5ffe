/*
 * One status code per cause, named and numbered, never reused (docs/format.md quotes the names).
 *
 * Every function of csrc that can meet a bad byte returns slg_status and, on anything but SLG_OK,
 * fills the caller's slg_error. C never allocates or formats a message: `_native/status.pyx` is the
 * only place that turns a status into a Python exception.
 */
#ifndef SEGLOG_STATUS_H
#define SEGLOG_STATUS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum slg_status {
    SLG_OK = 0,

    /* Outcomes of a scan. None is an error. */
    SLG_END = 1, /* clean end: the position is the end of the file */
    /* an incomplete batch at the end (fewer bytes than its header or length say) */
    SLG_TORN_TAIL = 2,
    /* only zero bytes from here to the end (preallocation, delayed allocation) */
    SLG_ZERO_TAIL = 3,
    SLG_FULL = 4, /* the output is full: take it and call again */
    SLG_MORE = 5, /* the window ends inside a batch that the file still holds: give more bytes */
    SLG_CODEC = 6, /* a compressed payload: the caller decompresses it and calls again */

    /* Batch framing and checks (Kafka: CorruptRecordException). expected/found as commented. */
    SLG_BATCH_LENGTH = 16, /* length field below the minimum: expected = 14, found = length */
    /* whole size below the header of its magic: expected = minimum, found = size */
    SLG_BATCH_SIZE = 17,
    SLG_BATCH_CRC = 18, /* expected = stored CRC, found = computed CRC */
    SLG_BATCH_MAGIC = 19, /* magic that this reader does not know: expected = 2, found = magic */
    SLG_BATCH_CODEC = 20, /* codec bits 5..7: expected = 4, found = codec */
    /* negative record count, or more records than the bytes can hold */
    SLG_BATCH_RECORD_COUNT = 21,
    SLG_BATCH_LAST_OFFSET = 22, /* last offset delta negative or offset overflows: found = delta */
    /* base offset not above the last offset before: expected = minimum, found = base */
    SLG_BATCH_OFFSET_ORDER = 23,
    /* last offset - segment base outside 0..2^31-1: expected = segment base, found = offset */
    SLG_BATCH_OFFSET_RANGE = 24,
    /* control batch that is compressed, or bits that Kafka never writes */
    SLG_BATCH_ATTRIBUTES = 25,

    /* Records inside a batch (Kafka: InvalidRecordException). position = the batch in the file. */
    SLG_RECORD_VARINT = 48, /* a varint without an end, or past its width */
    /* record length beyond the payload: expected = bytes left, found = length */
    SLG_RECORD_LENGTH = 49,
    /* fields end elsewhere than the length says: expected = length, found = read */
    SLG_RECORD_SIZE = 50,
    SLG_RECORD_FIELD = 51, /* key, value or header length beyond the record */
    SLG_RECORD_HEADERS = 52, /* header count negative or more than the record can hold */
    SLG_RECORD_COUNT = 53, /* bytes left after, or missing before, the last record */
    /* no int64 of microseconds: expected = the most milliseconds, found = the timestamp in them */
    SLG_RECORD_TIMESTAMP = 54,

    /* Messages of magic 0 and 1 (Kafka: InvalidRecordException, CorruptRecordException). */
    SLG_LEGACY_SIZE = 80, /* inner or outer message below its minimum */
    SLG_LEGACY_NULL_WRAPPER = 81, /* compressed wrapper without a value */
    SLG_LEGACY_EMPTY_WRAPPER = 82, /* compressed wrapper without a message */
    SLG_LEGACY_NESTED = 83, /* compressed message inside a wrapper */
    SLG_LEGACY_OFFSET = 84, /* wrapper offset below the last inner offset and not zero */
    SLG_LEGACY_CODEC = 85, /* zstd in magic 0 or 1 */

    /* Decompression. */
    SLG_CODEC_DATA = 100, /* the codec refused the bytes */
    SLG_CODEC_TOO_LARGE = 101, /* more than the cap: expected = cap */

    /* Index files (Kafka: CorruptIndexException). position = byte in the index file. */
    /* size is no multiple of the entry: expected = entry size, found = file size */
    SLG_INDEX_SIZE = 112,
    SLG_INDEX_OFFSET_ORDER = 113, /* relative offset not above the one before */
    SLG_INDEX_POSITION_ORDER = 114, /* position not above the one before */
    SLG_INDEX_TIME_ORDER = 115, /* timestamp not above the one before */
    SLG_INDEX_OFFSET_RANGE = 116, /* offset below the base or beyond the segment's last */
    SLG_INDEX_POSITION_RANGE = 117, /* position beyond the log file */
    SLG_INDEX_PADDED = 118, /* entries followed by zeros: preallocated and never trimmed */
    SLG_INDEX_UNWRITTEN = 119, /* only zeros: created and never written */
    SLG_INDEX_NOT_A_BATCH = 120, /* entry does not point to the start of the batch it names */
    SLG_TXN_SIZE = 121, /* transaction index: size is no multiple of 34 */
    SLG_TXN_VERSION = 122, /* transaction index: version other than 0 */
    SLG_TXN_OFFSET = 123, /* transaction index: last offset below the base, or not increasing */

    /* Files and directories. expected/found as commented; sys_errno for SLG_IO. */
    SLG_IO = 144, /* a system call failed: sys_errno */
    SLG_FILE_MISSING = 145, /* vanished between the listing and the open */
    SLG_FILE_KIND = 146, /* a link, directory, device or fifo where a file is expected */
    SLG_FILE_TOO_LARGE = 147, /* log file above 2^31 - 1: found = size */
    SLG_FILE_SHRANK = 148, /* fewer bytes than the size said: expected, found */

    SLG_NO_MEMORY = 160,
    SLG_LIMIT = 161, /* a cap of the caller's was reached: expected = cap, found = wanted */
    SLG_INDEX_FULL = 162, /* an index that is rebuilt has no room: expected = entries that fit */

    /* Folding a log into producer state (Kafka: InvalidTxnStateException and what it is near). */
    SLG_TXN_STATE = 176, /* a batch without the transactional bit inside a transaction */
    SLG_TXN_NOT_STARTED = 177, /* a marker ends what nobody has open: found = first offset */

    /* Records and columns that a caller wants written (Kafka: IllegalArgumentException). */
    SLG_ENCODE_OFFSET = 192, /* not above the last one: expected = the last, found = offset */
    SLG_ENCODE_TIMESTAMP = 193, /* negative and not -1: found = timestamp */
    SLG_ENCODE_DELTA = 194, /* 2^31 or more behind the base: expected = base, found = offset */
    SLG_ENCODE_SIZE = 195, /* a batch above 2^31 - 1 bytes: expected = those, found = its size */
    SLG_ENCODE_HEADER_KEY = 196, /* a header without a key */
    SLG_ARROW_TYPE = 200, /* a column of a type that it cannot have */
    SLG_ARROW_LAYOUT = 201 /* offsets out of order, or fewer values than announced */
} slg_status;

/* Where and what. The caller owns it; a function writes it only when it does not return SLG_OK. */
typedef struct slg_error {
    slg_status status;
    int32_t sys_errno; /* of the system call that failed (also SLG_FILE_MISSING, _KIND), else 0 */
    int64_t position;  /* byte in the file that the caller named */
    int64_t expected;
    int64_t found;
} slg_error;

/* The name in lower case without the prefix ("batch_crc"); "unknown" for no code. */
const char *slg_status_name(slg_status status);

/* Fills *error (which may be NULL) and returns status: `return slg_fail(...)` reads well. */
slg_status slg_fail(slg_error *error, slg_status status, int64_t position, int64_t expected,
                    int64_t found);
slg_status slg_fail_errno(slg_error *error, slg_status status, int64_t position,
                          int sys_errno);

#ifdef __cplusplus
}
#endif
#endif
