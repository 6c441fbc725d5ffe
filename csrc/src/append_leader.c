#include "append_internal.h"

#include "entry.h"
#include "room.h"

/* Smaller batches are copied after their headers: that is cheaper than another piece. */
enum { COPIED_BYTES_MAX = 2048 };

/* A run of plain batches that is being prepared. */
typedef struct run {
    slg_segment_writer *writer;
    const slg_leader_rules *rules;
    const slg_producers *producers;
    slg_segment_state draft;
    size_t count;       /* batches */
    size_t bytes;       /* of the scratch in use */
    size_t pieces;
    int64_t next_offset;
    bool has_producer;
} run;

/* Makes room for one batch and its pieces and entries. */
static slg_status reserve_batch(const run *r, slg_error *error) {
    slg_append_scratch *scratch = &r->writer->scratch;
    slg_status status = SLG_MAKE_ROOM(scratch->batches, scratch->batch_room, r->count, 1, error);
    if (status == SLG_OK) {
        status = SLG_MAKE_ROOM(scratch->pieces, scratch->piece_room, r->pieces, 2, error);
    }
    return status == SLG_OK ? slg_append_reserve_entries(scratch, r->count + 1, error) : status;
}

/* Makes room for bytes. The scratch may move, so pieces in it are offsets until the end. */
static slg_status reserve_bytes(const run *r, size_t copied, slg_error *error) {
    slg_append_scratch *scratch = &r->writer->scratch;
    return SLG_MAKE_ROOM(scratch->bytes, scratch->bytes_room, r->bytes, copied, error);
}

/* The middle of a transaction is plain; its begin and end are not. */
static inline bool is_plain(const slg_producers *producers, const slg_batch *batch) {
    const int special = SLG_ATTRIBUTE_CODEC | SLG_ATTRIBUTE_CONTROL;
    if (slg_batch_is_legacy(batch) || (batch->attributes & special) != 0) {
        return false;
    }
    if ((batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) == 0) {
        return true;
    }
    const slg_producer *known = slg_producers_find(producers, batch->producer_id);
    return known != NULL && known->in_txn && known->epoch == batch->producer_epoch;
}

/* Whether the batch, with its final offsets and timestamps, begins a new segment. */
static bool would_roll(const run *r, const slg_batch *batch) {
    const slg_segment_writer *writer = r->writer;
    const slg_segment_state *draft = &r->draft;
    if (draft->size > r->rules->segment_bytes_max - batch->size ||
        draft->offset_entries >= writer->offset_slots ||
        draft->time_entries >= writer->time_slots - 1 ||
        batch->last_offset - writer->base_offset > INT32_MAX ||
        batch->last_offset < writer->base_offset) {
        return true;
    }
    if (draft->size == 0) {
        return false;
    }
    if (!draft->knows_first_timestamp) {
        return true;
    }
    const int64_t waited = draft->first_timestamp >= 0
                               ? slg_java_subtract(batch->max_timestamp, draft->first_timestamp)
                               : r->rules->records.now - r->rules->created;
    return waited > r->rules->segment_age_max;
}

/* The bytes of the batch to be written: `copied` of them are in the scratch. */
static void put(run *r, const uint8_t *data, size_t size, size_t copied) {
    slg_append_scratch *scratch = &r->writer->scratch;
    /* A piece without a base stands for the next bytes of the scratch. */
    struct iovec *last = r->pieces > 0 ? &scratch->pieces[r->pieces - 1] : NULL;
    if (last != NULL && last->iov_base == NULL) {
        last->iov_len += copied;
    } else {
        scratch->pieces[r->pieces].iov_base = NULL;
        scratch->pieces[r->pieces++].iov_len = copied;
    }
    r->bytes += copied;
    if (copied < size) {
        scratch->pieces[r->pieces].iov_base = (void *)(uintptr_t)(data + copied);
        scratch->pieces[r->pieces++].iov_len = size - copied;
    }
}

/*
 * Adds a batch, which is in the scratch, if it is plain. SLG_OK, SLG_END if it is not,
 * SLG_NO_MEMORY. Nothing is copied after it was changed: a wide load of bytes that were just stored
 * in narrow fields waits for the stores, which took a third of the time of a small batch.
 */
