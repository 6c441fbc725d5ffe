/* MD5 by RFC 1321 and by its lanes, the offset map, and records whose keys fill several blocks. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS under -std=c11 */
#include "seglog/clean.h"

#include <sys/mman.h>
#include <unistd.h>

#include "md5_internal.h"
#include "seglog/encode.h"
#include "seglog/format.h"

#include "check.h"

static void check_digest(const char *text, const char *wanted) {
    uint8_t digest[SLG_MD5_SIZE];
    char hex[2 * SLG_MD5_SIZE + 1];
    slg_md5((const uint8_t *)text, strlen(text), digest);
    for (unsigned i = 0; i < SLG_MD5_SIZE; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    CHECK(strcmp(hex, wanted) == 0);
}

static void test_md5(void) {
    check_digest("", "d41d8cd98f00b204e9800998ecf8427e");
    check_digest("a", "0cc175b9c0f1b6a831c399e269772661");
    check_digest("message digest", "f96b697d7cb7938d525a2f31aaf161d0");
    check_digest("1234567890123456789012345678901234567890"
                 "1234567890123456789012345678901234567890",
                 "57edf4a22be3c955ac49da2e2107b67a");
    uint8_t digest[SLG_MD5_SIZE], other[SLG_MD5_SIZE];
    slg_md5(NULL, 0, digest);
    slg_md5((const uint8_t *)"", 0, other);
    CHECK(memcmp(digest, other, sizeof digest) == 0);
}

/* Messages that end where their memory ends. */
static void check_lanes(uint8_t *end, uint32_t size_max, uint64_t *state) {
    const uint8_t *data[SLG_MD5_LANES];
    uint32_t sizes[SLG_MD5_LANES];
    uint8_t digests[SLG_MD5_LANES][SLG_MD5_SIZE], others[SLG_MD5_LANES][SLG_MD5_SIZE];
    for (unsigned lane = 0; lane < SLG_MD5_LANES; lane++) {
        sizes[lane] = (uint32_t)(random_next(state) % (size_max + 1));
        data[lane] = sizes[lane] == 0 ? NULL : end - sizes[lane];
    }
    for (uint32_t i = 1; i <= size_max; i++) {
        end[-(ptrdiff_t)i] = (uint8_t)random_next(state);
    }
    slg_md5_lanes(data, sizes, digests);
    slg_md5_lanes_portable(data, sizes, others);
    CHECK(memcmp(digests, others, sizeof digests) == 0);
    for (unsigned lane = 0; lane < SLG_MD5_LANES; lane++) {
        uint8_t digest[SLG_MD5_SIZE];
        slg_md5(data[lane], sizes[lane], digest);
        CHECK(memcmp(digest, digests[lane], sizeof digest) == 0);
    }
}

static void test_lanes(void) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t state = 5;
    uint8_t *pages =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    for (unsigned round = 0; round < 200; round++) {
        check_lanes(pages + page, SLG_MD5_SHORT_MAX, &state);
        check_lanes(pages + page, 31, &state); /* in half of a block */
        check_lanes(pages + page, round % (SLG_MD5_SHORT_MAX + 1), &state);
    }
    munmap(pages, 2 * page);
}

/* `count` records with keys of one byte, number % keys, in memory of exactly their size. */
static uint8_t *batch_of(int count, int keys, size_t *size) {
    slg_encode_batch batch;
    slg_error error;
    uint8_t *room = malloc(1 << 16), *headers;
    slg_encode_open(&batch, room, 1 << 16, 0);
    for (int i = 0; i < count; i++) {
        const uint8_t key = (uint8_t)(i % keys);
        const slg_encode_record record = {
            .offset = i, .timestamp = 7, .key = &key, .key_size = 1, .value_size = i % 3 ? 0 : -1};
        CHECK_EQ(slg_encode_add(&batch, &record, &headers, &error), SLG_OK);
    }
    *size = batch.size - SLG_BATCH_HEADER_SIZE;
    uint8_t *exact = malloc(*size);
    memcpy(exact, room + SLG_BATCH_HEADER_SIZE, *size);
    free(room);
    return exact;
}

