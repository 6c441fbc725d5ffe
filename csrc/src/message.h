/* Messages of magic 0 and 1, and the sets of them that a compressed one wraps. */
#ifndef SEGLOG_MESSAGE_H
#define SEGLOG_MESSAGE_H

#include "entry.h"

/* Kafka reads a timestamp for any magic but 0. */
static inline int32_t slg_message_size_min(int magic) {
    return magic == 0 ? (int32_t)SLG_V0_SIZE_MIN : (int32_t)SLG_V1_SIZE_MIN;
}

/* Sizes are as stored: a negative one is null. Bytes that are null or missing are NULL. */
typedef struct slg_message {
    int64_t offset;
    int64_t timestamp;    /* -1 for magic 0 */
    int8_t magic, attributes;
    int32_t key_size, value_size;
    const uint8_t *key, *value;
    size_t key_at;        /* of the bytes of the key, from the message's first */
    int64_t value_at;     /* of the bytes of the value, which may lie after the end */
} slg_message;

/* Which parts of a message its bytes contain. */
typedef enum slg_message_part {
    SLG_MESSAGE_WHOLE = 0,
    SLG_MESSAGE_NO_KEY_SIZE, /* key_at is after the end */
    SLG_MESSAGE_NO_KEY,
    SLG_MESSAGE_NO_VALUE_SIZE,
    SLG_MESSAGE_NO_VALUE,
} slg_message_part;

/* The message at `entry`, of which `size` >= SLG_V0_SIZE_MIN bytes exist, prefix included. */
slg_message_part slg_message_read(const uint8_t *entry, size_t size, slg_message *message);

/*
 * The next message of a wrapper's decompressed value. SLG_OK and *entry with its *size; SLG_END,
 * also for a partial message, which Kafka ignores; SLG_LEGACY_SIZE. `wrapper` is only for the
 * error.
 */
slg_status slg_message_next(slg_cursor *set, const slg_batch *wrapper, const uint8_t **entry,
                            size_t *size, slg_error *error);

/*
 * Checks the messages of a wrapper: *count is their number, *base the base of their relative
 * offsets. SLG_OK, SLG_LEGACY_SIZE, SLG_LEGACY_EMPTY_WRAPPER, SLG_LEGACY_OFFSET.
 */
slg_status slg_message_open(slg_cursor set, const slg_batch *wrapper, int64_t *count, int64_t *base,
                            slg_error *error);

#endif