static slg_status add(run *r, const uint8_t *data, slg_batch *batch, slg_error *error) {
    const slg_leader_rules *rules = r->rules;
    const size_t size = (size_t)batch->size;
    const size_t copied = size <= COPIED_BYTES_MAX ? size : (size_t)SLG_BATCH_HEADER_SIZE;
    if (!is_plain(r->producers, batch) || slg_check_client_header(batch) != SLG_ACCEPTED) {
        return SLG_END;
    }
    const slg_status status = reserve_bytes(r, copied + SLG_WALK_SLACK, error);
    if (status != SLG_OK) {
        return status;
    }
    uint8_t *header = r->writer->scratch.bytes + r->bytes;
    slg_append_copy(header, data, copied);
    const uint8_t *records = (copied == size ? header : data) + SLG_BATCH_HEADER_SIZE;
    slg_record_walk walk;
    slg_record_walk_init(&walk, batch, records, size - SLG_BATCH_HEADER_SIZE, SLG_RECORDS_BUFFER,
                         &rules->records);
    walk.has_slack = copied == size;
    if (slg_record_walk_run(&walk) != SLG_NO_MORE) {
        return SLG_END;
    }
    if (walk.index > INT64_MAX - r->next_offset) {
        return SLG_END; /* after INT64_MAX the next offset would overflow */
    }
    const slg_assignment assignment = {
        .next_offset = r->next_offset,
        .leader_epoch = rules->leader_epoch,
        .has_append_time = !rules->records.has_create_time,
        .max_timestamp = rules->records.has_create_time ? walk.max_timestamp : rules->records.now,
    };
    slg_assign(header, records, &assignment, walk.index, rules->kernel, batch);
    if (would_roll(r, batch)) {
        return SLG_END;
    }
    const slg_segment_state before = r->draft;
    if (slg_append_index(r->writer, &r->draft, batch) != SLG_INDEX_TAKES) {
        r->draft = before;
        return SLG_END;
    }
    put(r, data, size, copied);
    r->count++;
    r->next_offset = batch->last_offset + 1;
    r->has_producer = r->has_producer || batch->producer_id >= 0;
    return SLG_OK;
}

/* Sets the addresses of pieces in the scratch, which no longer moves. */
static void place_pieces(run *r) {
    slg_append_scratch *scratch = &r->writer->scratch;
    uint8_t *at = scratch->bytes;
    for (size_t i = 0; i < r->pieces; i++) {
        if (scratch->pieces[i].iov_base == NULL) {
            scratch->pieces[i].iov_base = at;
            at += scratch->pieces[i].iov_len;
        }
    }
}

/* Collects the plain batches. */
static slg_status collect(run *r, const uint8_t *data, size_t size, slg_appended *appended,
                          slg_error *error) {
    slg_analysis analysis = {
        .origin = SLG_ORIGIN_CLIENT,
        .leader_epoch = r->rules->leader_epoch,
        .batch_bytes_max = r->rules->batch_bytes_max,
        .kernel = r->rules->kernel,
    };
    slg_analysis_init(&analysis);
    for (;;) {
        slg_status status = reserve_batch(r, error);
        if (status != SLG_OK) {
            return status;
        }
        slg_batch *batch = &r->writer->scratch.batches[r->count];
        if (slg_analyze_next(&analysis, data, size, batch) != SLG_ACCEPTED ||
            (!r->rules->is_span && (size_t)batch->size != size)) {
            return SLG_OK;
        }
        if (r->count == 0) {
            appended->first_last_offset = batch->last_offset;
        }
        const int32_t leader_epoch = batch->partition_leader_epoch;
        status = add(r, data + batch->position, batch, error);
        if (status != SLG_OK) {
            return status == SLG_END ? SLG_OK : status;
        }
        appended->bytes = analysis.position;
        appended->last_leader_epoch = leader_epoch;
        if (batch->max_timestamp > appended->max_timestamp) {
            appended->max_timestamp = batch->max_timestamp;
        }
        if (appended->bytes == size) {
            return SLG_OK;
        }
    }
}

/* Whether the producers of the run may append it; span->row is the first batch that may not. */
static slg_status judge(const run *r, slg_producers *producers, slg_span *span, const uint8_t *data,
                        size_t size, slg_error *error) {
    const slg_append_rules rules = {
        .origin = SLG_ORIGIN_CLIENT,
        .transaction_version = -1,
        .segment_base = r->writer->base_offset,
        .segment_position = r->writer->state.size,
    };
    slg_span_begin(span);
    return slg_span_check(span, producers, &rules, r->writer->scratch.batches, r->count, data, size,
                          error);
}

slg_status slg_append_as_leader(slg_segment_writer *writer, slg_producers *producers,
                                slg_span *span, const slg_leader_rules *rules, const uint8_t *data,
                                size_t size, slg_appended *appended, slg_error *error) {
    slg_append_scratch *scratch = &writer->scratch;
    slg_status status;
    run r;
    for (bool is_taken = false; !is_taken;) {
        r = (run){.writer = writer,
                  .rules = rules,
                  .producers = producers,
                  .draft = writer->state,
                  .next_offset = rules->next_offset};
        *appended = (slg_appended){.first_offset = rules->next_offset,
                                   .last_offset = -1,
                                   .first_last_offset = -1,
                                   .max_timestamp = -1};
        status = collect(&r, data, size, appended, error);
        if (status != SLG_OK || r.count == 0) {
            return status;
        }
        status = r.has_producer ? judge(&r, producers, span, data, size, error) : SLG_OK;
        if (status != SLG_OK) {
            appended->bytes = 0;
            return status;
        }
        is_taken = !r.has_producer || span->verdict == SLG_APPEND_OK;
        if (!is_taken) {
            /* Retry without the refused batch and those after it. */
            size = span->row == 0 ? 0 : (size_t)scratch->batches[span->row].position;
        }
    }
    place_pieces(&r);
    status = slg_append_write(writer, &r.draft, scratch->pieces, r.pieces, error);
    if (status != SLG_OK) {
        appended->bytes = 0;
        return status;
    }
    if (r.has_producer) {
        slg_span_commit(span, producers);
    }
    appended->batches = r.count;
    appended->last_offset = scratch->batches[r.count - 1].last_offset;
    return SLG_OK;
}
