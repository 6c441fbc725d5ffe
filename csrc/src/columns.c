#if defined(__linux__)
#define _DEFAULT_SOURCE /* madvise, which strict C11 hides */
#endif
#include "seglog/columns.h"

#include <stdlib.h>
#include <sys/mman.h>

/*
 * No thread waits for another: in a process that was forked while a thread was in the list, that
 * thread never leaves it. A thread that finds the list busy allocates or frees instead.
 */
struct slg_pool {
    bool busy;         /* a thread is in the list: `free` and `kept` */
    slg_columns *free;
    size_t kept;
    size_t keep;    /* atomic: 0 once closed */
    size_t holders; /* atomic: the owner and every set in use */
    int64_t *live;
};

/* ---- buffers ------------------------------------------------------------------------------- */

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

static uint8_t *allocate(size_t size) {
    void *data = NULL;
    const size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (posix_memalign(&data, alignment, size) != 0) {
        return NULL;
    }
#if defined(MADV_HUGEPAGE)
    if (size >= HUGE_PAGE) {
        /* One fault per 2 MiB instead of 512. Advice only: its failure changes nothing. */
        (void)madvise(data, size & ~(size_t)(HUGE_PAGE - 1), MADV_HUGEPAGE);
    }
#endif
    return data;
}

bool slg_buffer_reserve(slg_buffer *buffer, size_t used, size_t capacity) {
    if (capacity <= buffer->capacity && buffer->data != NULL) {
        return true;
    }
    size_t wanted = buffer->capacity * 2;
    if (wanted < capacity) {
        wanted = capacity;
    }
    if (wanted < 4096) {
        wanted = 4096;
    }
    if (wanted > HUGE_PAGE / 2) {
        /* Whole huge pages: 450 faults for 1.8 MB cost as much as decoding into it. */
        wanted = (wanted + SLG_COLUMNS_SLACK + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE -
                 SLG_COLUMNS_SLACK;
    }
    uint8_t *data = allocate(wanted + SLG_COLUMNS_SLACK);
    if (data == NULL) {
        return false;
    }
    if (used > 0) {
        memcpy(data, buffer->data, used);
    }
    free(buffer->data);
    *buffer = (slg_buffer){data, wanted};
    return true;
}

static bool reserve_binary(slg_binary *binary, int64_t rows, int64_t more_rows,
                           int64_t more_bytes) {
    const size_t offsets = (size_t)(rows + 1) * sizeof(int32_t);
    const size_t used = binary->offsets.data == NULL ? 0 : offsets;
    const size_t more = (size_t)more_rows * sizeof(int32_t);
    if (!slg_buffer_reserve(&binary->offsets, used, offsets + more) ||
        !slg_buffer_reserve(&binary->bytes, (size_t)binary->used,
                            (size_t)(binary->used + more_bytes))) {
        return false;
    }
    if (rows == 0) {
        memset(binary->offsets.data, 0, sizeof(int32_t));
    }
    return true;
}

static bool reserve_fixed(slg_columns *columns, int64_t rows) {
    for (unsigned i = 0; i < SLG_COLUMNS; i++) {
        if (!slg_columns_want(columns, (slg_column)i)) {
            continue;
        }
        const bool bits = i == SLG_COLUMN_IS_TRANSACTIONAL || i == SLG_COLUMN_IS_CONTROL;
        const size_t width = slg_column_width(columns->layout, (slg_column)i);
        if (width == 0 && !bits) {
            continue;
        }
        const size_t used = bits ? (size_t)(columns->rows + 7) / 8 : (size_t)columns->rows * width;
        const size_t size = bits ? (size_t)(rows + 7) / 8 : (size_t)rows * width;
        if (!slg_buffer_reserve(&columns->fixed[i], used, size)) {
            return false;
        }
    }
    return true;
}

bool slg_columns_reserve(slg_columns *columns, int64_t rows, int64_t key, int64_t value) {
    if (!reserve_fixed(columns, columns->rows + rows)) {
        return false;
    }
    if (slg_columns_want(columns, SLG_COLUMN_KEY) &&
        !reserve_binary(&columns->key, columns->rows, rows, key)) {
        return false;
    }
    if (slg_columns_want(columns, SLG_COLUMN_VALUE) &&
        !reserve_binary(&columns->value, columns->rows, rows, value)) {
        return false;
    }
    if (slg_columns_want(columns, SLG_COLUMN_HEADERS)) {
        const size_t offsets = (size_t)(columns->rows + 1) * sizeof(int32_t);
        const size_t used = columns->header_lists.data == NULL ? 0 : offsets;
        const size_t more = (size_t)rows * sizeof(int32_t);
        if (!slg_buffer_reserve(&columns->header_lists, used, offsets + more)) {
            return false;
        }
        if (columns->rows == 0) {
            memset(columns->header_lists.data, 0, sizeof(int32_t));
            /* Exported even if no row has a header: Arrow needs at least one offset. */
            return slg_columns_reserve_headers(columns, 0, 0, 0);
        }
    }
    return true;
}

bool slg_columns_reserve_headers(slg_columns *columns, int64_t count, int64_t key, int64_t value) {
    return reserve_binary(&columns->header_key, columns->headers, count, key) &&
           reserve_binary(&columns->header_value, columns->headers, count, value);
}

/* ---- bitmaps ------------------------------------------------------------------------------- */

void slg_bits_fill(uint8_t *bits, int64_t from, int64_t count, bool bit) {
    const int64_t to = from + count;
    while (from < to && (from & 7) != 0) {
        const uint8_t mask = (uint8_t)(1U << (from & 7));
        bits[from >> 3] = (uint8_t)(bit ? bits[from >> 3] | mask : bits[from >> 3] & ~mask);
        from++;
    }
    if (from < to) {
        /* Bits after the last row are never read; the next fill overwrites them. */
        memset(bits + (from >> 3), bit ? 0xff : 0, (size_t)((to - from + 7) >> 3));
    }
}

static int64_t count_nulls(const uint8_t *valid, int64_t count) {
    int64_t nulls = count;
    for (int64_t i = 0; i < count; i++) {
        nulls -= valid[i];
    }
    return nulls;
}

bool slg_binary_cover(slg_binary *binary, int64_t from, int64_t count) {
    const bool first = binary->null_count == 0;
    const size_t used = first ? 0 : (size_t)(from + 7) / 8;
    if (!slg_buffer_reserve(&binary->validity, used, (size_t)(from + count + 7) / 8)) {
        return false;
    }
    slg_bits_fill(binary->validity.data, first ? 0 : from, first ? from + count : count, true);
    return true;
}

bool slg_binary_validate(slg_binary *binary, int64_t from, int64_t count, const uint8_t *valid) {
    const int64_t nulls = count_nulls(valid, count);
    if (nulls == 0 && binary->null_count == 0) {
        return true;
    }
    if (!slg_binary_cover(binary, from, count)) {
        return false;
    }
    uint8_t *bits = binary->validity.data;
    binary->null_count += nulls;
    if (nulls == count) {
        slg_bits_fill(bits, from, count, false);
    } else if (nulls > 0) {
        for (int64_t i = 0; i < count; i++) {
            bits[(from + i) >> 3] &= (uint8_t)~((1U - valid[i]) << ((from + i) & 7));
        }
    }
    return true;
}

/* ---- sets and their pool ------------------------------------------------------------------- */

static void free_binary(slg_binary *binary) {
    free(binary->offsets.data);
    free(binary->bytes.data);
    free(binary->validity.data);
}

static void free_columns(slg_columns *columns) {
    for (unsigned i = 0; i < SLG_COLUMNS; i++) {
        free(columns->fixed[i].data);
    }
    free_binary(&columns->key);
    free_binary(&columns->value);
    free_binary(&columns->header_key);
    free_binary(&columns->header_value);
    free_binary(&columns->topic);
    free(columns->partition.data);
    free(columns->header_lists.data);
    free(columns->header_validity.data);
    free(columns);
}

slg_pool *slg_pool_new(size_t keep, int64_t *live) {
    slg_pool *pool = calloc(1, sizeof *pool);
    if (pool != NULL) {
        pool->keep = keep;
        pool->holders = 1;
        pool->live = live;
    }
    return pool;
}

static bool enter(slg_pool *pool) { return !__atomic_test_and_set(&pool->busy, __ATOMIC_ACQUIRE); }

static void leave(slg_pool *pool) { __atomic_clear(&pool->busy, __ATOMIC_RELEASE); }

static void free_all(slg_columns *first) {
    while (first != NULL) {
        slg_columns *columns = first;
        first = columns->next;
        free_columns(columns);
    }
}

/* Drops one holder; the last one frees the pool. */
static void drop_holder(slg_pool *pool) {
    if (__atomic_sub_fetch(&pool->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        free_all(pool->free);
        free(pool);
    }
}

void slg_pool_close(slg_pool *pool) {
    slg_columns *kept = NULL;
    __atomic_store_n(&pool->keep, 0, __ATOMIC_RELAXED);
    if (enter(pool)) {
        kept = pool->free;
        pool->free = NULL;
        pool->kept = 0;
        leave(pool);
    }
    free_all(kept);
    drop_holder(pool);
}

static void empty(slg_binary *binary) { binary->used = binary->null_count = 0; }

slg_columns *slg_pool_take(slg_pool *pool, uint32_t wanted, slg_layout layout) {
    slg_columns *columns = NULL;
    if (enter(pool)) {
        columns = pool->free;
        if (columns != NULL) {
            pool->free = columns->next;
            pool->kept--;
        }
        leave(pool);
    }
    if (columns == NULL && (columns = calloc(1, sizeof *columns)) == NULL) {
        return NULL;
    }
    __atomic_fetch_add(&pool->holders, 1, __ATOMIC_RELAXED);
    if (pool->live != NULL) {
        __atomic_fetch_add(pool->live, 1, __ATOMIC_RELAXED);
    }
    columns->wanted = wanted;
    columns->layout = layout;
    columns->rows = columns->headers = columns->header_nulls = 0;
    empty(&columns->key);
    empty(&columns->value);
    empty(&columns->header_key);
    empty(&columns->header_value);
    columns->pool = pool;
    columns->references = 1;
    return columns;
}

void slg_columns_retain(slg_columns *columns) {
    __atomic_fetch_add(&columns->references, 1, __ATOMIC_RELAXED);
}

void slg_columns_release(slg_columns *columns) {
    if (__atomic_sub_fetch(&columns->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    slg_pool *pool = columns->pool;
    bool is_kept = false;
    if (pool->live != NULL) {
        __atomic_fetch_sub(pool->live, 1, __ATOMIC_RELAXED);
    }
    if (enter(pool)) {
        is_kept = pool->kept < __atomic_load_n(&pool->keep, __ATOMIC_RELAXED);
        if (is_kept) {
            columns->next = pool->free;
            pool->free = columns;
            pool->kept++;
        }
        leave(pool);
    }
    if (!is_kept) {
        free_columns(columns);
    }
    drop_holder(pool);
}

/* ---- sizes --------------------------------------------------------------------------------- */

static int64_t binary_nbytes(const slg_binary *binary, int64_t rows) {
    return binary->used + (rows + 1) * (int64_t)sizeof(int32_t) +
           (binary->null_count > 0 ? (rows + 7) / 8 : 0);
}

int64_t slg_columns_nbytes(const slg_columns *columns) {
    int64_t total = 0;
    for (unsigned i = 0; i < SLG_COLUMNS; i++) {
        if (!slg_columns_want(columns, (slg_column)i)) {
            continue;
        }
        total += columns->rows * (int64_t)slg_column_width(columns->layout, (slg_column)i);
        if (i == SLG_COLUMN_IS_TRANSACTIONAL || i == SLG_COLUMN_IS_CONTROL) {
            total += (columns->rows + 7) / 8;
        }
    }
    if (slg_columns_want(columns, SLG_COLUMN_KEY)) {
        total += binary_nbytes(&columns->key, columns->rows);
    }
    if (slg_columns_want(columns, SLG_COLUMN_VALUE)) {
        total += binary_nbytes(&columns->value, columns->rows);
    }
    if (slg_columns_want(columns, SLG_COLUMN_TOPIC)) {
        total += binary_nbytes(&columns->topic, columns->rows);
    }
    if (slg_columns_want(columns, SLG_COLUMN_PARTITION)) {
        total += columns->rows * (int64_t)sizeof(int32_t);
    }
    if (slg_columns_want(columns, SLG_COLUMN_HEADERS)) {
        total += (columns->rows + 1) * (int64_t)sizeof(int32_t) +
                 (columns->header_nulls > 0 ? (columns->rows + 7) / 8 : 0) +
                 binary_nbytes(&columns->header_key, columns->headers) +
                 binary_nbytes(&columns->header_value, columns->headers);
    }
    return total;
}
