#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "clean_internal.h"
#include "entry.h"
#include "room.h"
#include "seglog/clean.h"
#include "seglog/format.h"

enum {
    ATTRIBUTES_OF_BUILT = SLG_ATTRIBUTE_CODEC | SLG_ATTRIBUTE_LOG_APPEND_TIME |
    SLG_ATTRIBUTE_TRANSACTIONAL
};

slg_clean_step slg_clean_kind(const slg_batch *batch) {
    const int codec = batch->attributes & SLG_ATTRIBUTE_CODEC;
    if (slg_batch_is_legacy(batch) || (batch->attributes & SLG_ATTRIBUTE_CONTROL) != 0 ||
        batch->size < SLG_BATCH_HEADER_SIZE || batch->base_offset < 0 || batch->last_offset < 0) {
        return SLG_CLEAN_OTHER;
    }
    /* Java's inflater refuses bytes that other inflaters accept. */
    if (codec == SLG_CODEC_GZIP || codec > SLG_CODEC_MAX) {
        return SLG_CLEAN_OTHER;
    }
    if ((batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) != 0) {
        return SLG_CLEAN_TRANSACTION;
    }
    return codec != SLG_CODEC_NONE ? SLG_CLEAN_CODEC : SLG_CLEAN_DONE;
}

/* ---- the offset map ------------------------------------------------------------------------ */

static slg_clean_step count_mapped(slg_offset_map *map, const slg_batch *batch,
                                   const slg_mapped *found, int64_t start_offset,
                                   slg_map_counts *counts) {
    counts->messages += found->read;
    if (found->is_full) {
        return SLG_CLEAN_FULL;
    }
    if (batch->last_offset >= start_offset) {
        map->latest_offset = batch->last_offset;
    }
    counts->bytes += batch->size;
    return SLG_CLEAN_DONE;
}

slg_clean_step slg_map_batch(slg_offset_map *map, const slg_batch *batch, const uint8_t *records,
                             size_t size, int64_t start_offset, int32_t limit,
                             slg_map_counts *counts) {
    slg_record_walk walk = slg_clean_walk(batch, records, size);
    slg_mapped found;
    if (slg_map_records(map, &walk, start_offset, limit, &found) != SLG_NO_MORE) {
        return SLG_CLEAN_REFUSED;
    }
    return count_mapped(map, batch, &found, start_offset, counts);
}

slg_clean_step slg_map_row(slg_offset_map *map, const slg_batch *batches, size_t row,
                           slg_batch_keys *ahead, int64_t start_offset, int32_t limit,
                           slg_map_counts *counts) {
    slg_mapped found;
    slg_batch_keys_put(ahead, row, map, limit, &found);
    return count_mapped(map, &batches[row], &found, start_offset, counts);
}

slg_clean_step slg_map_batches(slg_offset_map *map, const uint8_t *data, const slg_batch *batches,
                               size_t count, size_t *row, int64_t start_offset, int32_t limit,
                               slg_batch_keys *ahead, slg_map_counts *counts) {
    slg_clean_step step = SLG_CLEAN_DONE;
    for (; *row < count && step == SLG_CLEAN_DONE; *row += step == SLG_CLEAN_DONE) {
        const slg_batch *batch = &batches[*row];
        step = slg_clean_kind(batch);
        if (step != SLG_CLEAN_TRANSACTION && ahead != NULL && ahead->rows[*row].is_read) {
            step = slg_map_row(map, batches, *row, ahead, start_offset, limit, counts);
        } else if (step == SLG_CLEAN_DONE) {
            step = slg_map_batch(map, batch, data + batch->position + SLG_BATCH_HEADER_SIZE,
                                 (size_t)batch->size - SLG_BATCH_HEADER_SIZE, start_offset, limit,
                                 counts);
        }
    }
    return step;
}

/* ---- the output ---------------------------------------------------------------------------- */

static bool reserve(uint8_t **memory, size_t *room, size_t size) {
    return slg_make_room(memory, room, 0, size, 1, NULL) == SLG_OK;
}

void slg_clean_output_begin(slg_clean_output *output, const uint8_t *span) {
    output->span = span;
    output->range_from = output->range_to = output->size = 0;
    output->max_offset = -1;
}

static void note_offset(slg_clean_output *output, int64_t offset) {
    if (offset > output->max_offset) {
        output->max_offset = offset;
    }
}

/* Copies the pending range. */
static bool copy_range(slg_clean_output *output) {
    const size_t size = output->range_to - output->range_from;
    if (size > 0) {
        if (!reserve(&output->data, &output->capacity, output->size + size)) {
            return false;
        }
        memcpy(output->data + output->size, output->span + output->range_from, size);
        output->size += size;
    }
    output->range_from = output->range_to = 0;
    return true;
}

