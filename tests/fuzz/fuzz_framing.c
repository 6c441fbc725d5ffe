/* Blocks of lz4 frames and xerial streams: inside the payload, in order, and always to an end. */
#include "fuzz.h"
#include "seglog/framing.h"

typedef slg_frame next_function(const uint8_t *, size_t, size_t *, slg_block *);

static void walk(next_function *next, const uint8_t *payload, size_t size) {
    size_t position = 0;
    size_t before = 0;
    slg_block block;
    slg_frame frame;
    while ((frame = next(payload, size, &position, &block)) == SLG_FRAME_BLOCK) {
        REQUIRE(block.data >= payload + before + 4);
        REQUIRE(position > before && position <= size);
        REQUIRE(block.data + block.size == payload + position);
        before = position;
    }
    REQUIRE(frame == SLG_FRAME_END || frame == SLG_FRAME_OTHER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *exact = fuzz_exact(data, size);
    walk(slg_lz4_next, exact, size);
    walk(slg_xerial_next, exact, size);
    free(exact);
    return 0;
}
