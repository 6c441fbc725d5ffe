/*
 * The hash by which Kafka's producers choose a partition for a key (Kafka: Utils.murmur2,
 * BuiltInPartitioner.partitionForKey), of one key and of a column of keys.
 */
#ifndef SEGLOG_MURMUR2_H
#define SEGLOG_MURMUR2_H

#include "seglog/encode_sources.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Any alignment and any size up to INT32_MAX (Java's arrays have no more), 0 included. */
int32_t slg_murmur2(const uint8_t *data, size_t size);

/* The partition of a hash among `partitions` (at least 1): Utils.toPositive, then the remainder. */
static inline int32_t slg_partition_of_hash(int32_t hash, int32_t partitions) {
    return (int32_t)((uint32_t)hash & 0x7fffffffU) % partitions;
}

/*
 * Fills `out`, one number a row of `column`: its hash when `partitions` is 0, else its partition.
 * A null gives `null_value`. SLG_OK, or SLG_ARROW_LAYOUT with the row as error->position when the
 * column contradicts itself; `out` is then unspecified from that row on.
 */
slg_status slg_murmur2_column(const slg_input_binary *column, int64_t rows, int32_t partitions,
                              int32_t null_value, int32_t *out, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
