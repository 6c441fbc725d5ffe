/* Lines of a dump as kafka-dump-log prints them, cut at every buffer size, and hostile bytes. */
#define _POSIX_C_SOURCE 200809L

#include "seglog/dump.h"

#include <stddef.h>

#include "build.h"

enum { TEXT_MAX = 1 << 18, GAPS = 2 };

static bytes log_bytes;

typedef struct outcome {
    slg_status status;
    slg_error error;
    size_t size;
    int64_t position; /* of the walk */
    int asked;        /* times that the caller had to print */
    slg_dump_gap gaps[64];
    size_t gap_count;
    char text[TEXT_MAX];
} outcome;

/*
 * Dumps the log through buffers of `capacity` bytes, or what the dump wants, without a byte behind
 * them. A compressed payload is `inner`; what is asked of the caller is printed as "*" and an end.
 */
static void dump(outcome *o, unsigned what, size_t capacity, size_t target, const bytes *inner) {
    const int fd = file_of(log_bytes.data, log_bytes.size);
    slg_window window;
    slg_dump dump;
    slg_dump_gap gaps[GAPS];
    uint8_t *payload = NULL;
    memset(o, 0, offsetof(outcome, text));
    slg_window_init(&window, slg_source_of(fd), (int64_t)log_bytes.size, target);
    slg_walk_init(&dump.walk, &window, 0, (int64_t)log_bytes.size);
    slg_dump_init(&dump, what, gaps, GAPS);
    do {
        const size_t room = dump.wanted > capacity ? dump.wanted : capacity;
        uint8_t *out = malloc(room);
        size_t used = 0;
        CHECK(out != NULL);
        o->status = slg_dump_text(&dump, out, room, &used, &o->error);
        CHECK(used <= room && o->size + used + 3 < TEXT_MAX);
        memcpy(o->text + o->size, out, used);
        o->size += used;
        free(out);
        for (size_t i = 0; i < dump.gap_count; i++) {
            o->gaps[o->gap_count++ % 64] = gaps[i];
        }
        dump.gap_count = 0;
        if (o->status == SLG_CODEC) {
            CHECK(inner != NULL);
            free(payload);
            payload = exact_copy(inner->data, inner->size);
            o->status = slg_walk_payload(&dump.walk, payload, inner->size, &o->error);
        } else if (o->status == SLG_OK) {
            o->asked++;
            memcpy(o->text + o->size, "*\n", 2);
            o->size += 2;
        }
    } while (o->status == SLG_OK || o->status == SLG_FULL);
    o->text[o->size] = '\0';
    o->position = dump.walk.position;
    slg_window_free(&window);
    free(payload);
    close(fd);
}

static outcome once, again;

/* The same text, gaps and outcome for every buffer size and through small windows. */
static void prints(unsigned what, const bytes *inner, slg_status status, const char *text) {
    dump(&once, what, TEXT_MAX, 1 << 20, inner);
    if (text != NULL && strcmp(once.text, text) != 0) {
        fprintf(stderr, "wanted:\n%s\nfound:\n%s\n", text, once.text);
        exit(1);
    }
    CHECK_EQ(once.status, status);
    for (size_t capacity = SLG_DUMP_BUFFER_MIN; capacity < SLG_DUMP_BUFFER_MIN + 700;
         capacity += 1 + capacity % 5) {
        dump(&again, what, capacity, capacity % 3 == 0 ? 1 : 100, inner);
        CHECK_EQ(again.status, status);
        CHECK_EQ(again.size, once.size);
        CHECK(memcmp(again.text, once.text, once.size) == 0);
        CHECK_EQ(again.position, once.position);
        CHECK_EQ(again.error.status, once.error.status);
        CHECK_EQ(again.error.position, once.error.position);
        CHECK(again.asked == once.asked && again.gap_count == once.gap_count);
        CHECK(memcmp(again.gaps, once.gaps, sizeof once.gaps) == 0);
    }
}

static void begin(const char *hex) {
    log_bytes.size = 0;
    add_hex(&log_bytes, hex);
}

#define LINE_TWO                                                                             \
    "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 " \
    "producerEpoch: -1 partitionLeaderEpoch: -1 isTransactional: false isControl: false "    \
    "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1005 size: 87 magic: 2 "    \
    "compresscodec: none crc: 3686545773 isvalid: true\n"

