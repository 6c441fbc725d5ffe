/*
 * The hash with which Kafka's producers choose a partition for a key (Kafka: Utils.murmur2,
 * BuiltInPartitioner.partitionForKey), for one key or a column of keys.
 */
#ifndef SEGLOG_MURMUR2_H
#define SEGLOG_MURMUR2_H

#include "seglog/encode_sources.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Any alignment, any size from 0 to INT32_MAX (the limit of Java's arrays). */
int32_t slg_murmur2(const uint8_t *data, size_t size);

/* The partition of a hash among `partitions` (at least 1): Utils.toPositive, then the remainder. */
static inline int32_t slg_partition_of_hash(int32_t hash, int32_t partitions) {
    return (int32_t)((uint32_t)hash & 0x7fffffffU) % partitions;
}

/*
 * Fills `out` with one number per row of `column`: its hash if `partitions` is 0, else its
 * partition; `null_value` for a null. SLG_OK, or SLG_ARROW_LAYOUT with the row as error->position
 * if the column is inconsistent; `out` is then unspecified from that row on.
 */
slg_status slg_murmur2_column(const slg_input_binary *column, int64_t rows, int32_t partitions,
                              int32_t null_value, int32_t *out, slg_error *error);

#ifdef __cplusplus
}
#endif
#endif
