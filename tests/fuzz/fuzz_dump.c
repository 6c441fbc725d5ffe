/*
 * Lines of any log bytes: the same text and the same end whatever the sizes of the buffer, the
 * window and the room for gaps, and never a byte outside of them.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"
#include "seglog/dump.h"

enum { GAPS_MAX = 8, TEXT_MAX = 1 << 22 };

typedef struct printed {
    slg_status status;
    slg_error error;
    uint8_t *text;
    size_t size;
    size_t gaps;
    int64_t position;
} printed;

static void append(printed *out, const uint8_t *text, size_t size) {
    REQUIRE(out->size + size <= TEXT_MAX);
    memcpy(out->text + out->size, text, size);
    out->size += size;
}

/* Payloads are taken for decompressed as they are: what a codec gives is any bytes. */
static void print_all(printed *out, int fd, int64_t size, unsigned what, size_t capacity,
                      size_t window_size, size_t gap_room) {
    slg_window window;
    slg_dump dump;
    slg_dump_gap gaps[GAPS_MAX];
    uint8_t *buffer = malloc(capacity);
    REQUIRE(buffer != NULL);
    memset(&out->error, 0, sizeof out->error);
    out->size = out->gaps = 0;
    slg_window_init(&window, slg_source_of(fd), size, window_size);
    slg_walk_init(&dump.walk, &window, 0, size);
    slg_dump_init(&dump, what, gaps, gap_room);
    for (;;) {
        size_t used = 0;
        out->status = slg_dump_text(&dump, buffer, capacity, &used, &out->error);
        REQUIRE(used <= capacity && dump.gap_count <= gap_room);
        append(out, buffer, used);
        if (out->status == SLG_FULL) {
            out->gaps += dump.gap_count;
            REQUIRE(used > 0 || dump.gap_count > 0 || dump.wanted > capacity);
            dump.gap_count = 0;
            if (dump.wanted > capacity) {
                capacity = dump.wanted;
                buffer = realloc(buffer, capacity);
                REQUIRE(buffer != NULL);
            }
        } else if (out->status == SLG_CODEC) {
            uint8_t *payload = fuzz_exact(dump.walk.payload, dump.walk.payload_size);
            const slg_status status =
                slg_walk_payload(&dump.walk, payload, dump.walk.payload_size, &out->error);
            free(payload); /* only checked: the walk has its own copy to read on from */
            if (status == SLG_OK) {
                REQUIRE(slg_walk_payload(&dump.walk, dump.walk.payload, dump.walk.payload_size,
                                         &out->error) == SLG_OK);
            } else {
                out->status = status;
                break;
            }
        } else if (out->status == SLG_OK) {
            append(out, (const uint8_t *)"!\n", 2);
        } else {
            break;
        }
    }
    out->gaps += dump.gap_count;
    out->position = dump.walk.position;
    free(buffer);
    slg_window_free(&window);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static printed one;
    static printed other;
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const size_t sizes = fuzz_byte(&input);
    if (one.text == NULL) {
        one.text = malloc(TEXT_MAX);
        other.text = malloc(TEXT_MAX);
        REQUIRE(one.text != NULL && other.text != NULL);
    }
    if (input.size > 8192) { /* each byte of a value may become three, and each gap a line */
        input.size = 8192;
    }
    uint8_t *exact = fuzz_exact(input.data, input.size);
    if ((steer & 0x10U) == 0) {
        repair_crcs(exact, input.size);
    }
    const int fd = file_of(exact, input.size);
    const unsigned what = steer & 0x0fU;
    print_all(&one, fd, (int64_t)input.size, what, 1 << 20, 1 << 20, GAPS_MAX);
    print_all(&other, fd, (int64_t)input.size, what, SLG_DUMP_BUFFER_MIN + sizes, 17 + sizes, 1);
    REQUIRE(one.status == other.status && one.size == other.size);
    REQUIRE(memcmp(one.text, other.text, one.size) == 0);
    REQUIRE(one.gaps == other.gaps && one.position == other.position);
    if (one.status != SLG_END) {
        REQUIRE(one.status >= SLG_BATCH_LENGTH && one.error.status == one.status);
        REQUIRE(one.error.position >= 0 && one.error.position < (int64_t)input.size);
        REQUIRE(one.error.position == other.error.position);
    }
    free(exact);
    return 0;
}