bool slg_clean_keep(slg_clean_output *output, size_t position, size_t size, int64_t last_offset) {
    if (position != output->range_to || output->range_from == output->range_to) {
        if (!copy_range(output)) {
            return false;
        }
        output->range_from = position;
    }
    output->range_to = position + size;
    note_offset(output, last_offset);
    return true;
}

bool slg_clean_write(slg_clean_output *output, const uint8_t *data, size_t size,
                     int64_t max_offset) {
    if (!copy_range(output) || !reserve(&output->data, &output->capacity, output->size + size)) {
        return false;
    }
    memcpy(output->data + output->size, data, size);
    output->size += size;
    note_offset(output, max_offset);
    return true;
}

const uint8_t *slg_clean_output_end(slg_clean_output *output, size_t *size) {
    if (output->size == 0) {
        *size = output->range_to - output->range_from;
        return output->span + output->range_from;
    }
    if (!copy_range(output)) {
        return NULL;
    }
    *size = output->size;
    return output->data;
}

void slg_clean_output_free(slg_clean_output *output) { free(output->data); }

void slg_clean_work_free(slg_clean_work *work) {
    free(work->kept);
    free(work->headers);
    free(work->built);
}

/* ---- the kept batches ---------------------------------------------------------------------- */

/* Whether the producer's last record is in this batch. */
static bool is_last_of_producer(const slg_clean_rules *rules, const slg_batch *batch) {
    size_t low = 0, high = rules->producer_count;
    if (batch->producer_id < 0) {
        return false;
    }
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (rules->producers[middle] < batch->producer_id) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < rules->producer_count && rules->producers[low] == batch->producer_id &&
           rules->last_offsets[low] >= 0 && rules->last_offsets[low] == batch->last_offset;
}

/* The header fields of a rebuilt batch; false if Kafka's builder refuses them. */
static bool set_fields(const slg_batch *batch, bool has_horizon, slg_encode_fields *fields) {
    const int64_t delta = slg_java_subtract(batch->last_offset, batch->base_offset);
    if (delta < 0 || delta > INT32_MAX || batch->producer_id < -1 ||
        (batch->producer_id == -1 && (batch->attributes & SLG_ATTRIBUTE_TRANSACTIONAL) != 0) ||
        (batch->producer_id >= 0 && (batch->producer_epoch < 0 || batch->base_sequence < 0))) {
        return false;
    }
    *fields = (slg_encode_fields){
        .max_timestamp = batch->max_timestamp, /* unless the records have their own */
        .producer_id = batch->producer_id,
        .partition_leader_epoch = batch->partition_leader_epoch,
        .base_sequence = batch->base_sequence,
        .last_offset_delta = (int32_t)delta,
        .attributes = (int16_t)((batch->attributes & ATTRIBUTES_OF_BUILT) |
                                (has_horizon ? SLG_ATTRIBUTE_DELETE_HORIZON : 0)),
        .producer_epoch = batch->producer_epoch,
    };
    return true;
}

/* Memory in which a batch is built, from byte `at` on. */
typedef struct memory {
    uint8_t **data;
    size_t *room, at;
} memory;

static bool grow(slg_encode_batch *built, const memory *to, size_t size) {
    if (!reserve(to->data, to->room, to->at + size)) {
        return false;
    }
    built->data = *to->data + to->at;
    built->capacity = *to->room - to->at;
    return true;
}

/* Adds the walk's record, of which all fields were read. */
static slg_status add_record(const slg_record *record, slg_clean_work *work, slg_error *error) {
    slg_encode_record wanted = {
        .offset = record->offset,
        .timestamp = record->timestamp,
        .key = record->key,
        .value = record->value,
        .key_size = record->key_size < 0 ? -1 : record->key_size,
        .value_size = record->value_size < 0 ? -1 : record->value_size,
        .header_count = record->header_count,
    };
    if (record->header_count > 0) {
        if (!reserve(&work->headers, &work->headers_room, slg_headers_bound(record))) {
            return SLG_NO_MEMORY;
        }
        wanted.headers_size = (int64_t)slg_headers_rewrite(record, work->headers);
    }
    uint8_t *headers;
    const slg_status status = slg_encode_add(&work->batch, &wanted, &headers, error);
    if (status == SLG_OK && wanted.headers_size > 0) {
        memcpy(headers, work->headers, (size_t)wanted.headers_size);
    }
    return status;
}

