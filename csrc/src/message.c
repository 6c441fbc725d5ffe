#include "message.h"

slg_message_part slg_message_read(const uint8_t *entry, size_t size, slg_message *message) {
    *message = (slg_message){
        .offset = slg_load_i64(entry + SLG_LEGACY_OFFSET_AT),
        .timestamp = -1,
        .magic = slg_load_i8(entry + SLG_LEGACY_MAGIC_AT),
        .attributes = slg_load_i8(entry + SLG_LEGACY_ATTRIBUTES_AT),
        .key_at = SLG_V0_KEY_LENGTH_AT + sizeof(int32_t),
    };
    if (message->magic != 0) {
        message->timestamp = slg_load_i64(entry + SLG_V1_TIMESTAMP_AT);
        message->key_at = SLG_V1_KEY_LENGTH_AT + sizeof(int32_t);
    }
    if (message->key_at > size) {
        return SLG_MESSAGE_NO_KEY_SIZE;
    }
    message->key_size = slg_load_i32(entry + message->key_at - 4);
    const int64_t key_end = (int64_t)message->key_at +
                            (message->key_size > 0 ? message->key_size : 0);
    message->value_at = key_end + 4;
    if (key_end > (int64_t)size) {
        return SLG_MESSAGE_NO_KEY;
    }
    message->key = message->key_size < 0 ? NULL : entry + message->key_at;
    if (message->value_at > (int64_t)size) {
        return SLG_MESSAGE_NO_VALUE_SIZE;
    }
    message->value_size = slg_load_i32(entry + key_end);
    if (message->value_size > (int64_t)size - message->value_at) {
        return SLG_MESSAGE_NO_VALUE;
    }
    message->value = message->value_size < 0 ? NULL : entry + message->value_at;
    return SLG_MESSAGE_WHOLE;
}

slg_status slg_message_next(slg_cursor *set, const slg_batch *wrapper, const uint8_t **entry,
                            size_t *size, slg_error *error) {
    int64_t whole;
    *entry = set->pos;
    *size = 0;
    if (slg_cursor_left(set) < SLG_PREFIX_SIZE) {
        return SLG_END;
    }
    if (!slg_frame(set->pos, &whole)) {
        return slg_fail(error, SLG_LEGACY_SIZE, wrapper->position, SLG_LEGACY_LENGTH_MIN,
                        slg_frame_length(whole));
    }
    *size = (size_t)whole;
    return slg_take(set, whole, entry) ? SLG_OK : SLG_END;
}

slg_status slg_message_open(slg_cursor set, const slg_batch *wrapper, int64_t *count, int64_t *base,
                            slg_error *error) {
    const uint8_t *entry;
    int64_t last_offset = 0;
    slg_status status;
    size_t size;
    *count = 0;
    *base = 0;
    while ((status = slg_message_next(&set, wrapper, &entry, &size, error)) == SLG_OK) {
        last_offset = slg_load_i64(entry + SLG_LEGACY_OFFSET_AT);
        ++*count;
    }
    if (status != SLG_END) {
        return status;
    }
    if (*count == 0) {
        return slg_fail(error, SLG_LEGACY_EMPTY_WRAPPER, wrapper->position, 1, 0);
    }
    /* Some versions of librdkafka leave the wrapper's offset 0; inner offsets are then absolute. */
    if (wrapper->magic == 1 && wrapper->last_offset != 0) {
        if (wrapper->last_offset < last_offset) {
            return slg_fail(error, SLG_LEGACY_OFFSET, wrapper->position, last_offset,
                            wrapper->last_offset);
        }
        *base = slg_java_subtract(wrapper->last_offset, last_offset);
    }
    return SLG_OK;
}