static void test_records(void) {
    enum { COUNT = 100, KEYS = 40 };
    uint8_t slots[64 * SLG_OFFSET_SLOT_SIZE] = {0};
    slg_kept kept[COUNT];
    slg_offset_map map = {.slots = slots, .slot_count = 64, .latest_offset = -1};
    slg_batch header = {.record_count = COUNT};
    slg_record_walk walk;
    slg_mapped mapped;
    slg_retained found;
    size_t size;
    uint8_t *records = batch_of(COUNT, KEYS, &size);
    slg_record_walk_init(&walk, &header, records, size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_map_records(&map, &walk, 0, 30, &mapped), SLG_NO_MORE);
    CHECK(mapped.is_full && mapped.read == 30 && map.entries == 30 && map.latest_offset == 29);
    slg_record_walk_init(&walk, &header, records, size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_map_records(&map, &walk, 0, 64, &mapped), SLG_NO_MORE);
    CHECK(!mapped.is_full && mapped.read == COUNT && map.entries == KEYS);
    const slg_retention rules = {.map = &map, .keeps_tombstones = true};
    slg_record_walk_init(&walk, &header, records, size, SLG_RECORDS_BUFFER, NULL);
    CHECK_EQ(slg_retain_records(&rules, &walk, kept, &found), SLG_NO_MORE);
    CHECK_EQ(found.read, COUNT);
    CHECK_EQ(found.kept, KEYS);
    CHECK_EQ(found.max_offset, COUNT - 1);
    size_t at = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        CHECK_EQ(kept[i].number, COUNT - KEYS + i);
        CHECK(kept[i].at > at && kept[i].at < size);
        at = kept[i].at;
    }
    /* Any end of the bytes is a refusal, and nothing behind them is read. */
    for (size_t cut = 0; cut < size; cut += 13) {
        uint8_t *part = malloc(cut + (cut == 0));
        memcpy(part, records, cut);
        slg_record_walk_init(&walk, &header, part, cut, SLG_RECORDS_BUFFER, NULL);
        CHECK(slg_retain_records(&rules, &walk, kept, &found) != SLG_NO_MORE);
        CHECK(found.read < COUNT && (size_t)found.read <= slg_records_max(cut));
        free(part);
    }
    free(records);
}

static void test_full_map(void) {
    uint8_t slots[SLG_OFFSET_SLOT_SIZE] = {0};
    slg_offset_map map = {.slots = slots, .slot_count = 1, .latest_offset = -1};
    slg_offset_key key = {.data = (const uint8_t *)"a", .size = 1, .offset = 4};
    slg_offset_map_hash(&map, &key, 1);
    CHECK(slg_offset_map_put(&map, &key) && !slg_offset_map_put(&map, &key));
    CHECK_EQ(slg_offset_map_get(&map, &key), 4);
    key.data = (const uint8_t *)"b";
    slg_offset_map_hash(&map, &key, 1);
    CHECK_EQ(slg_offset_map_get(&map, &key), -1);
}

/* A whole batch of the records of batch_of, in memory of exactly its size. */
static uint8_t *sealed(int count, int keys, slg_batch *header) {
    size_t size;
    uint8_t *records = batch_of(count, keys, &size);
    uint8_t *whole = malloc(SLG_BATCH_HEADER_SIZE + size);
    slg_encode_batch batch;
    slg_error error;
    const slg_encode_fields fields = {.max_timestamp = 7,
                                      .producer_id = -1,
                                      .base_sequence = -1,
                                      .producer_epoch = -1,
                                      .last_offset_delta = count - 1};
    slg_encode_open(&batch, NULL, 0, 0);
    batch.record_count = count;
    batch.base_timestamp = 7;
    memcpy(whole + SLG_BATCH_HEADER_SIZE, records, size);
    slg_encode_seal(whole, &batch, &fields, whole + SLG_BATCH_HEADER_SIZE, size, slg_crc32c_best());
    free(records);
    const size_t all = SLG_BATCH_HEADER_SIZE + size;
    CHECK_EQ(slg_batch_parse(whole, all, 0, (int32_t)all, header, &error), SLG_OK);
    return whole;
}