static void check_lines(void) {
    begin(GOLDEN_TWO);
    prints(0, NULL, SLG_END, LINE_TWO);
    CHECK(once.position == 87 && once.gap_count == 0);
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA | SLG_DUMP_STRINGS, NULL, SLG_END,
           LINE_TWO
           "| offset: 0 CreateTime: 1000 keySize: 1 valueSize: 1 sequence: -1 headerKeys: [h,n]"
           " key: k payload: v\n"
           "| offset: 1 CreateTime: 1005 keySize: 2 valueSize: -1 sequence: -1 headerKeys: []"
           " key: k2\n");
    prints(SLG_DUMP_RECORDS | SLG_DUMP_STRINGS, NULL, SLG_END,
           LINE_TWO "| key: k payload: v\n| key: k2\n");
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA | SLG_DUMP_CALLER, NULL, SLG_END, NULL);
    CHECK_EQ(once.asked, 2);
    log_bytes.data[80] ^= 1; /* a wrong CRC is printed, not thrown at */
    prints(0, NULL, SLG_END, NULL);
    CHECK(strstr(once.text, " crc: 3686545773 isvalid: false\n") != NULL);

    begin(GOLDEN_V1);
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA | SLG_DUMP_STRINGS, NULL, SLG_END,
           "offset: 0 position: 0 CreateTime: 1000 size: 38 magic: 1 compresscodec: none "
           "crc: 3211518623 isvalid: true\n"
           "| offset: 0 CreateTime: 1000 keySize: -1 valueSize: 4 isValid: true crc: 3211518623"
           " payload: test\n");
    begin(GOLDEN_V0);
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA, NULL, SLG_END,
           "offset: 0 position: 0 NoTimestampType: -1 size: 30 magic: 0 compresscodec: none "
           "crc: 1495943047 isvalid: true\n"
           "| offset: 0 NoTimestampType: -1 keySize: -1 valueSize: 4 isValid: true "
           "crc: 1495943047\n");
    begin(GOLDEN_ABORT);
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA | SLG_DUMP_STRINGS, NULL, SLG_END,
           "baseOffset: 5 lastOffset: 5 count: 1 baseSequence: -1 lastSequence: -1 "
           "producerId: 1 producerEpoch: 0 partitionLeaderEpoch: 0 isTransactional: true "
           "isControl: true deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1000 "
           "size: 78 magic: 2 compresscodec: none crc: 3381127133 isvalid: true\n"
           "| offset: 5 CreateTime: 1000 keySize: 4 valueSize: 6 sequence: -1 headerKeys: []"
           " endTxnMarker: ABORT coordinatorEpoch: 0\n");
    CHECK(once.gap_count == 1 && once.gaps[0].previous == -1 && once.gaps[0].next == 5);
    begin(GOLDEN_EMPTIED);
    log_bytes.data[SLG_BATCH_ATTRIBUTES_AT + 1] |= SLG_ATTRIBUTE_DELETE_HORIZON;
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA, NULL, SLG_END, NULL);
    CHECK(strstr(once.text, "lastOffset: 13 count: 0 baseSequence: 0 lastSequence: 3 ") != NULL);
    CHECK(strstr(once.text, "deleteHorizonMs: OptionalLong[-1] position: 0 ") != NULL);
}

static void check_payloads(void) {
    static bytes inner;
    inner.size = 0;
    add_hex(&inner, "1400000001087465737400");
    begin(GOLDEN_GZIP);
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA | SLG_DUMP_STRINGS, &inner, SLG_END, NULL);
    CHECK(strstr(once.text, "compresscodec: gzip crc: ") != NULL);
    CHECK(strstr(once.text, "\n| offset: 0 CreateTime: 1000 keySize: -1 valueSize: 4 sequence: -1"
                            " headerKeys: [] payload: test\n") != NULL);
    for (inner.size--; inner.size > 0; inner.size--) {
        dump(&once, SLG_DUMP_RECORDS, TEXT_MAX, 100, &inner);
        CHECK_EQ(once.status, SLG_RECORD_LENGTH);
    }
    inner.size = 0;
    add_message(&inner, 1, 0, 0, 1000, "a", 1);
    add_message(&inner, 1, 0, 1, 2000, "b", 1);
    begin(GOLDEN_V1_GZIP);
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA | SLG_DUMP_STRINGS, &inner, SLG_END, NULL);
    CHECK(strstr(once.text, "\n| offset: 10 CreateTime: 1000 keySize: -1 valueSize: 1 ") != NULL);
    CHECK(strstr(once.text, "\n| offset: 11 CreateTime: 2000 keySize: -1 valueSize: 1 ") != NULL);
}

/* Long values and header keys in UTF-8, sound and not, cut between and inside of characters. */
static void check_long_text(void) {
    static const char *const pieces[] = {
        "\xf0\x9f\x98\x80",     "\xff",        "\xe2\x82\xac", "a", "\xc3\xa4",
        "\x80\x80\x80\x80\x80", "\xed\xa0\x80"};
    static bytes payload, headers;
    static char value[9000];
    uint64_t state = 9;
    for (int round = 0; round < 6; round++) {
        size_t size = 0;
        while (size < 8000) {
            const char *piece = pieces[random_next(&state) % 7];
            memcpy(value + size, piece, strlen(piece));
            size += strlen(piece);
        }
        value[size] = '\0';
        headers.size = payload.size = log_bytes.size = 0;
        for (int i = 0; i < 20 * round; i++) {
            add_field(&headers, value + 7970 + i % 20);
            add_field(&headers, NULL);
        }
        for (int i = 0; i < 3; i++) {
            add_record(&payload, i, 2 * i, i == 1 ? NULL : value, i == 2 ? NULL : value, &headers,
                       20 * round);
        }
        add_batch(&log_bytes, (batch_fields){.count = 3, .last_delta = 4}, payload.data,
                  payload.size);
        prints(SLG_DUMP_RECORDS | SLG_DUMP_STRINGS | (round % 2 ? SLG_DUMP_METADATA : 0U), NULL,
               SLG_END, NULL);
        CHECK(once.gap_count == 2 && once.gaps[1].previous == 2 && once.gaps[1].next == 4);
    }
}

