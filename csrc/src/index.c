#include "seglog/index.h"

#include <assert.h>

#include "java.h"
#include "seglog/wire.h"

size_t slg_index_entry_size(slg_index_kind kind) {
    switch (kind) {
    case SLG_INDEX_KIND_OFFSET: return SLG_OFFSET_ENTRY_SIZE;
    case SLG_INDEX_KIND_TIME: return SLG_TIME_ENTRY_SIZE;
    case SLG_INDEX_KIND_TXN: break;
    }
    return SLG_TXN_ENTRY_SIZE;
}

slg_index_entry slg_index_entry_at(slg_index_kind kind, const uint8_t *data, size_t n,
                                   int64_t base_offset) {
    slg_index_entry entry;
    assert(kind == SLG_INDEX_KIND_OFFSET || kind == SLG_INDEX_KIND_TIME);
    if (kind == SLG_INDEX_KIND_OFFSET) {
        const uint8_t *p = data + n * SLG_OFFSET_ENTRY_SIZE;
        entry.key = slg_java_add(base_offset, slg_load_i32(p + SLG_OFFSET_ENTRY_OFFSET_AT));
        entry.value = slg_load_i32(p + SLG_OFFSET_ENTRY_POSITION_AT);
    } else {
        const uint8_t *p = data + n * SLG_TIME_ENTRY_SIZE;
        entry.key = slg_load_i64(p + SLG_TIME_ENTRY_TIMESTAMP_AT);
        entry.value = slg_java_add(base_offset, slg_load_i32(p + SLG_TIME_ENTRY_OFFSET_AT));
    }
    return entry;
}

slg_aborted_txn slg_aborted_txn_at(const uint8_t *data, size_t n) {
    const uint8_t *p = data + n * SLG_TXN_ENTRY_SIZE;
    const slg_aborted_txn txn = {
        .producer_id = slg_load_i64(p + SLG_TXN_ENTRY_PRODUCER_ID_AT),
        .first_offset = slg_load_i64(p + SLG_TXN_ENTRY_FIRST_OFFSET_AT),
        .last_offset = slg_load_i64(p + SLG_TXN_ENTRY_LAST_OFFSET_AT),
        .last_stable_offset = slg_load_i64(p + SLG_TXN_ENTRY_LAST_STABLE_OFFSET_AT),
        .version = slg_load_i16(p + SLG_TXN_ENTRY_VERSION_AT),
    };
    return txn;
}

/* ---- checks --------------------------------------------------------------------------------- */

void slg_index_check_begin(slg_index_check *check, slg_index_kind kind, int64_t base_offset,
                           int64_t end_offset, int64_t log_size) {
    *check = (slg_index_check){
        .kind = kind,
        .base_offset = base_offset,
        .end_offset = end_offset,
        .log_size = log_size,
        .last_key = -1,
        .last_value = -1,
        .zeros_from = -1,
    };
}

static bool in_segment(const slg_index_check *check, int64_t offset) {
    return offset >= check->base_offset && offset < check->end_offset;
}

static slg_status check_offset_entry(slg_index_check *check, const uint8_t *p, slg_error *error) {
    const slg_index_entry e = slg_index_entry_at(SLG_INDEX_KIND_OFFSET, p, 0, check->base_offset);
    const int64_t at = check->position;
    if (check->used > 0 && e.key <= check->last_key) {
        return slg_fail(error, SLG_INDEX_OFFSET_ORDER, at, check->last_key, e.key);
    }
    if (!in_segment(check, e.key)) {
        return slg_fail(error, SLG_INDEX_OFFSET_RANGE, at, check->base_offset, e.key);
    }
    if (e.value < 0 || e.value >= check->log_size) {
        return slg_fail(error, SLG_INDEX_POSITION_RANGE, at + SLG_OFFSET_ENTRY_POSITION_AT,
                        check->log_size, e.value);
    }
    if (check->used > 0 && e.value <= check->last_value) {
        return slg_fail(error, SLG_INDEX_POSITION_ORDER, at + SLG_OFFSET_ENTRY_POSITION_AT,
                        check->last_value, e.value);
    }
    check->last_key = e.key;
    check->last_value = e.value;
    return SLG_OK;
}

static slg_status check_time_entry(slg_index_check *check, const uint8_t *p, slg_error *error) {
    const slg_index_entry e = slg_index_entry_at(SLG_INDEX_KIND_TIME, p, 0, check->base_offset);
    const int64_t at = check->position;
    /* last_key begins at -1, the timestamp of an empty index: a negative one is never written. */
    if (e.key <= check->last_key) {
        return slg_fail(error, SLG_INDEX_TIME_ORDER, at, check->last_key, e.key);
    }
    if (!in_segment(check, e.value)) {
        return slg_fail(error, SLG_INDEX_OFFSET_RANGE, at + SLG_TIME_ENTRY_OFFSET_AT,
                        check->base_offset, e.value);
    }
    if (check->used > 0 && e.value < check->last_value) {
        return slg_fail(error, SLG_INDEX_OFFSET_ORDER, at + SLG_TIME_ENTRY_OFFSET_AT,
                        check->last_value, e.value);
    }
    check->last_key = e.key;
    check->last_value = e.value;
    return SLG_OK;
}

