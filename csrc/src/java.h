/*
 * Java's arithmetic: ints and longs wrap, while overflow in C is undefined. Numbers from a file or
 * a client may have any value, and Kafka computes with them.
 */
#ifndef SEGLOG_JAVA_H
#define SEGLOG_JAVA_H

#include <stdint.h>

static inline int64_t slg_java_add(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t slg_java_subtract(int64_t a, int64_t b) {
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

/* The cast (int) of a long: its low 32 bits. */
static inline int32_t slg_java_int(int64_t value) { return (int32_t)(uint32_t)(uint64_t)value; }

/* The hash of a Long in a HashMap (Long.hashCode, HashMap.hash), whose low bits are its bucket. */
static inline uint32_t slg_java_hash(int64_t value) {
    const uint32_t folded = (uint32_t)((uint64_t)value ^ (uint64_t)value >> 32);
    return folded ^ folded >> 16;
}

/*
 * Kafka's DefaultRecordBatch.incrementSequence: sequences are 0 to 2^31 - 1, and 0 follows the
 * last. Other numbers, which no producer sends, wrap like Java's ints.
 */
static inline int32_t slg_java_sequence(int32_t sequence, int32_t increment) {
    const uint32_t room = (uint32_t)INT32_MAX - (uint32_t)increment;
    if (sequence > (int32_t)room) {
        return (int32_t)((uint32_t)sequence - room - 1U);
    }
    return (int32_t)((uint32_t)sequence + (uint32_t)increment);
}

#endif
