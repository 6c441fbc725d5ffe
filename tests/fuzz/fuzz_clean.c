/*
 * The log cleaner over hostile batches: keys hashed ahead fill the map as keys of one batch after
 * the other do, the records that are kept are those of a plain walk, and the batches that are
 * written hold exactly these.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"

#include "seglog/clean.h"

enum { BATCHES_MAX = 64, KEYS_PART = 40 };

typedef struct spans {
    uint8_t *bytes;
    slg_batch batches[BATCHES_MAX];
    size_t count;
} spans;

static const uint8_t *records_of(const spans *all, const slg_batch *batch, size_t *size) {
    *size = (size_t)batch->size - SLG_BATCH_HEADER_SIZE;
    return all->bytes + batch->position + SLG_BATCH_HEADER_SIZE;
}

static slg_record_walk walk_of(const slg_batch *batch, const uint8_t *records, size_t size) {
    slg_record_walk walk;
    slg_record_walk_init(&walk, batch, records, size,
                         (batch->attributes & SLG_ATTRIBUTE_CODEC) != 0 ? SLG_RECORDS_STREAM
                                                                        : SLG_RECORDS_BUFFER,
                         NULL);
    return walk;
}

static bool is_same(const slg_offset_map *a, const slg_offset_map *b) {
    return a->entries == b->entries && a->latest_offset == b->latest_offset &&
           memcmp(a->slots, b->slots, (size_t)a->slot_count * SLG_OFFSET_SLOT_SIZE) == 0;
}

/* ---- the map ------------------------------------------------------------------------------- */

/* Fills one map from the records of each batch, and one from keys that were read ahead. */
static void fill_maps(const spans *all, slg_offset_map *map, slg_offset_map *other, int64_t start,
                      int32_t limit) {
    slg_batch_keys keys = {0};
    slg_map_counts counts = {0, 0}, others = {0, 0};
    REQUIRE(slg_batch_keys_begin(&keys, all->count, KEYS_PART));
    for (size_t row = 0; row < all->count; row++) {
        const slg_batch *batch = &all->batches[row];
        size_t size;
        const uint8_t *records = records_of(all, batch, &size);
        slg_batch_keys_next(&keys);
        (void)slg_batch_keys_add(&keys, row, batch, records, size, start);
        const slg_clean_step step = slg_map_batch(map, batch, records, size, start, limit, &counts);
        const slg_clean_step ahead =
            keys.rows[row].is_read
                ? slg_map_row(other, all->batches, row, &keys, start, limit, &others)
                : slg_map_batch(other, batch, records, size, start, limit, &others);
        REQUIRE(step == ahead && is_same(map, other));
        REQUIRE(counts.bytes == others.bytes && counts.messages == others.messages);
        if (step != SLG_CLEAN_DONE) {
            break;
        }
    }
    slg_batch_keys_free(&keys);
}

static int64_t offset_in(const slg_offset_map *map, const slg_record *record) {
    slg_offset_key key = {.data = record->key, .size = (uint32_t)record->key_size};
    slg_offset_map_hash(map, &key, 1);
    return slg_offset_map_get(map, &key);
}

/* ---- the records that are kept ------------------------------------------------------------- */

static bool stays(const slg_retention *retention, const slg_record *record) {
    if (record->offset > retention->map->latest_offset) {
        return true;
    }
    return record->key_size >= 0 && (record->value_size >= 0 || retention->keeps_tombstones) &&
           record->offset >= offset_in(retention->map, record);
}

/* Whether all records are good; *kept lists what stays. The caller frees it. */
static bool check_retained(const slg_retention *retention, const slg_batch *batch,
                           const uint8_t *records, size_t size, slg_kept **kept,
                           slg_retained *found) {
    slg_record_walk quick = walk_of(batch, records, size), slow = quick;
    const size_t room = slg_records_max(size);
    *kept = malloc(room * sizeof **kept);
    REQUIRE(*kept != NULL);
    const slg_refusal refusal = slg_retain_records(retention, &quick, *kept, found);
    int64_t count = 0, read = 0;
    for (;;) {
        const uint32_t at = (uint32_t)slg_cursor_read(&slow.bytes);
        const slg_refusal one = slg_record_next(&slow);
        if (one != SLG_ACCEPTED) {
            REQUIRE(one == refusal);
            break;
        }
        if (stays(retention, &slow.record)) {
            REQUIRE(count < found->kept);
            REQUIRE((*kept)[count].number == read && (*kept)[count].at == at);
            count++;
        }
        read++;
    }
    REQUIRE(count == found->kept && read == found->read);
    return refusal == SLG_NO_MORE;
}

/* ---- the batches that are written ---------------------------------------------------------- */

static bool is_same_field(const uint8_t *a, int32_t a_size, const uint8_t *b, int32_t b_size) {
    if (a_size < 0 || b_size < 0) {
        return a_size < 0 && b_size < 0;
    }
    return a_size == b_size && (a_size == 0 || memcmp(a, b, (size_t)a_size) == 0);
}