/* Whether the bytes before `end` are this size as an encoder writes it; *bytes is their number. */
static inline bool ends_size(const uint8_t *end, bool is_null, int64_t length, ptrdiff_t *bytes) {
    const uint64_t size = is_null ? 1 : (uint64_t)length << 1;
    if (SLG_LIKELY(size < 0x80)) {
        *bytes = 1;
        return end[-1] == size;
    }
    if (SLG_LIKELY(size < 0x4000)) {
        *bytes = 2;
        return end[-2] == (uint8_t)(size | 0x80) && end[-1] == size >> 7;
    }
    uint8_t wanted[SLG_VARINT_SIZE_MAX];
    *bytes = slg_put_uvarlong(wanted, size) - wanted;
    return memcmp(end - *bytes, wanted, (size_t)*bytes) == 0;
}

/* The fields of a plain record from its key's size on; NULL if an encoder writes other bytes. */
static inline const uint8_t *encoded_fields(const slg_peeked *record) {
    ptrdiff_t key_bytes, value_bytes;
    return ends_size(record->key, record->key_is_null, record->key_length, &key_bytes) &&
                   ends_size(record->value, record->value_is_null, record->value_length,
                             &value_bytes) &&
                   record->value - value_bytes == record->key + record->key_length
               ? record->key - key_bytes
               : NULL;
}

/* Adds the next record of the walk, which was accepted before. */
static slg_status add_next(slg_record_walk *walk, slg_clean_work *work, slg_error *error) {
    const uint8_t *from = walk->bytes.pos;
    const int32_t index = walk->index;
    slg_peeked record;
    if (slg_walk_peek(walk, &record)) {
        const uint8_t *fields = encoded_fields(&record);
        if (SLG_LIKELY(fields != NULL)) {
            return slg_encode_add_encoded(
                &work->batch,
                slg_java_add(walk->base_offset, slg_zigzag32((uint32_t)record.offset_delta)),
                walk->has_append_time
                    ? walk->append_time
                    : slg_java_add(walk->base_timestamp, slg_zigzag64(record.time_delta)),
                fields, (size_t)(record.stop - fields), error);
        }
        walk->bytes.pos = from;
        walk->index = index;
    }
    const slg_refusal refusal = slg_record_next(walk);
    assert(refusal == SLG_ACCEPTED);
    (void)refusal;
    return add_record(&walk->record, work, error);
}

/* Builds a batch of the kept records. */
static slg_clean_step build(const slg_batch *batch, slg_record_walk walk, int64_t count,
                            int64_t horizon, slg_clean_work *work, const memory *to) {
    if (!reserve(to->data, to->room, to->at + SLG_BATCH_HEADER_SIZE)) {
        return SLG_CLEAN_NO_MEMORY;
    }
    slg_encode_open(&work->batch, *to->data + to->at, *to->room - to->at, batch->base_offset);
    if (horizon >= 0) {
        work->batch.base_timestamp = horizon;
        work->batch.has_base_timestamp = true;
    }
    for (int64_t i = 0; i < count;) {
        slg_error error;
        walk.bytes.pos = walk.bytes.begin + work->kept[i].at;
        walk.index = (int32_t)work->kept[i].number;
        const slg_status status = add_next(&walk, work, &error);
        if (status == SLG_OK) {
            i++;
        } else if (status == SLG_NO_MEMORY ||
                   (status == SLG_MORE && !grow(&work->batch, to, (size_t)error.expected))) {
            return SLG_CLEAN_NO_MEMORY;
        } else if (status != SLG_MORE) {
            return SLG_CLEAN_OTHER;
        }
    }
    return SLG_CLEAN_DONE;
}

static void count_batch(slg_clean_counts *counts, const slg_batch *batch,
                        const slg_retained *found) {
    counts->bytes += batch->size;
    counts->read += found->read;
    counts->invalid += found->invalid;
    counts->kept += found->kept;
}

/* Builds the batch, and adds it to the output unless it must be compressed. */
static slg_clean_step rebuild(const slg_clean_rules *rules, const slg_batch *batch,
                              const slg_record_walk *walk, const slg_retained *found,
                              int64_t horizon, slg_clean_output *output, slg_clean_work *work) {
    const bool is_compressed = (batch->attributes & SLG_ATTRIBUTE_CODEC) != 0;
    if (!set_fields(batch, horizon >= 0, &work->fields)) {
        return SLG_CLEAN_OTHER;
    }
    if (!is_compressed && !copy_range(output)) {
        return SLG_CLEAN_NO_MEMORY;
    }
    const memory of_batch = {&work->built, &work->built_room, 0};
    const memory of_output = {&output->data, &output->capacity, output->size};
    const slg_clean_step step =
        build(batch, *walk, found->kept, horizon, work, is_compressed ? &of_batch : &of_output);
    if (step != SLG_CLEAN_DONE) {
        return step;
    }
    if (!walk->has_append_time) {
        work->fields.max_timestamp = work->batch.max_timestamp;
    }
    note_offset(output, found->max_offset);
    if (is_compressed) {
        return SLG_CLEAN_COMPRESS;
    }
    uint8_t *header = output->data + output->size;
    slg_encode_seal(header, &work->batch, &work->fields, header + SLG_BATCH_HEADER_SIZE,
                    work->batch.size - SLG_BATCH_HEADER_SIZE, rules->kernel);
    output->size += work->batch.size;
    return SLG_CLEAN_DONE;
}

