/* A quick step of the walk over a batch's records, for the cleaner's loops. */
#ifndef SEGLOG_CLEAN_INTERNAL_H
#define SEGLOG_CLEAN_INTERNAL_H

#include "java.h"
#include "record_fields.h"
#include "seglog/validate.h"

/*
 * Passes the next record if it is plain and good: no headers, sizes that add up. The last record,
 * and what is at the end of the bytes, are for slg_record_next, which knows what may follow.
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

#endif