/* What Kafka throws at ends the dump, with the lines before it printed. */
static void check_causes(void) {
    begin(GOLDEN_TWO);
    add_hex(&log_bytes, GOLDEN_TWO);
    slg_store_i32(log_bytes.data + 87 + SLG_BATCH_LENGTH_AT, 13);
    prints(0, NULL, SLG_BATCH_LENGTH, LINE_TWO);
    CHECK_EQ(once.error.position, 87);
    slg_store_i32(log_bytes.data + 87 + SLG_BATCH_LENGTH_AT, 76);
    prints(0, NULL, SLG_END, LINE_TWO); /* torn: Kafka's iteration stops without a word */
    CHECK_EQ(once.position, 87);
    slg_store_i32(log_bytes.data + 87 + SLG_BATCH_LENGTH_AT, 75);
    log_bytes.data[87 + SLG_MAGIC_AT] = 0xff;
    prints(0, NULL, SLG_BATCH_MAGIC, LINE_TWO "offset: 0");
    log_bytes.data[87 + SLG_MAGIC_AT] = 2;
    log_bytes.data[87 + SLG_BATCH_ATTRIBUTES_AT + 1] = 6;
    prints(0, NULL, SLG_BATCH_CODEC, NULL);
    log_bytes.data[87 + SLG_BATCH_ATTRIBUTES_AT + 1] = SLG_ATTRIBUTE_CONTROL;
    prints(SLG_DUMP_RECORDS | SLG_DUMP_METADATA, NULL, SLG_RECORD_FIELD, NULL);
    CHECK(once.error.expected == SLG_CONTROL_KEY_SIZE && once.error.found == 1);
    log_bytes.data[87 + SLG_BATCH_ATTRIBUTES_AT + 1] = 0;
    slg_store_i32(log_bytes.data + 87 + SLG_BATCH_RECORD_COUNT_AT, -1);
    prints(SLG_DUMP_RECORDS, NULL, SLG_BATCH_RECORD_COUNT, NULL);
    /* The size of the key has no end: no number of it is told. */
    slg_store_i32(log_bytes.data + 87 + SLG_BATCH_RECORD_COUNT_AT, 1);
    memset(log_bytes.data + 87 + SLG_BATCH_HEADER_SIZE + 4, 0xff, SLG_VARINT_SIZE_MAX);
    prints(SLG_DUMP_RECORDS, NULL, SLG_RECORD_FIELD, NULL);
    CHECK_EQ(once.error.found, 0);
}

/* Random damage of every kind of entry: in bounds, and the same in pieces as at once. */
static void check_damage(void) {
    static const char *const logs[] = {GOLDEN_ONE GOLDEN_TWO GOLDEN_ABORT, GOLDEN_V1 GOLDEN_V0,
                                       GOLDEN_GZIP GOLDEN_EMPTIED, GOLDEN_V1_GZIP GOLDEN_TWO};
    static bytes inner;
    uint64_t state = 21;
    for (int round = 0; round < 2000; round++) {
        begin(logs[round % 4]);
        inner.size = 0;
        add_hex(&inner, round % 4 == 3 ? GOLDEN_V1 GOLDEN_V1 : "1400000001087465737400");
        for (uint64_t hits = 1 + random_next(&state) % 4; hits > 0; hits--) {
            log_bytes.data[random_next(&state) % log_bytes.size] = (uint8_t)random_next(&state);
            uint8_t *byte = inner.data + random_next(&state) % inner.size;
            *byte ^= (uint8_t)(1U << random_next(&state) % 8);
        }
        const unsigned what = (unsigned)(random_next(&state) % 16);
        dump(&once, what, TEXT_MAX, 1 << 20, &inner);
        dump(&again, what, SLG_DUMP_BUFFER_MIN + random_next(&state) % 999, 64, &inner);
        CHECK_EQ(once.status, again.status);
        CHECK(once.size == again.size && memcmp(once.text, again.text, once.size) == 0);
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 1 || chdir(argv[1]) == 0);
    check_lines();
    check_payloads();
    check_long_text();
    check_causes();
    check_damage();
    return 0;
}