slg_clean_step slg_clean_batch(const slg_clean_rules *rules, const slg_batch *batch,
                               const uint8_t *records, size_t size, slg_clean_output *output,
                               slg_clean_work *work, slg_clean_counts *counts) {
    const bool has_horizon = (batch->attributes & SLG_ATTRIBUTE_DELETE_HORIZON) != 0;
    const slg_retention retention = {
        .map = rules->map,
        .keeps_tombstones = !has_horizon || rules->now < batch->base_timestamp,
        .uses_marks = rules->uses_marks,
    };
    const slg_record_walk walk = slg_clean_walk(batch, records, size);
    slg_record_walk run = walk;
    slg_retained found;
    size_t most = slg_records_max(size);
    if (batch->record_count >= 0 && (size_t)batch->record_count < most) {
        most = (size_t)batch->record_count;
    }
    if (SLG_MAKE_ROOM(work->kept, work->kept_room, 0, most + 1, NULL) != SLG_OK) {
        return SLG_CLEAN_NO_MEMORY;
    }
    if (slg_retain_records(&retention, &run, work->kept, &found) != SLG_NO_MORE ||
        (found.kept > 0 && found.max_offset < 0)) {
        return SLG_CLEAN_OTHER;
    }
    slg_clean_step step = SLG_CLEAN_DONE;
    if (found.kept == 0) {
        if (batch->last_offset == rules->upper_bound - 1 || is_last_of_producer(rules, batch)) {
            return SLG_CLEAN_OTHER; /* Kafka keeps it, empty */
        }
    } else if (found.kept == found.read && (has_horizon || !found.has_tombstone)) {
        if (!slg_clean_keep(output, (size_t)batch->position, (size_t)batch->size,
                            batch->last_offset)) {
            return SLG_CLEAN_NO_MEMORY;
        }
    } else {
        const bool sets_horizon = !has_horizon && found.has_tombstone;
        const int64_t horizon = has_horizon    ? batch->base_timestamp
                                : sets_horizon ? rules->new_horizon
                                               : -1;
        if ((has_horizon || sets_horizon) && horizon < 0) {
            return SLG_CLEAN_OTHER;
        }
        step = rebuild(rules, batch, &walk, &found, horizon, output, work);
    }
    if (step == SLG_CLEAN_DONE || step == SLG_CLEAN_COMPRESS) {
        count_batch(counts, batch, &found);
    }
    return step;
}

bool slg_clean_seal(const slg_clean_rules *rules, const uint8_t *payload, size_t size,
                    slg_clean_output *output, slg_clean_work *work) {
    const size_t whole = SLG_BATCH_HEADER_SIZE + size;
    if (!copy_range(output) || !reserve(&output->data, &output->capacity, output->size + whole)) {
        return false;
    }
    uint8_t *header = output->data + output->size;
    memcpy(header + SLG_BATCH_HEADER_SIZE, payload, size);
    slg_encode_seal(header, &work->batch, &work->fields, header + SLG_BATCH_HEADER_SIZE, size,
                    rules->kernel);
    output->size += whole;
    return true;
}

slg_clean_step slg_clean_batches(const slg_clean_rules *rules, const uint8_t *data,
                                 const slg_batch *batches, size_t count, size_t *row,
                                 slg_clean_output *output, slg_clean_work *work,
                                 slg_clean_counts *counts) {
    slg_clean_step step = SLG_CLEAN_DONE;
    for (; *row < count && step == SLG_CLEAN_DONE; *row += step == SLG_CLEAN_DONE) {
        const slg_batch *batch = &batches[*row];
        step = slg_clean_kind(batch);
        if (step == SLG_CLEAN_DONE) {
            step = slg_clean_batch(rules, batch, data + batch->position + SLG_BATCH_HEADER_SIZE,
                                   (size_t)batch->size - SLG_BATCH_HEADER_SIZE, output, work,
                                   counts);
        }
    }
    return step;
}
