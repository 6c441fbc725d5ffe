/*
 * aarch64 kernel: three streams of crc32cx, joined by PMULL (crc32c_kernels.h explains the
 * factors).
 *
 * The two instructions are written as assembly, because compilers disagree on how to enable them
 * for one function (gcc: target("+crc"), clang: other names; older headers need a global -march).
 */
#include "crc32c_kernels.h"

#ifdef SLG_CRC32C_HAVE_ARMV8

#include <arm_neon.h>

#include "seglog/wire.h"

#if defined(__APPLE__)
/* Every 64-bit Apple processor that macOS runs on has both. */
bool slg_crc32c_armv8_available(void) { return true; }
#elif defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

bool slg_crc32c_armv8_available(void) {
    const unsigned long wanted = HWCAP_CRC32 | HWCAP_PMULL;
    return (getauxval(AT_HWCAP) & wanted) == wanted;
}
#else
bool slg_crc32c_armv8_available(void) { return false; }
#endif

static inline uint32_t step8(uint32_t state, uint64_t word) {
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
    return state;
}

static inline uint32_t step1(uint32_t state, uint8_t byte) {
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(state) : "r"((uint32_t)byte));
    return state;
}

/* state * factor, without carries. */
static inline uint64_t moved(uint32_t state, uint32_t factor) {
    const uint64x2_t a = vdupq_n_u64(state);
    const uint64x2_t b = vdupq_n_u64(factor);
    uint64x2_t product;
    __asm__(".arch_extension aes\n\tpmull %0.1q, %1.1d, %2.1d" : "=w"(product) : "w"(a), "w"(b));
    return vgetq_lane_u64(product, 0);
}

static inline uint32_t three_streams(uint32_t state, const uint8_t *p,
                                     const slg_crc32c_lanes shape) {
    uint32_t middle = 0;
    uint32_t last = 0;
    for (size_t i = 0; i < shape.lane; i += 8) {
        state = step8(state, slg_load_le64(p + i));
        middle = step8(middle, slg_load_le64(p + i + shape.lane));
        last = step8(last, slg_load_le64(p + i + 2 * shape.lane));
    }
    return last ^ step8(0, moved(state, shape.far) ^ moved(middle, shape.near));
}

uint32_t slg_crc32c_armv8(uint32_t state, const uint8_t *p, size_t size) {
    static const slg_crc32c_lanes shapes[] = SLG_LANES;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const size_t span = 3 * shapes[i].lane;
        for (; size >= span; size -= span, p += span) {
            state = three_streams(state, p, shapes[i]);
        }
    }
    for (; size >= 8; size -= 8, p += 8) {
        state = step8(state, slg_load_le64(p));
    }
    for (; size > 0; size--, p++) {
        state = step1(state, *p);
    }
    return state;
}

#endif