static slg_status check_txn_entry(slg_index_check *check, const uint8_t *p, slg_error *error) {
    const slg_aborted_txn txn = slg_aborted_txn_at(p, 0);
    const int64_t at = check->position;
    /* Kafka looks at the first byte alone, as a signed number, and refuses what is above 0. */
    const bool refused = (int8_t)p[SLG_TXN_ENTRY_VERSION_AT] > 0;
    if (refused || (check->strict && txn.version != 0)) {
        return slg_fail(error, SLG_TXN_VERSION, at, 0, txn.version);
    }
    if (txn.last_offset < check->base_offset) {
        return slg_fail(error, SLG_TXN_OFFSET, at + SLG_TXN_ENTRY_LAST_OFFSET_AT,
                        check->base_offset, txn.last_offset);
    }
    if (check->strict && check->used > 0 && txn.last_offset <= check->last_value) {
        const bool is_last = check->last_value == INT64_MAX; /* nothing can follow that offset */
        return slg_fail(error, SLG_TXN_OFFSET, at + SLG_TXN_ENTRY_LAST_OFFSET_AT,
                        is_last ? INT64_MAX : check->last_value + 1, txn.last_offset);
    }
    check->last_value = txn.last_offset;
    return SLG_OK;
}

/* Entries of zeros are set aside: at the end they are padding, before an entry they are checked. */
static bool may_be_padding(const slg_index_check *check, const uint8_t *p, size_t size) {
    return check->kind != SLG_INDEX_KIND_TXN && slg_is_zero(p, size);
}

static slg_status check_entry(slg_index_check *check, const uint8_t *p, slg_error *error) {
    switch (check->kind) {
    case SLG_INDEX_KIND_OFFSET: return check_offset_entry(check, p, error);
    case SLG_INDEX_KIND_TIME: return check_time_entry(check, p, error);
    case SLG_INDEX_KIND_TXN: break;
    }
    return check_txn_entry(check, p, error);
}

void slg_index_check_feed_zeros(slg_index_check *check, size_t size) {
    assert(check->kind != SLG_INDEX_KIND_TXN && size % slg_index_entry_size(check->kind) == 0);
    if (check->zeros_from < 0 && size > 0) {
        check->zeros_from = check->position;
    }
    check->position += (int64_t)size;
}

slg_status slg_index_check_feed(slg_index_check *check, const uint8_t *data, size_t size,
                                slg_error *error) {
    static const uint8_t zeros[SLG_TXN_ENTRY_SIZE] = {0};
    const size_t width = slg_index_entry_size(check->kind);
    assert(size % width == 0);
    if (size > 0 && may_be_padding(check, data, size)) {
        slg_index_check_feed_zeros(check, size);
        return SLG_OK;
    }
    for (size_t at = 0; at < size; at += width) {
        slg_status status;
        if (may_be_padding(check, data + at, width)) {
            slg_index_check_feed_zeros(check, width);
            continue;
        }
        if (check->zeros_from >= 0) {
            /* Not padding after all. One zero entry may be sound, in front; two never are. */
            const int64_t here = check->position;
            while (check->zeros_from < here) {
                check->position = check->zeros_from;
                status = check_entry(check, zeros, error);
                if (status != SLG_OK) {
                    return status;
                }
                check->used++;
                check->zeros_from += (int64_t)width;
            }
            check->position = here;
            check->zeros_from = -1;
        }
        status = check_entry(check, data + at, error);
        if (status != SLG_OK) {
            return status;
        }
        check->used++;
        check->position += (int64_t)width;
    }
    return SLG_OK;
}

slg_status slg_index_check_finish(const slg_index_check *check, int64_t file_size,
                                  slg_error *error) {
    const int64_t width = (int64_t)slg_index_entry_size(check->kind);
    if (check->kind == SLG_INDEX_KIND_TXN) {
        if (check->strict && file_size % width != 0) {
            return slg_fail(error, SLG_TXN_SIZE, file_size - file_size % width, width, file_size);
        }
        return SLG_OK;
    }
    if (file_size % width != 0) {
        return slg_fail(error, SLG_INDEX_SIZE, file_size - file_size % width, width, file_size);
    }
    if (check->zeros_from < 0) {
        return SLG_OK;
    }
    if (check->used > 0) {
        return slg_fail(error, SLG_INDEX_PADDED, check->zeros_from, check->zeros_from, file_size);
    }
    if (check->kind == SLG_INDEX_KIND_TIME && file_size == width) {
        return SLG_OK; /* timestamp 0 at the base offset */
    }
    return slg_fail(error, SLG_INDEX_UNWRITTEN, 0, 0, file_size);
}