static void test_batches(void) {
    enum { COUNT = 100, KEYS = 40 };
    slg_offset_map map = {0};
    CHECK(slg_offset_map_renew(&map, 1 << 18)); /* of huge pages, where there are any */
    slg_offset_map_mark_range(&map, 0, COUNT - 10);
    slg_batch header;
    slg_error error;
    uint8_t *whole = sealed(COUNT, KEYS, &header);
    slg_map_counts mapped = {0};
    size_t row = 0, size;
    CHECK_EQ(slg_map_batches(&map, whole, &header, 1, &row, 0, 1000, NULL, &mapped),
             SLG_CLEAN_DONE);
    CHECK(row == 1 && mapped.messages == COUNT && map.entries == KEYS);
    CHECK_EQ(slg_offset_map_mark(&map, 59), SLG_MARK_OLD);
    CHECK_EQ(slg_offset_map_mark(&map, 60), SLG_MARK_LATEST);
    CHECK_EQ(slg_offset_map_mark(&map, 90), SLG_MARK_NONE);
    const slg_clean_rules rules = {.map = &map,
                                   .uses_marks = true,
                                   .new_horizon = 5,
                                   .upper_bound = 1000,
                                   .kernel = slg_crc32c_best()};
    slg_clean_output output = {0};
    slg_clean_work work = {0};
    slg_clean_counts counts = {0};
    slg_clean_output_begin(&output, whole);
    row = 0;
    CHECK_EQ(slg_clean_batches(&rules, whole, &header, 1, &row, &output, &work, &counts),
             SLG_CLEAN_DONE);
    CHECK(counts.read == COUNT && counts.kept == KEYS && output.max_offset == COUNT - 1);
    const uint8_t *data = slg_clean_output_end(&output, &size);
    slg_batch cleaned;
    CHECK_EQ(slg_batch_parse(data, size, 0, (int32_t)size, &cleaned, &error), SLG_OK);
    CHECK_EQ(slg_batch_check_crc(&cleaned, data, slg_crc32c_best(), &error), SLG_OK);
    CHECK_EQ(cleaned.record_count, KEYS);
    CHECK_EQ(cleaned.base_timestamp, 5); /* the horizon of its tombstones */
    /* A batch that stays as it is is not copied; one whose records are cut is not ours. */
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    slg_clean_output_begin(&output, copy);
    row = 0;
    CHECK_EQ(slg_clean_batches(&rules, copy, &cleaned, 1, &row, &output, &work, &counts),
             SLG_CLEAN_DONE);
    CHECK(slg_clean_output_end(&output, &size) == copy);
    slg_clean_output_begin(&output, copy);
    cleaned.record_count++;
    row = 0;
    CHECK_EQ(slg_clean_batches(&rules, copy, &cleaned, 1, &row, &output, &work, &counts),
             SLG_CLEAN_OTHER);
    CHECK_EQ(slg_map_batches(&map, copy, &cleaned, 1, &row, 0, 1000, NULL, &mapped),
             SLG_CLEAN_REFUSED);
    CHECK_EQ(row, 0);
    free(copy);
    free(whole);
    slg_clean_output_free(&output);
    slg_clean_work_free(&work);
    slg_offset_map_free(&map);
}

/* A size in `bytes` bytes, more than it needs. */
static uint8_t *put_padded(uint8_t *p, uint64_t size, int bytes) {
    for (int i = 1; i < bytes; i++, size >>= 7) *p++ = (uint8_t)(size | 0x80);
    *p++ = (uint8_t)size;
    return p;
}

/* One record, whose sizes of key and value take so many bytes; a negative size is null. */
static uint8_t *put_record(uint8_t *p, int number, int key_size, int key_bytes, int value_size,
                           int value_bytes) {
    uint8_t body[512], *to = body;
    *to++ = 0;
    to = slg_put_varlong(to, number);
    to = slg_put_varint(to, number);
    to = put_padded(to, slg_zigzagged32(key_size), key_bytes);
    for (int i = 0; i < key_size; i++) *to++ = (uint8_t)('a' + i % 20);
    to = put_padded(to, slg_zigzagged32(value_size), value_bytes);
    for (int i = 0; i < value_size; i++) *to++ = (uint8_t)('A' + i % 20);
    *to++ = 0;
    p = slg_put_varint(p, (int32_t)(to - body));
    memcpy(p, body, (size_t)(to - body));
    return p + (to - body);
}

/* Sizes that take more bytes than they need, and nulls that are not -1, are rebuilt as an encoder
 * writes them. */
