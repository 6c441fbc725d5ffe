/*
 * A client's bytes before an append: batches are judged inside of their bytes, the quick walk over
 * records says what the slow one says, and headers are written again into the room that was asked.
 */
#define _POSIX_C_SOURCE 200809L
#include "log_input.h"

#include "seglog/validate.h"

static const slg_record_source SOURCES[] = {SLG_RECORDS_BUFFER, SLG_RECORDS_STREAM,
                                            SLG_RECORDS_SKIP};

static void check_headers(const slg_record *record) {
    const size_t bound = slg_headers_bound(record);
    uint8_t *into = malloc(bound > 0 ? bound : 1);
    REQUIRE(into != NULL);
    REQUIRE(slg_headers_rewrite(record, into) <= bound);
    free(into);
}

/* One record after the other, as the walk's contract tells it. */
static slg_refusal run_slowly(slg_record_walk *walk) {
    slg_refusal refusal;
    while ((refusal = slg_record_next(walk)) == SLG_ACCEPTED) {
        check_headers(&walk->record);
    }
    return refusal;
}

static void check_records(const slg_batch *batch, const uint8_t *records, size_t size,
                          const slg_record_rules *rules) {
    for (size_t i = 0; i < sizeof SOURCES / sizeof *SOURCES; i++) {
        slg_record_walk quick, slow;
        slg_record_walk_init(&quick, batch, records, size, SOURCES[i], rules);
        slow = quick;
        /* Behind a record that the rules refuse both go on. */
        for (int refused = 0; refused < 64; refused++) {
            const slg_refusal refusal = slg_record_walk_run(&quick);
            REQUIRE(refusal == run_slowly(&slow));
            REQUIRE(quick.index == slow.index && quick.bytes.pos == slow.bytes.pos);
            REQUIRE(quick.max_timestamp == slow.max_timestamp);
            REQUIRE(quick.is_sequential == slow.is_sequential);
            REQUIRE(quick.a == slow.a && quick.b == slow.b);
            REQUIRE(quick.bytes.pos <= quick.bytes.end);
            if (refusal < SLG_REFUSE_NO_KEY) {
                break;
            }
            REQUIRE(quick.record.timestamp == slow.record.timestamp);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_input input = {data, size};
    const uint8_t steer = fuzz_byte(&input);
    const slg_record_rules rules = {
        .needs_key = (steer & 1) != 0,
        .has_create_time = (steer & 2) != 0,
        .now = (int64_t)fuzz_byte(&input) << 32,
        .before_max = (steer & 4) != 0 ? INT64_MAX : 1000,
        .after_max = 1000,
    };
    slg_analysis analysis = {
        .origin = (slg_origin)(steer >> 3 & 3),
        .leader_epoch = fuzz_byte(&input),
        .batch_bytes_max = (steer & 32) != 0 ? 100 : INT64_MAX,
        .needs_order = (steer & 64) != 0,
        .is_plain = (steer & 128) != 0,
        .kernel = SLG_CRC32C_PORTABLE,
    };
    uint8_t *bytes = fuzz_exact(input.data, input.size);
    if (input.size > 0 && bytes[0] != 0xff) { /* else as it came */
        repair_crcs(bytes, input.size);
    }
    slg_batch batch;
    size_t at = 0;
    slg_analysis_init(&analysis);
    while (slg_analyze_next(&analysis, bytes, input.size, &batch) == SLG_ACCEPTED) {
        REQUIRE(batch.position == (int64_t)at && analysis.position > at);
        at = analysis.position;
        REQUIRE(at <= input.size && analysis.valid_bytes <= (int64_t)at);
        if (!slg_batch_is_legacy(&batch)) {
            slg_check_client_header(&batch);
        }
    }
    /* What lies under a CRC that nobody can guess, the rest as records of a made-up batch. */
    batch = (slg_batch){.base_offset = steer,
                        .record_count = steer,
                        .base_timestamp = rules.now,
                        .max_timestamp = rules.now,
                        .attributes = (int16_t)(steer & SLG_ATTRIBUTE_LOG_APPEND_TIME)};
    check_records(&batch, bytes, input.size, (steer & 16) != 0 ? &rules : NULL);
    free(bytes);
    return 0;
}
