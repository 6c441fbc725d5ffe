/*
 * Columns into batches: whatever the offsets and views say, nothing outside of their buffers is
 * read; what comes out are batches with right checksums, and however small the memory is that the
 * encoder gets, piece by piece, they are the same.
 */
#include "fuzz.h"
#include "seglog/batch.h"
#include "seglog/encode_columns.h"
#include "seglog/format.h"
#include "seglog/wire.h"

enum { ROWS_MAX = 24, BYTES_MAX = 512, OUT_MAX = 1 << 20 };

/* One Arrow array with memory that has not a byte to spare. */
typedef struct column {
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[4];
    void *owned[4];
    struct ArrowSchema *schemas[2];
    struct ArrowArray *arrays[2];
} column;

static void *own(column *c, int n, size_t size) {
    c->owned[n] = malloc(size > 0 ? size : 1);
    REQUIRE(c->owned[n] != NULL);
    c->buffers[n] = c->owned[n];
    return c->owned[n];
}

static void take(fuzz_input *input, uint8_t *into, size_t size) {
    for (size_t i = 0; i < size; i++) {
        into[i] = fuzz_byte(input);
    }
}

/* Mostly rising offsets, at times any; the last one, which C trusts, is the size of the data. */
static int64_t offsets_of(fuzz_input *input, int64_t *offsets, int64_t rows, int64_t most) {
    const bool wild = fuzz_byte(input) % 4 == 0;
    offsets[0] = 0;
    for (int64_t i = 1; i <= rows; i++) {
        const int64_t step = fuzz_byte(input) % 16;
        offsets[i] = wild && step == 0 ? (int64_t)fuzz_number(input) : offsets[i - 1];
        offsets[i] = offsets[i] < most - step && offsets[i] >= 0 ? offsets[i] + step : offsets[i];
    }
    if (offsets[rows] < 0 || offsets[rows] > most) {
        offsets[rows] = most;
    }
    return offsets[rows];
}

static void store_offsets(column *c, const int64_t *offsets, int64_t count, bool is_large) {
    uint8_t *into = own(c, 1, (size_t)count * (is_large ? 8 : 4));
    for (int64_t i = 0; i < count; i++) {
        const int32_t narrow = (int32_t)offsets[i];
        memcpy(into + i * (is_large ? 8 : 4), is_large ? (const void *)&offsets[i] : &narrow,
               is_large ? 8 : 4);
    }
}

static void fill_views(fuzz_input *input, column *c, int64_t rows) {
    const size_t size = fuzz_byte(input);
    uint8_t *views = own(c, 1, (size_t)rows * 16);
    take(input, own(c, 2, size), size);
    int64_t *sizes = own(c, 3, sizeof *sizes);
    *sizes = (int64_t)size;
    for (int64_t row = 0; row < rows; row++) {
        const int32_t fields[4] = {(int8_t)fuzz_byte(input) % 40, (int32_t)fuzz_byte(input),
                                   (int8_t)fuzz_byte(input) / 100, fuzz_byte(input)};
        memcpy(views + row * 16, fields, sizeof fields);
    }
    c->array.n_buffers = 4;
}

static void fill_binary(fuzz_input *input, column *c, int64_t rows) {
    static const char *const FORMATS[] = {"z", "U", "vz", "w:3", "n", "u", "Z", "l"};
    const unsigned kind = fuzz_byte(input) % 8;
    int64_t offsets[BYTES_MAX + 1];
    c->schema.format = FORMATS[kind];
    c->array = (struct ArrowArray){.length = rows, .null_count = -1, .n_buffers = 3};
    c->array.buffers = c->buffers;
    if (fuzz_byte(input) % 2 == 0) {
        take(input, own(c, 0, (size_t)(rows + 7) / 8), (size_t)(rows + 7) / 8);
    }
    if (kind == 2) {
        fill_views(input, c, rows);
    } else if (kind == 3 || kind == 7) {
        const size_t size = (size_t)rows * (kind == 3 ? 3 : 8);
        take(input, own(c, 1, size), size);
    } else if (kind != 4) {
        const size_t size = (size_t)offsets_of(input, offsets, rows, BYTES_MAX);
        store_offsets(c, offsets, rows + 1, kind == 1 || kind == 6);
        take(input, own(c, 2, size), size);
    }
}

static void fill_times(fuzz_input *input, column *c, int64_t rows) {
    static const char *const FORMATS[] = {"l", "tsm:UTC", "tss:", "tsu:", "tsn:", "i"};
    c->schema.format = FORMATS[fuzz_byte(input) % 6];
    c->array = (struct ArrowArray){.length = rows, .n_buffers = 2, .buffers = c->buffers};
    int64_t *times = own(c, 1, (size_t)rows * 8);
    const bool wild = fuzz_byte(input) % 4 == 0;
    for (int64_t row = 0; row < rows; row++) {
        times[row] = wild ? (int64_t)fuzz_number(input) : fuzz_byte(input);
    }
}

