/* Decoding, columns and their export, in C alone and under the sanitizers. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <stdio.h>

#include "seglog/arrow.h"
#include "seglog/format.h"
#include "seglog/records.h"
#include "seglog/utf8.h"
#include "seglog/wire.h"

enum { ALL = (1 << SLG_COLUMNS) - 1, RECORDS = 300 };

static size_t put_varint(uint8_t *out, int64_t number) {
    uint64_t raw = ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
    size_t size = 0;
    for (; raw > 0x7f; raw >>= 7) {
        out[size++] = (uint8_t)(raw | 0x80);
    }
    out[size++] = (uint8_t)raw;
    return size;
}

/* Sizes of the i-th record's key and value: -1 null, and around the widths of the copies. */
static int64_t key_size(int64_t i) { return i % 19 - 1; }
static int64_t value_size(int64_t i) { return i % 7 == 0 ? -1 : (i * 37) % 700; }

static size_t put_bytes(uint8_t *out, int64_t size, uint8_t fill) {
    const size_t head = put_varint(out, size);
    if (size > 0) {
        memset(out + head, fill, (size_t)size);
    }
    return head + (size > 0 ? (size_t)size : 0);
}

static size_t put_record(uint8_t *out, int64_t i) {
    uint8_t body[2048];
    size_t size = 1;
    body[0] = 0;
    size += put_varint(body + size, i * 1000);
    size += put_varint(body + size, i);
    size += put_bytes(body + size, key_size(i), (uint8_t)('a' + i % 26));
    size += put_bytes(body + size, value_size(i), (uint8_t)i);
    size += put_varint(body + size, i % 3);
    for (int64_t header = 0; header < i % 3; header++) {
        size += put_bytes(body + size, 5, header ? 0xff : 'h');
        size += put_bytes(body + size, header ? -1 : 3, 'v');
    }
    const size_t head = put_varint(out, (int64_t)size);
    memcpy(out + head, body, size);
    return head + size;
}

static size_t put_batch(uint8_t *out) {
    size_t size = SLG_BATCH_HEADER_SIZE;
    memset(out, 0, size);
    for (int64_t i = 0; i < RECORDS; i++) {
        size += put_record(out + size, i);
    }
    slg_store_i32(out + SLG_BATCH_LENGTH_AT, (int32_t)(size - SLG_PREFIX_SIZE));
    out[SLG_BATCH_MAGIC_AT] = 2;
    slg_store_i32(out + SLG_BATCH_LAST_OFFSET_DELTA_AT, RECORDS - 1);
    slg_store_i32(out + SLG_BATCH_RECORD_COUNT_AT, RECORDS);
    slg_store_u32(
        out + SLG_BATCH_CRC_AT,
        slg_crc32c(SLG_CRC32C_PORTABLE, 0, out + SLG_BATCH_CRC_FROM, size - SLG_BATCH_CRC_FROM));
    return size;
}

static bool is_valid(const slg_binary *binary, int64_t row) {
    return binary->null_count == 0 || (binary->validity.data[row / 8] >> (row % 8) & 1) != 0;
}

static void check_binary(const slg_binary *binary, int64_t row, int64_t size, uint8_t fill) {
    const int32_t *offsets = (const int32_t *)(const void *)binary->offsets.data;
    CHECK_EQ(is_valid(binary, row), size >= 0);
    CHECK_EQ(offsets[row + 1] - offsets[row], size < 0 ? 0 : size);
    for (int32_t at = offsets[row]; at < offsets[row + 1]; at++) {
        CHECK_EQ(binary->bytes.data[at], fill);
    }
}

