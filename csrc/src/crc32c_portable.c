#include "seglog/crc32c.h"

#include "crc32c_kernels.h"
#include "seglog/wire.h"

/*
 * Eight bytes per step, one table each. A CRC is linear: the entry of byte b is the sum of the
 * entries of its bits, so the compiler fills a table of 256 from the eight entries of single bits.
 * Slice k holds the CRC of a byte followed by k zero bytes. tests/c/test_crc32c.c checks both
 * polynomials against the definition, one bit at a time.
 */
#define SLG_BIT(b, bit, value) (((b) & (1U << (bit))) ? (value) : 0U)
#define SLG_E(b, c0, c1, c2, c3, c4, c5, c6, c7)                                     \
    (SLG_BIT(b, 0, c0) ^ SLG_BIT(b, 1, c1) ^ SLG_BIT(b, 2, c2) ^ SLG_BIT(b, 3, c3) ^ \
     SLG_BIT(b, 4, c4) ^ SLG_BIT(b, 5, c5) ^ SLG_BIT(b, 6, c6) ^ SLG_BIT(b, 7, c7))
#define SLG_E4(b, ...)                                                                   \
    SLG_E((b), __VA_ARGS__), SLG_E((b) + 1U, __VA_ARGS__), SLG_E((b) + 2U, __VA_ARGS__), \
        SLG_E((b) + 3U, __VA_ARGS__)
#define SLG_E16(b, ...)                                                                     \
    SLG_E4((b), __VA_ARGS__), SLG_E4((b) + 4U, __VA_ARGS__), SLG_E4((b) + 8U, __VA_ARGS__), \
        SLG_E4((b) + 12U, __VA_ARGS__)
#define SLG_E64(b, ...)                                                                          \
    SLG_E16((b), __VA_ARGS__), SLG_E16((b) + 16U, __VA_ARGS__), SLG_E16((b) + 32U, __VA_ARGS__), \
        SLG_E16((b) + 48U, __VA_ARGS__)
#define SLG_SLICE(...)                                                                \
    {SLG_E64(0U, __VA_ARGS__), SLG_E64(64U, __VA_ARGS__), SLG_E64(128U, __VA_ARGS__), \
     SLG_E64(192U, __VA_ARGS__)}

typedef uint32_t crc_tables[8][256];

/* Castagnoli, 0x1EDC6F41 reflected: 0x82F63B78. */
static const crc_tables tables_crc32c = {
    SLG_SLICE(0xf26b8303U, 0xe13b70f7U, 0xc79a971fU, 0x8ad958cfU, 0x105ec76fU, 0x20bd8edeU,
              0x417b1dbcU, 0x82f63b78U),
    SLG_SLICE(0x13a29877U, 0x274530eeU, 0x4e8a61dcU, 0x9d14c3b8U, 0x3fc5f181U, 0x7f8be302U,
              0xff17c604U, 0xfbc3faf9U),
    SLG_SLICE(0xa541927eU, 0x4f6f520dU, 0x9edea41aU, 0x38513ec5U, 0x70a27d8aU, 0xe144fb14U,
              0xc76580d9U, 0x8b277743U),
    SLG_SLICE(0xdd45aab8U, 0xbf672381U, 0x7b2231f3U, 0xf64463e6U, 0xe964b13dU, 0xd725148bU,
              0xaba65fe7U, 0x52a0c93fU),
    SLG_SLICE(0x38116facU, 0x7022df58U, 0xe045beb0U, 0xc5670b91U, 0x8f2261d3U, 0x1ba8b557U,
              0x37516aaeU, 0x6ea2d55cU),
    SLG_SLICE(0xef306b19U, 0xdb8ca0c3U, 0xb2f53777U, 0x6006181fU, 0xc00c303eU, 0x85f4168dU,
              0x0e045bebU, 0x1c08b7d6U),
    SLG_SLICE(0x68032cc8U, 0xd0065990U, 0xa5e0c5d1U, 0x4e2dfd53U, 0x9c5bfaa6U, 0x3d5b83bdU,
              0x7ab7077aU, 0xf56e0ef4U),
    SLG_SLICE(0x493c7d27U, 0x9278fa4eU, 0x211d826dU, 0x423b04daU, 0x847609b4U, 0x0d006599U,
              0x1a00cb32U, 0x34019664U),
};

