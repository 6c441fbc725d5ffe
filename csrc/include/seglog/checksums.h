/*
 * CRC-32C and validity as a record batch of every value of a column of bytes.
 */
#ifndef SEGLOG_CHECKSUMS_H
#define SEGLOG_CHECKSUMS_H

#include "seglog/crc32c.h"
#include "seglog/encode_sources.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The result for each value. */
typedef enum slg_checksum {
    SLG_CHECKSUM_CRC32C, /* its CRC-32C: 0 to 2^32 - 1 */
    /*
     * 1 for a value that is exactly one entry of a log with a valid CRC (a record batch, or a
     * message of magic 0 or 1), else 0. Kafka: DefaultRecordBatch.isValid and LegacyRecord.isValid
     * on the first entry of MemoryRecords, with no bytes after it.
     */
    SLG_CHECKSUM_IS_BATCH
} slg_checksum;

/*
 * Fills `out` with one number per row of `column`, -1 for a null. SLG_OK, or SLG_ARROW_LAYOUT with
 * the row as error->position if the column is inconsistent; `out` is then unspecified from that row
 * on.
 */
slg_status slg_checksum_column(const slg_input_binary *column, int64_t rows, slg_checksum what,
                               slg_crc32c_kernel kernel, int64_t *out, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