static void check_rows(const slg_columns *columns, int64_t first) {
    const int64_t *times = (const int64_t *)(const void *)columns->fixed[SLG_COLUMN_TIMESTAMP].data;
    const int32_t *lists = (const int32_t *)(const void *)columns->header_lists.data;
    CHECK_EQ(columns->first_offset, first);
    for (int64_t row = 0; row < columns->rows; row++) {
        const int64_t i = first + row;
        CHECK_EQ(times[row], i * 1000);
        check_binary(&columns->key, row, key_size(i), (uint8_t)('a' + i % 26));
        check_binary(&columns->value, row, value_size(i), (uint8_t)i);
        CHECK_EQ(lists[row + 1] - lists[row], i % 3);
        if (i % 3 > 0) {
            check_binary(&columns->header_key, lists[row], 5, 'h');
            check_binary(&columns->header_value, lists[row], 3, 'v');
        }
        if (i % 3 == 2) {
            CHECK_EQ(
                columns->header_key.bytes.data[((const int32_t *)(const void *)columns->header_key
                                                    .offsets.data)[lists[row] + 1]],
                0xef);
            CHECK(!is_valid(&columns->header_value, lists[row] + 1));
        }
    }
}

static void export_and_drop(slg_columns *columns) {
    slg_column order[SLG_COLUMNS];
    struct ArrowSchema schema;
    struct ArrowArray array;
    for (int i = 0; i < SLG_COLUMNS; i++) {
        order[i] = (slg_column)(SLG_COLUMNS - 1 - i);
    }
    CHECK(slg_export_schema(SLG_LAYOUT_KAFKA, order, SLG_COLUMNS, &schema));
    CHECK_EQ(schema.n_children, SLG_COLUMNS);
    CHECK(strcmp(schema.children[0]->name, "position") == 0);
    CHECK(slg_export_columns(columns, order, SLG_COLUMNS, &array));
    /* A consumer may move a child out; it outlives the parent. */
    struct ArrowArray moved = *array.children[3];
    array.children[3]->release = NULL;
    const int64_t length = array.length;
    schema.release(&schema);
    array.release(&array);
    CHECK(array.release == NULL && schema.release == NULL);
    CHECK_EQ(moved.length, length);
    moved.release(&moved);
}

static void test_decoder(int64_t max_rows, int64_t max_bytes, int64_t start, int64_t end) {
    uint8_t *data = malloc(RECORDS * 2048);
    CHECK(data != NULL);
    const size_t size = put_batch(data);
    FILE *file = tmpfile();
    CHECK(file != NULL && fwrite(data, 1, size, file) == size && fflush(file) == 0);
    int64_t live = 0;
    slg_pool *pool = slg_pool_new(2, &live);
    const slg_records_options options = {.flags = SLG_RECORDS_CRC,
                                         .kernel = SLG_CRC32C_PORTABLE,
                                         .start_offset = start,
                                         .end_offset = end,
                                         .base_offset = INT64_MIN,
                                         .max_rows = max_rows,
                                         .max_bytes = max_bytes};
    slg_records *records = slg_records_new(slg_source_of(fileno(file)), 0, (int64_t)size, &options);
    CHECK(pool != NULL && records != NULL);
    int64_t next = start;
    slg_status status = SLG_FULL;
    while (status == SLG_FULL) {
        slg_error error;
        slg_columns *columns = slg_pool_take(pool, ALL, SLG_LAYOUT_KAFKA);
        CHECK(columns != NULL);
        CHECK_EQ(live, 1);
        status = slg_records_next(records, columns, &error);
        CHECK(columns->rows <= max_rows && (columns->rows > 0 || status != SLG_FULL));
        if (columns->rows > 0) {
            check_rows(columns, next);
            next += columns->rows;
            export_and_drop(columns);
        }
        slg_columns_release(columns);
        CHECK_EQ(live, 0);
    }
    CHECK_EQ(status, SLG_END);
    CHECK_EQ(next, end < RECORDS ? end : RECORDS);
    slg_columns *kept = slg_pool_take(pool, ALL, SLG_LAYOUT_KAFKA);
    slg_records_free(records);
    slg_pool_close(pool);
    slg_columns_release(kept); /* the pool is gone but for this one */
    CHECK_EQ(live, 0);
    fclose(file);
    free(data);
}

