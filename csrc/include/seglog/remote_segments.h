/*
 * The metadata of a remote segment (KIP-405) as one span of memory, and a search in offsets. The
 * span is in no file and has the byte order of the machine.
 *
 * Stateless, allocates nothing, thread-safe.
 */
#ifndef SEGLOG_REMOTE_SEGMENTS_H
#define SEGLOG_REMOTE_SEGMENTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SLG_SEGMENT_ID_SIZE = 16 };

/* An epoch of a segment, and its first offset there. */
typedef struct slg_segment_epoch {
    int64_t offset;
    int32_t epoch;
    int32_t unused; /* 0 */
} slg_segment_epoch;

/* `epoch_count` epochs in ascending order follow, then the custom metadata. */
typedef struct slg_remote_segment {
    uint8_t id[SLG_SEGMENT_ID_SIZE];
    int64_t start_offset;
    int64_t end_offset; /* inclusive */
    int64_t max_timestamp_ms;
    int64_t event_timestamp_ms;
    int32_t broker_id;
    int32_t size;
    int32_t epoch_count; /* at least 1 */
    int32_t custom_size; /* -1: no custom metadata */
    uint8_t state;
    uint8_t txn_idx_empty;
} slg_remote_segment;

/* The epochs of a segment. */
static inline slg_segment_epoch *slg_remote_segment_epochs(slg_remote_segment *segment) {
    return (slg_segment_epoch *)(segment + 1);
}

/* The last offset of an epoch in a segment: before its next epoch, or the segment's end. As Java's
 * long, the offset before INT64_MIN is INT64_MAX. */
static inline int64_t slg_remote_segment_epoch_end(slg_remote_segment *segment, int32_t epoch) {
    const slg_segment_epoch *epochs = slg_remote_segment_epochs(segment);
    for (int32_t at = 0; at < segment->epoch_count; at++) {
        if (epochs[at].epoch > epoch) {
            return epochs[at].offset > INT64_MIN ? epochs[at].offset - 1 : INT64_MAX;
        }
    }
    return segment->end_offset;
}

/* How many of `count` ascending offsets are at most `offset`. */
static inline size_t slg_offsets_up_to(const int64_t *offsets, size_t count, int64_t offset) {
    size_t from = 0;
    while (count > 0) {
        const size_t half = count / 2;
        if (offsets[from + half] <= offset) {
            from += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return from;
}

#ifdef __cplusplus
}
#endif
#endif