/* A list (or map) of pairs: four columns, the lists themselves, the pairs, keys and values. */
static void fill_headers(fuzz_input *input, column c[4], int64_t rows) {
    static const char *const FORMATS[] = {"+l", "+L", "+m", "+w:2"};
    const unsigned kind = fuzz_byte(input) % 4;
    int64_t offsets[ROWS_MAX + 1];
    const int64_t items = offsets_of(input, offsets, rows, BYTES_MAX / 16);
    c[0].schema.format = FORMATS[kind];
    c[0].array = (struct ArrowArray){.length = rows, .n_buffers = 2, .buffers = c[0].buffers};
    store_offsets(&c[0], offsets, rows + 1, kind == 1);
    c[1].schema.format = "+s";
    c[1].array = (struct ArrowArray){
        .length = items - (fuzz_byte(input) % 16 == 1), .n_buffers = 1, .buffers = c[1].buffers};
    fill_binary(input, &c[2], items);
    fill_binary(input, &c[3], items);
    c[2].schema.name = "key";
    c[3].schema.name = "value";
    for (int i = 0; i < 2; i++) {
        c[1].schemas[i] = &c[2 + i].schema;
        c[1].arrays[i] = &c[2 + i].array;
    }
    c[0].schemas[0] = &c[1].schema;
    c[0].arrays[0] = &c[1].array;
    for (int i = 0; i < 2; i++) {
        c[i].schema.n_children = c[i].array.n_children = i + 1;
        c[i].schema.children = c[i].schemas;
        c[i].array.children = c[i].arrays;
    }
}

/* Everything that comes out, with memory that grows by `step` whenever it is short. */
static size_t encode(slg_encoder encoder, slg_input input, size_t step, uint8_t *all,
                     int64_t *records) {
    uint8_t *out = NULL, header[SLG_BATCH_HEADER_SIZE];
    slg_error found, *error = &found;
    size_t size = 0;
    for (;;) {
        const slg_status status = slg_encoder_feed(&encoder, &input, error);
        if (status == SLG_MORE) {
            const size_t capacity = (size_t)error->expected + step;
            uint8_t *next = malloc(capacity);
            REQUIRE(next != NULL && capacity < OUT_MAX - size);
            const uint8_t *whole = out;
            const size_t used = encoder.used;
            slg_encoder_move(&encoder, next, capacity);
            memcpy(all + size, whole == NULL ? next : whole, used);
            size += used;
            free(out);
            out = next;
            continue;
        }
        const bool is_over = status != SLG_CODEC;
        const uint8_t *payload = out == NULL ? NULL : encoder.batch.data + SLG_BATCH_HEADER_SIZE;
        const size_t payload_size = encoder.batch.size - SLG_BATCH_HEADER_SIZE;
        const bool has_codec = (encoder.fields.attributes & SLG_ATTRIBUTE_CODEC) != 0;
        if (slg_encoder_close(&encoder, header, payload, payload_size) && has_codec) {
            memcpy(all + size, header, sizeof header);
            memcpy(all + size + sizeof header, payload, payload_size);
            size += sizeof header + payload_size;
        }
        if (is_over) {
            REQUIRE((status == SLG_OK) == (input.row == input.rows));
            REQUIRE(status == SLG_OK || error->position == input.row);
            REQUIRE(encoder.records == input.row);
            *records = encoder.records;
            break;
        }
    }
    if (encoder.used > 0) {
        memcpy(all + size, out, encoder.used);
        size += encoder.used;
    }
    free(out);
    return size;
}

static void check_batches(const uint8_t *all, size_t size, int64_t records) {
    slg_batch_scan scan = {.checks = SLG_SCAN_CRC | SLG_SCAN_STRICT,
                           .kernel = SLG_CRC32C_PORTABLE,
                           .end = (int64_t)size,
                           .batches_left = INT64_MAX};
    slg_error error;
    slg_batch_scan_init(&scan);
    REQUIRE(slg_batch_scan_memory(&scan, all, size, &error) == SLG_END);
    REQUIRE(scan.record_count == records);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint8_t one[OUT_MAX], two[OUT_MAX];
    column columns[7] = {{.schema = {.format = NULL}}};
    fuzz_input input = {data, size};
    slg_input rows = {.rows = fuzz_byte(&input) % ROWS_MAX};
    slg_encode_fields fields = {.attributes = (int16_t)(fuzz_byte(&input) & 0x1c),
                                .producer_id = 5,
                                .base_sequence = INT32_MAX - 3};
    slg_encoder encoder;
    slg_error error = {0};
    fields.attributes = (int16_t)(fields.attributes & 4 ? fields.attributes & ~3 : 0);
    slg_encoder_init(&encoder, &fields, fuzz_byte(&input), SLG_CRC32C_PORTABLE);
    encoder.batch.max_size = 1 + fuzz_byte(&input) * 4;
    encoder.batch.max_records = 1 + fuzz_byte(&input) % 8;
    const size_t step = fuzz_byte(&input);
    fill_binary(&input, &columns[0], rows.rows);
    fill_binary(&input, &columns[1], rows.rows);
    fill_times(&input, &columns[2], rows.rows);
    fill_headers(&input, &columns[3], rows.rows);
    bool fits = true;
    for (int i = 0; i < 4 && fits; i++) {
        fits = slg_input_arrow(&rows, (slg_input_column)i, &columns[i].schema, &columns[i].array, 0,
                               &error) == SLG_OK;
    }
    int32_t selection[ROWS_MAX];
    if (fits && (fuzz_byte(&input) & 1)) { /* the rows from the last on, one of them any number */
        rows.selection = selection;
        rows.selectable = rows.rows;
        for (int64_t i = 0; i < rows.rows; i++) {
            selection[i] = (int32_t)(rows.rows - 1 - i);
        }
        if (rows.rows > 0) {
            selection[fuzz_byte(&input) % rows.rows] = (int8_t)fuzz_byte(&input);
        }
    }
    if (fits) {
        int64_t records;
        const size_t first = encode(encoder, rows, step, one, &records);
        const size_t again = encode(encoder, rows, 8192, two, &records);
        REQUIRE(first == again && memcmp(one, two, first) == 0);
        check_batches(one, first, records);
    }
    for (int i = 0; i < 7; i++) {
        for (int n = 0; n < 4; n++) {
            free(columns[i].owned[n]);
        }
    }
    return 0;
}