/* Several sets at a time, twice over one file with one decoder, the second time from further. */
static void test_sets(int64_t nbytes) {
    uint8_t *data = malloc(RECORDS * 2048);
    CHECK(data != NULL);
    const size_t size = put_batch(data);
    FILE *file = tmpfile();
    CHECK(file != NULL && fwrite(data, 1, size, file) == size && fflush(file) == 0);
    int64_t live = 0;
    slg_pool *pool = slg_pool_new(2, &live);
    slg_records_options options = {.flags = SLG_RECORDS_CRC,
                                   .kernel = SLG_CRC32C_PORTABLE,
                                   .start_offset = 0,
                                   .end_offset = INT64_MAX,
                                   .base_offset = INT64_MIN,
                                   .max_rows = 7,
                                   .max_bytes = 1 << 20};
    slg_records *records = slg_records_new(slg_source_of(fileno(file)), 0, (int64_t)size, &options);
    CHECK(pool != NULL && records != NULL);
    slg_record_sets sets = {.shape = {.wanted = ALL}};
    for (int64_t start = 0; start <= 11; start += 11) {
        slg_status status = SLG_FULL;
        slg_error error;
        int64_t next = start;
        options.start_offset = start;
        slg_records_restart(records, slg_source_of(fileno(file)), 0, (int64_t)size, &options);
        while (status == SLG_FULL) {
            status = slg_records_fill(records, pool, nbytes, &sets, &error);
            CHECK(status != SLG_FULL || sets.nbytes >= nbytes);
            slg_columns *columns;
            while ((columns = slg_record_sets_pop(&sets)) != NULL) {
                check_rows(columns, next);
                next += columns->rows;
                slg_columns_release(columns);
            }
            CHECK_EQ(sets.nbytes, 0);
        }
        CHECK_EQ(status, SLG_END);
        CHECK_EQ(next, RECORDS);
        slg_records_restart(records, slg_source_of(fileno(file)), 0, (int64_t)size, &options);
        CHECK_EQ(slg_records_fill(records, pool, 1, &sets, &error), SLG_FULL);
        slg_record_sets_clear(&sets); /* nobody wants them */
        CHECK_EQ(live, 0);
    }
    slg_records_free(records);
    slg_pool_close(pool);
    fclose(file);
    free(data);
}

static void test_utf8(void) {
    uint64_t seed = 3;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[24];
        const size_t size = random_next(&seed) % sizeof bytes;
        for (size_t i = 0; i < size; i++) {
            const uint64_t number = random_next(&seed);
            bytes[i] = (uint8_t)(number % 3 == 0 ? number >> 8 : 0xc0 | number >> 8);
        }
        uint8_t *copy = exact_copy(bytes, size);
        uint8_t *into = malloc(slg_utf8_bound(size) + 1);
        CHECK(into != NULL);
        const size_t replaced = slg_utf8_replace(copy, size, into);
        CHECK(replaced <= slg_utf8_bound(size));
        /* What comes out is valid: nothing is left to replace. */
        uint8_t *again = malloc(slg_utf8_bound(replaced) + 1);
        CHECK(again != NULL);
        CHECK_EQ(slg_utf8_replace(into, replaced, again), replaced);
        CHECK(memcmp(into, again, replaced) == 0);
        free(again);
        free(into);
        free(copy);
    }
}

int main(void) {
    test_decoder(65536, 1 << 30, 0, INT64_MAX);
    test_decoder(1, 1 << 30, 0, INT64_MAX);
    test_decoder(7, 1 << 30, 13, 290);
    test_decoder(64, 500, 0, INT64_MAX);
    test_decoder(65536, 1, 250, 251);
    test_sets(1);
    test_sets(4000);
    test_sets(INT64_MAX);
    test_utf8();
    return 0;
}
