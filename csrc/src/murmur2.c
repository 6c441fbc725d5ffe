#include "seglog/murmur2.h"

#include <assert.h>

#include "encode_internal.h"
#include "seglog/wire.h"

enum { SHIFT = 24 };

static const uint32_t SEED = 0x9747b28c;
static const uint32_t MULTIPLIER = 0x5bd1e995;

int32_t slg_murmur2(const uint8_t *data, size_t size) {
    const size_t whole = size & ~(size_t)3;
    uint32_t hash = SEED ^ (uint32_t)size;
    for (size_t at = 0; at < whole; at += 4) {
        uint32_t word = slg_load_le32(data + at) * MULTIPLIER;
        word = (word ^ word >> SHIFT) * MULTIPLIER;
        hash = hash * MULTIPLIER ^ word;
    }
    if (size > whole) {
        for (size_t at = size; at-- > whole;) {
            hash ^= (uint32_t)data[at] << 8 * (at - whole);
        }
        hash *= MULTIPLIER;
    }
    hash = (hash ^ hash >> 13) * MULTIPLIER;
    hash ^= hash >> 15;
    return (int32_t)hash;
}

slg_status slg_murmur2_column(const slg_input_binary *column, int64_t rows, int32_t partitions,
                              int32_t null_value, int32_t *out, slg_error *error) {
    assert(partitions >= 0);
    for (int64_t row = 0; row < rows; row++) {
        slg_value key;
        if (!value_at(column, row, &key)) {
            return slg_fail(error, SLG_ARROW_LAYOUT, row, 0, row);
        }
        if (key.size < 0) {
            out[row] = null_value;
            continue;
        }
        const int32_t hash = slg_murmur2(key.data, (size_t)key.size);
        out[row] = partitions == 0 ? hash : slg_partition_of_hash(hash, partitions);
    }
    return SLG_OK;
}
