/*
 * Decoding of log bytes into columns: every buffer holds what its offsets say, a row limit cuts
 * the same rows elsewhere and changes nothing, and the decoder always comes to an end.
 *
 * C knows no codec: a compressed payload is handed back as it is, one more hostile payload.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"
#include "seglog/records.h"

enum { CALLS_MAX = 1 << 20 };

typedef struct outcome {
    slg_status status;
    int64_t position;
    int64_t rows;
    int64_t headers;
    uint64_t digest; /* over the values, in order, however they were cut into sets */
} outcome;

static void digest_bytes(outcome *out, const uint8_t *data, int64_t size) {
    for (int64_t i = 0; i < size; i++) {
        out->digest = (out->digest ^ data[i]) * UINT64_C(0x100000001b3);
    }
}

/* Arrow's offsets begin at 0, never fall and end at the bytes in use. */
static void check_binary(outcome *out, const slg_binary *binary, int64_t rows) {
    int32_t before = 0;
    REQUIRE(binary->used >= 0 && (uint64_t)binary->used <= binary->bytes.capacity);
    if (rows > 0) {
        REQUIRE(binary->null_count >= 0 && binary->null_count <= rows);
        for (int64_t row = 0; row <= rows; row++) {
            int32_t at;
            memcpy(&at, binary->offsets.data + (size_t)row * sizeof at, sizeof at);
            REQUIRE(row == 0 ? at == 0 : at >= before);
            before = at;
        }
        REQUIRE(before == binary->used);
        digest_bytes(out, binary->bytes.data, binary->used);
    }
    if (binary->null_count > 0) {
        int64_t nulls = 0;
        for (int64_t row = 0; row < rows; row++) {
            nulls += (binary->validity.data[row >> 3] >> (row & 7) & 1) == 0;
        }
        REQUIRE(nulls == binary->null_count);
    }
}

static void check_columns(outcome *out, const slg_columns *columns) {
    static const size_t widths[SLG_COLUMNS] = {8, 8, 1, 0, 0, 0, 8, 2, 4, 4, 0, 0, 8};
    REQUIRE(columns->rows >= 0);
    for (int column = 0; column < SLG_COLUMNS; column++) {
        if (slg_columns_want(columns, (slg_column)column) && widths[column] > 0) {
            const size_t used = (size_t)columns->rows * widths[column];
            REQUIRE(used <= columns->fixed[column].capacity);
            /* Of one column only: rows of several would come in another order per cut. */
            if (column == SLG_COLUMN_OFFSET && used > 0) {
                digest_bytes(out, columns->fixed[column].data, (int64_t)used);
            }
        }
    }
    outcome apart = {.digest = 0};
    if (slg_columns_want(columns, SLG_COLUMN_KEY)) {
        check_binary(&apart, &columns->key, columns->rows);
    }
    if (slg_columns_want(columns, SLG_COLUMN_VALUE)) {
        check_binary(&apart, &columns->value, columns->rows);
    }
    if (slg_columns_want(columns, SLG_COLUMN_HEADERS) && columns->rows > 0) {
        int32_t last;
        memcpy(&last, columns->header_lists.data + (size_t)columns->rows * sizeof last,
               sizeof last);
        REQUIRE(last == columns->headers);
        check_binary(&apart, &columns->header_key, columns->headers);
        check_binary(&apart, &columns->header_value, columns->headers);
        REQUIRE(columns->header_key.null_count == 0 || columns->headers == 0);
    }
    out->rows += columns->rows;
    out->headers += columns->headers;
}

static outcome decode(int fd, size_t size, slg_records_options options, uint32_t wanted) {
    outcome out = {.digest = UINT64_C(0xcbf29ce484222325)};
    slg_error error = {0};
    uint8_t *payload = NULL;
    int64_t live = 0;
    slg_pool *pool = slg_pool_new(2, &live);
    slg_records *records = slg_records_new(slg_source_of(fd), 0, (int64_t)size, &options);
    slg_columns *columns = slg_pool_take(pool, wanted, SLG_LAYOUT_KAFKA);
    REQUIRE(pool != NULL && records != NULL && columns != NULL);
    for (int calls = 0;; calls++) {
        REQUIRE(calls < CALLS_MAX);
        out.status = slg_records_next(records, columns, &error);
        if (out.status == SLG_CODEC) {
            const slg_payload given = slg_records_payload(records);
            REQUIRE(given.codec >= 1 && given.codec <= SLG_CODEC_MAX && given.size <= size);
            free(payload);
            payload = calloc(1, given.size + SLG_RECORDS_SLACK);
            REQUIRE(payload != NULL);
            memcpy(payload, given.data, given.size);
            slg_records_resume(records, payload, given.size);
            continue;
        }
        REQUIRE(out.status != SLG_OK && out.status != SLG_MORE);
        REQUIRE(columns->rows <= options.max_rows);
        check_columns(&out, columns);
        slg_columns_release(columns);
        if (out.status != SLG_FULL) {
            break;
        }
        columns = slg_pool_take(pool, wanted, SLG_LAYOUT_KAFKA);
        REQUIRE(columns != NULL);
    }
    out.position = slg_records_position(records);
    REQUIRE(out.position >= 0 && out.position <= (int64_t)size);
    REQUIRE(out.status < SLG_BATCH_LENGTH ||
            (error.status == out.status && error.position >= 0 && error.position <= (int64_t)size));
    slg_records_free(records);
    slg_pool_close(pool);
    REQUIRE(live == 0);
    free(payload);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const slg_aborted aborted[] = {{0, 0, 40}, {1, 10, 20}, {2, 5, INT64_MAX}};
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const uint8_t few = fuzz_byte(&input);
    const uint32_t all = (1U << SLG_COLUMNS) - 1;
    const uint32_t wanted = (steer & 1U) ? all : (uint32_t)fuzz_number(&input) & all;
    slg_records_options options = {
        .flags = (steer & 2U ? SLG_RECORDS_CRC : 0) | (steer & 4U ? SLG_RECORDS_CONTROL : 0),
        .kernel = SLG_CRC32C_PORTABLE,
        .start_offset = INT64_MIN,
        .end_offset = INT64_MAX,
        .max_rows = 1 << 20,
        .max_bytes = 1 << 30,
        .aborted = aborted,
        .aborted_count = (steer & 8U) ? sizeof aborted / sizeof aborted[0] : 0,
    };
    if (steer & 16U) {
        options.start_offset = (int64_t)fuzz_number(&input);
        options.end_offset = (int64_t)fuzz_number(&input);
    }
    uint8_t *exact = fuzz_exact(input.data, input.size);
    if ((steer & 32U) == 0) {
        repair_crcs(exact, input.size);
    }
    const int fd = file_of(exact, input.size);
    const outcome whole = decode(fd, input.size, options, wanted);
    options.max_rows = 1 + few % 16;
    options.max_bytes = 1 + few * 8;
    const outcome cut = decode(fd, input.size, options, wanted);
    REQUIRE(whole.status == cut.status && whole.position == cut.position);
    REQUIRE(whole.rows == cut.rows && whole.headers == cut.headers);
    REQUIRE(whole.digest == cut.digest);
    free(exact);
    return 0;
}