/* A written batch is sound, and its records are the kept ones of the source. */
static void check_written(const uint8_t *data, size_t size, const slg_batch *batch,
                          const uint8_t *records, size_t records_size, const slg_kept *kept,
                          int64_t count) {
    int32_t whole = 0;
    slg_batch made;
    REQUIRE(slg_batch_frame(data, size, 0, (int64_t)size, &whole, NULL) == SLG_OK);
    REQUIRE((size_t)whole == size);
    REQUIRE(slg_batch_parse(data, size, 0, whole, &made, NULL) == SLG_OK);
    REQUIRE(slg_batch_check_crc(&made, data, SLG_CRC32C_PORTABLE, NULL) == SLG_OK);
    REQUIRE(made.base_offset == batch->base_offset && made.last_offset == batch->last_offset);
    REQUIRE(made.record_count == count);
    slg_record_walk old = walk_of(batch, records, records_size);
    slg_record_walk walk =
        walk_of(&made, data + SLG_BATCH_HEADER_SIZE, size - SLG_BATCH_HEADER_SIZE);
    for (int64_t i = 0; i < count; i++) {
        old.bytes.pos = old.bytes.begin + kept[i].at;
        old.index = (int32_t)kept[i].number;
        REQUIRE(slg_record_next(&old) == SLG_ACCEPTED);
        REQUIRE(slg_record_next(&walk) == SLG_ACCEPTED);
        const slg_record *a = &old.record, *b = &walk.record;
        REQUIRE(a->offset == b->offset && a->timestamp == b->timestamp);
        REQUIRE(a->header_count == b->header_count);
        REQUIRE(is_same_field(a->key, a->key_size, b->key, b->key_size));
        REQUIRE(is_same_field(a->value, a->value_size, b->value, b->value_size));
    }
    REQUIRE(slg_record_next(&walk) == SLG_NO_MORE);
}

static void check_clean(const spans *all, const slg_clean_rules *rules) {
    slg_clean_output output = {0};
    slg_clean_work work = {0};
    slg_clean_counts counts = {0};
    slg_clean_output_begin(&output, all->bytes);
    for (size_t row = 0; row < all->count; row++) {
        const slg_batch *batch = &all->batches[row];
        const bool has_horizon = (batch->attributes & SLG_ATTRIBUTE_DELETE_HORIZON) != 0;
        const slg_retention retention = {
            .map = rules->map,
            .keeps_tombstones = !has_horizon || rules->now < batch->base_timestamp,
        };
        size_t size, before, after;
        const uint8_t *records = records_of(all, batch, &size);
        slg_kept *kept;
        slg_retained found;
        if (slg_clean_kind(batch) == SLG_CLEAN_OTHER) {
            continue;
        }
        const bool is_good = check_retained(&retention, batch, records, size, &kept, &found);
        (void)slg_clean_output_end(&output, &before);
        slg_clean_step step = slg_clean_batch(rules, batch, records, size, &output, &work, &counts);
        REQUIRE(is_good || step == SLG_CLEAN_OTHER);
        if (step == SLG_CLEAN_COMPRESS) { /* with a codec that changes nothing */
            REQUIRE(slg_clean_seal(rules, work.batch.data + SLG_BATCH_HEADER_SIZE,
                                   work.batch.size - SLG_BATCH_HEADER_SIZE, &output, &work));
            step = SLG_CLEAN_DONE;
        }
        const uint8_t *end = slg_clean_output_end(&output, &after);
        REQUIRE(step == SLG_CLEAN_DONE || (step == SLG_CLEAN_OTHER && after == before));
        if (step == SLG_CLEAN_DONE && found.kept > 0) {
            const uint8_t *written = end + before;
            REQUIRE(after > before);
            if (after - before != (size_t)batch->size ||
                memcmp(written, all->bytes + batch->position, after - before) != 0) {
                check_written(written, after - before, batch, records, size, kept, found.kept);
            }
        }
        free(kept);
    }
    slg_clean_output_free(&output);
    slg_clean_work_free(&work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const int32_t slots = 1 + fuzz_byte(&input);
    const int64_t start = fuzz_byte(&input);
    spans *all = malloc(sizeof *all);
    REQUIRE(all != NULL);
    all->bytes = fuzz_exact(input.data, input.size);
    all->count = 0;
    repair_crcs(all->bytes, input.size);
    int32_t whole = 0;
    for (size_t at = 0; at < input.size && all->count < BATCHES_MAX; at += (size_t)whole) {
        slg_batch *batch = &all->batches[all->count];
        if (slg_batch_frame(all->bytes + at, input.size - at, (int64_t)at, (int64_t)input.size,
                            &whole, NULL) != SLG_OK ||
            slg_batch_parse(all->bytes + at, input.size - at, (int64_t)at, whole, batch, NULL) !=
                SLG_OK) {
            break;
        }
        all->count += !slg_batch_is_legacy(batch);
    }
    slg_offset_map map = {0}, other = {0};
    REQUIRE(slg_offset_map_renew(&map, slots) && slg_offset_map_renew(&other, slots));
    fill_maps(all, &map, &other, start, (steer & 1) != 0 ? slots : slots / 2 + 1);
    if ((steer & 2) != 0) {
        map.latest_offset = start;
    }
    const slg_clean_rules rules = {
        .map = &map,
        .now = (int64_t)(steer >> 4) << 38,
        .new_horizon = (steer & 4) != 0 ? INT64_C(1) << 41 : -1,
        .upper_bound = (steer & 8) != 0 ? start : INT64_MAX,
        .kernel = SLG_CRC32C_PORTABLE,
    };
    check_clean(all, &rules);
    slg_offset_map_free(&map);
    slg_offset_map_free(&other);
    free(all->bytes);
    free(all);
    return 0;
}
