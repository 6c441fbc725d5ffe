/* Bytes of a log file as fuzz input: repaired CRCs, so that what lies behind them is reached. */
#ifndef SEGLOG_FUZZ_LOG_INPUT_H
#define SEGLOG_FUZZ_LOG_INPUT_H

#include <stdbool.h>
#include <unistd.h>

#include "fuzz.h"
#include "seglog/batch.h"
#include "seglog/crc32c.h"
#include "seglog/format.h"
#include "seglog/wire.h"

/* Gives every entry whose framing holds the checksum that it should have. */
static inline void repair_crcs(uint8_t *data, size_t size) {
    size_t at = 0;
    int32_t whole = 0;
    slg_batch batch;
    while (at < size &&
           slg_batch_frame(data + at, size - at, (int64_t)at, (int64_t)size, &whole, NULL) ==
               SLG_OK &&
           slg_batch_parse(data + at, size - at, (int64_t)at, whole, &batch, NULL) == SLG_OK) {
        uint8_t *entry = data + at;
        const size_t entry_size = (size_t)whole;
        REQUIRE(entry_size <= size - at);
        if (slg_batch_is_legacy(&batch)) {
            slg_store_u32(entry + SLG_LEGACY_CRC_AT, slg_crc32(0, entry + SLG_LEGACY_CRC_FROM,
                                                               entry_size - SLG_LEGACY_CRC_FROM));
        } else {
            slg_store_u32(entry + SLG_BATCH_CRC_AT,
                          slg_crc32c(SLG_CRC32C_PORTABLE, 0, entry + SLG_BATCH_CRC_FROM,
                                     entry_size - SLG_BATCH_CRC_FROM));
        }
        at += entry_size;
    }
}

/* One file, without a name, that holds exactly these bytes; its descriptor serves all inputs. */
static inline int file_of(const uint8_t *data, size_t size) {
    static FILE *file;
    if (file == NULL) {
        file = tmpfile();
        REQUIRE(file != NULL);
    }
    const int fd = fileno(file);
    REQUIRE(ftruncate(fd, 0) == 0);
    REQUIRE(pwrite(fd, data, size, 0) == (ssize_t)size);
    return fd;
}

#endif
