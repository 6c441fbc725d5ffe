/*
 * Checksums of Kafka's formats: CRC-32C (Castagnoli; batches of magic 2, producer snapshots) and
 * CRC-32 (IEEE 802.3, as zlib; messages of magic 0 and 1).
 *
 * `crc` is the checksum of the bytes before, 0 at the start, so that spans chain:
 * crc(ab) = f(f(0, a), b). Any alignment, any size including 0. Stateless and thread-safe.
 */
#ifndef SEGLOG_CRC32C_H
#define SEGLOG_CRC32C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kernel 0 runs everywhere, slowly, and is the reference for the others. */
typedef enum slg_crc32c_kernel {
    SLG_CRC32C_PORTABLE = 0, /* eight tables */
    SLG_CRC32C_SSE42 = 1,    /* x86-64: crc32 on three streams, joined by PCLMULQDQ */
    SLG_CRC32C_AVX512 = 2,   /* x86-64: VPCLMULQDQ folding of 256 bytes a step, for large spans */
    SLG_CRC32C_ARMV8 = 3,    /* aarch64: crc32cx on three streams, joined by PMULL */
    SLG_CRC32C_KERNELS = 4   /* the number of kernels */
} slg_crc32c_kernel;

/* "portable", "sse42", "avx512", "armv8". */
const char *slg_crc32c_name(slg_crc32c_kernel kernel);

/* Whether this build has the kernel and this processor runs it. Cheap; call once per span. */
bool slg_crc32c_available(slg_crc32c_kernel kernel);

/* The available kernel that measured fastest. The caller keeps it; C has no globals. */
slg_crc32c_kernel slg_crc32c_best(void);

/* `kernel` must be available; one that is not is a caller's error (an assert). */
uint32_t slg_crc32c(slg_crc32c_kernel kernel, uint32_t crc, const void *data, size_t size);

/* CRC-32 of zlib. */
uint32_t slg_crc32(uint32_t crc, const void *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
