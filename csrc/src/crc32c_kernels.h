/* What the kernel files share. Private to csrc/src. States here are inverted (as between steps). */
#ifndef SEGLOG_CRC32C_KERNELS_H
#define SEGLOG_CRC32C_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SLG_CRC32C_HAVE_X86 1
bool slg_crc32c_sse42_available(void);
bool slg_crc32c_avx512_available(void);
uint32_t slg_crc32c_sse42(uint32_t state, const uint8_t *p, size_t size);
uint32_t slg_crc32c_avx512(uint32_t state, const uint8_t *p, size_t size);
#endif

#if defined(__aarch64__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define SLG_CRC32C_HAVE_ARMV8 1
bool slg_crc32c_armv8_available(void);
uint32_t slg_crc32c_armv8(uint32_t state, const uint8_t *p, size_t size);
#endif

uint32_t slg_crc32c_portable(uint32_t state, const uint8_t *p, size_t size);

#endif
