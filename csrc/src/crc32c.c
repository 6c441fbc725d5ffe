/* Only the dispatch: the kernels are in crc32c_portable, crc32c_x86 and crc32c_armv8. */
#include "seglog/crc32c.h"

#include <assert.h>

#include "crc32c_kernels.h"

const char *slg_crc32c_name(slg_crc32c_kernel kernel) {
    switch (kernel) {
    case SLG_CRC32C_PORTABLE: return "portable";
    case SLG_CRC32C_SSE42: return "sse42";
    case SLG_CRC32C_AVX512: return "avx512";
    case SLG_CRC32C_ARMV8: return "armv8";
    case SLG_CRC32C_KERNELS: break;
    }
    return "unknown";
}

bool slg_crc32c_available(slg_crc32c_kernel kernel) {
    switch (kernel) {
    case SLG_CRC32C_PORTABLE: return true;
#ifdef SLG_CRC32C_HAVE_X86
    case SLG_CRC32C_SSE42: return slg_crc32c_sse42_available();
    case SLG_CRC32C_AVX512: return slg_crc32c_avx512_available();
#endif
#ifdef SLG_CRC32C_HAVE_ARMV8
    case SLG_CRC32C_ARMV8: return slg_crc32c_armv8_available();
#endif
    default: return false;
    }
}

slg_crc32c_kernel slg_crc32c_best(void) {
    static const slg_crc32c_kernel fastest_first[] = {SLG_CRC32C_AVX512, SLG_CRC32C_ARMV8,
                                                      SLG_CRC32C_SSE42};
    for (size_t i = 0; i < sizeof fastest_first / sizeof fastest_first[0]; i++) {
        if (slg_crc32c_available(fastest_first[i])) {
            return fastest_first[i];
        }
    }
    return SLG_CRC32C_PORTABLE;
}

uint32_t slg_crc32c(slg_crc32c_kernel kernel, uint32_t crc, const void *data, size_t size) {
    assert(slg_crc32c_available(kernel));
    switch (kernel) {
#ifdef SLG_CRC32C_HAVE_X86
    case SLG_CRC32C_SSE42: return ~slg_crc32c_sse42(~crc, data, size);
    case SLG_CRC32C_AVX512: return ~slg_crc32c_avx512(~crc, data, size);
#endif
#ifdef SLG_CRC32C_HAVE_ARMV8
    case SLG_CRC32C_ARMV8: return ~slg_crc32c_armv8(~crc, data, size);
#endif
    default: return ~slg_crc32c_portable(~crc, data, size);
    }
}