/* IEEE 802.3, 0x04C11DB7 reflected: 0xEDB88320. */
static const crc_tables tables_crc32 = {
    SLG_SLICE(0x77073096U, 0xee0e612cU, 0x076dc419U, 0x0edb8832U, 0x1db71064U, 0x3b6e20c8U,
              0x76dc4190U, 0xedb88320U),
    SLG_SLICE(0x191b3141U, 0x32366282U, 0x646cc504U, 0xc8d98a08U, 0x4ac21251U, 0x958424a2U,
              0xf0794f05U, 0x3b83984bU),
    SLG_SLICE(0x01c26a37U, 0x0384d46eU, 0x0709a8dcU, 0x0e1351b8U, 0x1c26a370U, 0x384d46e0U,
              0x709a8dc0U, 0xe1351b80U),
    SLG_SLICE(0xb8bc6765U, 0xaa09c88bU, 0x8f629757U, 0xc5b428efU, 0x5019579fU, 0xa032af3eU,
              0x9b14583dU, 0xed59b63bU),
    SLG_SLICE(0x3d6029b0U, 0x7ac05360U, 0xf580a6c0U, 0x30704bc1U, 0x60e09782U, 0xc1c12f04U,
              0x58f35849U, 0xb1e6b092U),
    SLG_SLICE(0xcb5cd3a5U, 0x4dc8a10bU, 0x9b914216U, 0xec53826dU, 0x03d6029bU, 0x07ac0536U,
              0x0f580a6cU, 0x1eb014d8U),
    SLG_SLICE(0xa6770bb4U, 0x979f1129U, 0xf44f2413U, 0x33ef4e67U, 0x67de9cceU, 0xcfbd399cU,
              0x440b7579U, 0x8816eaf2U),
    SLG_SLICE(0xccaa009eU, 0x4225077dU, 0x844a0efaU, 0xd3e51bb5U, 0x7cbb312bU, 0xf9766256U,
              0x299dc2edU, 0x533b85daU),
};

static uint32_t crc_by_tables(const crc_tables t, uint32_t state, const uint8_t *p, size_t size) {
    for (; size >= 8; size -= 8, p += 8) {
        const uint64_t word = slg_load_le64(p) ^ state;
        state = t[7][word & 0xffU] ^ t[6][(word >> 8) & 0xffU] ^ t[5][(word >> 16) & 0xffU] ^
                t[4][(word >> 24) & 0xffU] ^ t[3][(word >> 32) & 0xffU] ^
                t[2][(word >> 40) & 0xffU] ^ t[1][(word >> 48) & 0xffU] ^ t[0][word >> 56];
    }
    for (; size > 0; size--, p++) {
        state = t[0][(state ^ *p) & 0xffU] ^ (state >> 8);
    }
    return state;
}

uint32_t slg_crc32c_portable(uint32_t state, const uint8_t *p, size_t size) {
    return crc_by_tables(tables_crc32c, state, p, size);
}

uint32_t slg_crc32(uint32_t crc, const void *data, size_t size) {
    const uint8_t *p = data;
    uint32_t state = ~crc;
#ifdef SLG_CRC32C_HAVE_X86
    if (size >= SLG_CRC32_FOLD_MIN && slg_crc32c_sse42_available()) {
        uint8_t rest[16];
        const size_t folded = size - size % sizeof rest;
        slg_crc32_fold(state, p, folded, rest);
        state = crc_by_tables(tables_crc32, 0, rest, sizeof rest);
        p += folded;
        size -= folded;
    }
#endif
    return ~crc_by_tables(tables_crc32, state, p, size);
}
