/* lz4 frames and xerial streams, and their raw blocks: nothing is read or written outside. */
#include "fuzz.h"
#include "seglog/format.h"
#include "seglog/framing.h"
#include "seglog/lz4.h"
#include "seglog/snappy.h"

enum { ROOM = 2 * 65536 };

static void walk(const uint8_t *exact, size_t size, size_t room) {
    uint8_t *into = malloc(room > 0 ? room : 1);
    REQUIRE(into != NULL);
    const ptrdiff_t found[] = {slg_unframe(SLG_CODEC_LZ4, exact, size, into, room),
                               slg_unframe(SLG_CODEC_SNAPPY, exact, size, into, room),
                               slg_lz4_decompress(exact, size, into, room),
                               slg_snappy_decompress(exact, size, into, room)};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        REQUIRE(found[i] >= -1 && found[i] <= (ptrdiff_t)room);
    }
    free(into);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *exact = fuzz_exact(data, size);
    walk(exact, size, ROOM);
    walk(exact, size, 2 * size);
    free(exact);
    return 0;
}
