/*
 * The word of a log's lock: 0 free, 1 held, 2 held and perhaps awaited. Any thread may call these.
 * A thread that does not get the word sleeps elsewhere, and the thread that releases it wakes one.
 */
#ifndef SEGLOG_LOG_LOCK_H
#define SEGLOG_LOG_LOCK_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the word was free; it is held then. */
static inline bool slg_log_lock_take(int *word) {
    int is_free = 0;
    return __atomic_compare_exchange_n(word, &is_free, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

/* The same before and after each sleep: this thread, or one that sleeps, must be woken later. */
static inline bool slg_log_lock_await(int *word) {
    return __atomic_exchange_n(word, 2, __ATOMIC_ACQUIRE) == 0;
}

/* Frees the word. Whether a sleeping thread must be woken. */
static inline bool slg_log_lock_release(int *word) {
    return __atomic_exchange_n(word, 0, __ATOMIC_RELEASE) == 2;
}

#ifdef __cplusplus
}
#endif
#endif