static void test_padded_sizes(void) {
    static const int shapes[][4] = {
        {3, 1, 5, 1},   {3, 2, 5, 1},   {0, 1, 0, 1},     {0, 3, 0, 2},
        {3, 1, 5, 4},   {100, 2, 9, 1}, {100, 3, 200, 2}, {9, 1, 200, 3},
        {-1, 1, -1, 1}, {-2, 1, 5, 1},  {-1, 2, 5, 1},    {3, 1, -3, 1},
        {64, 2, 63, 1}, {63, 2, 64, 2}, {3, 1, -1, 1},    {3, 1, 3, 1}};
    enum { COUNT = sizeof shapes / sizeof shapes[0] };
    uint8_t whole[8192], wanted[8192], *end = whole + SLG_BATCH_HEADER_SIZE, *headers;
    slg_encode_batch built, plain;
    slg_error error;
    slg_encode_open(&plain, wanted, sizeof wanted, 0);
    plain.base_timestamp = 5;
    plain.has_base_timestamp = true;
    for (int i = 0; i < COUNT; i++) {
        const int *shape = shapes[i];
        end = put_record(end, i, shape[0], shape[1], shape[2], shape[3]);
        uint8_t key[256], value[256];
        for (int at = 0; at < 256; at++) key[at] = (uint8_t)('a' + at % 20);
        for (int at = 0; at < 256; at++) value[at] = (uint8_t)('A' + at % 20);
        const slg_encode_record record = {.offset = i,
                                          .timestamp = 7 + i,
                                          .key = key,
                                          .key_size = shape[0] < 0 ? -1 : shape[0],
                                          .value = value,
                                          .value_size = shape[2] < 0 ? -1 : shape[2]};
        CHECK_EQ(slg_encode_add(&plain, &record, &headers, &error), SLG_OK);
    }
    const size_t size = (size_t)(end - whole);
    slg_encode_fields fields = {.max_timestamp = 7 + COUNT - 1, .last_offset_delta = COUNT - 1};
    slg_encode_open(&built, NULL, 0, 0);
    built.record_count = COUNT;
    built.base_timestamp = 7;
    slg_encode_seal(whole, &built, &fields, whole + SLG_BATCH_HEADER_SIZE,
                    size - SLG_BATCH_HEADER_SIZE, slg_crc32c_best());
    slg_batch header;
    CHECK_EQ(slg_batch_parse(whole, size, 0, (int32_t)size, &header, &error), SLG_OK);
    uint8_t slots[SLG_OFFSET_SLOT_SIZE] = {0};
    const slg_offset_map map = {.slots = slots, .slot_count = 1, .latest_offset = -1};
    const slg_clean_rules rules = {
        .map = &map, .new_horizon = 5, .upper_bound = 1000, .kernel = slg_crc32c_best()};
    slg_clean_output output = {0};
    slg_clean_work work = {0};
    slg_clean_counts counts = {0};
    size_t row = 0, written;
    slg_clean_output_begin(&output, whole);
    CHECK_EQ(slg_clean_batches(&rules, whole, &header, 1, &row, &output, &work, &counts),
             SLG_CLEAN_DONE);
    const uint8_t *data = slg_clean_output_end(&output, &written);
    CHECK_EQ(written, plain.size);
    CHECK(memcmp(data + SLG_BATCH_HEADER_SIZE, wanted + SLG_BATCH_HEADER_SIZE,
                 plain.size - SLG_BATCH_HEADER_SIZE) == 0);
    slg_clean_output_free(&output);
    slg_clean_work_free(&work);
}

/* Keys hashed ahead put what the batch itself puts, and any end of its bytes is left out. */
static void test_keys_ahead(void) {
    enum { COUNT = 100, KEYS = 40 };
    slg_offset_map map = {0};
    CHECK(slg_offset_map_renew(&map, 1000));
    slg_batch header;
    uint8_t *whole = sealed(COUNT, KEYS, &header);
    slg_batch_keys keys = {0};
    slg_map_counts mapped = {0};
    size_t row = 0;
    CHECK(slg_batch_keys_begin(&keys, 1, SLG_BATCH_KEYS_MAX));
    CHECK_EQ(slg_batch_keys_read(&keys, whole, &header, 1, &row, 10), SLG_CLEAN_DONE);
    CHECK(row == 1 && keys.count == COUNT - 10 && keys.rows[0].is_read);
    row = 0;
    CHECK_EQ(slg_map_batches(&map, whole, &header, 1, &row, 10, KEYS / 2, &keys, &mapped),
             SLG_CLEAN_FULL);
    CHECK(row == 0 && map.entries == KEYS / 2 && mapped.messages == 10 + KEYS / 2);
    CHECK_EQ(slg_map_batches(&map, whole, &header, 1, &row, 10, 1000, &keys, &mapped),
             SLG_CLEAN_DONE);
    CHECK(row == 1 && map.entries == KEYS && map.latest_offset == COUNT - 1);
    const size_t size = (size_t)header.size - SLG_BATCH_HEADER_SIZE;
    for (size_t cut = 0; cut < size; cut += 13) {
        uint8_t *part = malloc(cut + (cut == 0));
        memcpy(part, whole + SLG_BATCH_HEADER_SIZE, cut);
        CHECK(slg_batch_keys_begin(&keys, 1, SLG_BATCH_KEYS_MAX));
        CHECK_EQ(slg_batch_keys_add(&keys, 0, &header, part, cut, 0), SLG_CLEAN_OTHER);
        CHECK(keys.count == 0 && !keys.rows[0].is_read);
        free(part);
    }
    free(whole);
    slg_batch_keys_free(&keys);
    slg_offset_map_free(&map);
}

int main(void) {
    test_batches();
    test_padded_sizes();
    test_keys_ahead();
    test_md5();
    test_lanes();
    test_records();
    test_full_map();
    return 0;
}
