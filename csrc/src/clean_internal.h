/* Quick steps of the walk over a batch's records, for the cleaner's loops. */
#ifndef SEGLOG_CLEAN_INTERNAL_H
#define SEGLOG_CLEAN_INTERNAL_H

#include "java.h"
#include "record_fields.h"
#include "seglog/batch.h"
#include "seglog/format.h"
#include "seglog/offset_map.h"
#include "seglog/validate.h"

/*
 * Reads the next record if it is plain: no headers, sizes that add up. Leaves the last record and
 * the end of the bytes to slg_record_next, which checks what may follow.
 */
SLG_ALWAYS_INLINE bool slg_walk_peek(slg_record_walk *walk, slg_peeked *record) {
    const uint8_t *pos = walk->bytes.pos;
    if (walk->index + INT64_C(1) >= walk->count || walk->bytes.end - pos <= SLG_PEEK_SLACK ||
        !slg_peek_key(pos, walk->bytes.end - SLG_PEEK_SLACK, record) || !slg_peek_value(record) ||
        *record->tail != 0 || record->tail + 1 != record->stop) {
        return false;
    }
    walk->bytes.pos = record->stop;
    walk->index++;
    return true;
}

/* What the cleaner needs of a record. */
typedef struct slg_seen {
    int64_t offset;
    const uint8_t *key; /* may be NULL if the key is empty */
    int32_t key_size;   /* negative for a null key */
    bool has_value;
} slg_seen;

static inline slg_refusal slg_next_seen(slg_record_walk *walk, slg_seen *seen) {
    slg_peeked peeked;
    if (slg_walk_peek(walk, &peeked)) {
        seen->offset = slg_java_add(walk->base_offset, slg_zigzag32((uint32_t)peeked.offset_delta));
        seen->key = peeked.key;
        seen->key_size = peeked.key_is_null ? -1 : (int32_t)peeked.key_length;
        seen->has_value = !peeked.value_is_null;
        return SLG_ACCEPTED;
    }
    const slg_refusal refusal = slg_record_next(walk);
    seen->offset = walk->record.offset;
    seen->key = walk->record.key;
    seen->key_size = walk->record.key_size;
    seen->has_value = walk->record.value_size >= 0;
    return refusal;
}

/* The key of the record before `index`. */
static inline void slg_seen_key(const slg_seen *seen, int32_t index, slg_offset_key *key) {
    key->data = seen->key;
    key->size = (uint32_t)seen->key_size;
    key->offset = seen->offset;
    key->number = (uint32_t)index - 1;
}

/* A walk over the uncompressed records of a batch. */
static inline slg_record_walk slg_clean_walk(const slg_batch *batch, const uint8_t *records,
                                             size_t size) {
    slg_record_walk walk;
    slg_record_walk_init(&walk, batch, records, size,
                         (batch->attributes & SLG_ATTRIBUTE_CODEC) != 0 ? SLG_RECORDS_STREAM
                                                                        : SLG_RECORDS_BUFFER,
                         NULL);
    return walk;
}

#endif
