/* Shared by the sources of the producers stem: the map of producers, lists of transactions. */
#ifndef SEGLOG_PRODUCERS_INTERNAL_H
#define SEGLOG_PRODUCERS_INTERNAL_H

#include "room.h"
#include "seglog/producers.h"

/* For qsort of uint64_t. */
static inline int slg_by_number(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* ---- producers by id ---- */

void slg_producer_map_free(slg_producer_map *map);
void slg_producer_map_clear(slg_producer_map *map);

/* After it `more` producers can be added without failure. */
slg_status slg_producer_map_reserve(slg_producer_map *map, size_t more, slg_error *error);

/* NULL if there is none. */
slg_producer *slg_producer_map_find(const slg_producer_map *map, int64_t id);

/* Created if missing; valid until the next one is created. */
slg_status slg_producer_map_get(slg_producer_map *map, int64_t id, slg_producer **found,
                                slg_error *error);

/* Call it after producers were removed from `all`. */
void slg_producer_map_fill(slg_producer_map *map);

void slg_producer_take_epoch(slg_producer *producer, int16_t epoch);
void slg_producer_add_batch(slg_producer *producer, const slg_producer_batch *batch);

/* What is kept of a batch. */
slg_producer_batch slg_producer_batch_of(const slg_batch *batch);

/* Applies a marker, except for the transaction that it ends. */
void slg_producer_take_marker(slg_producer *producer, const slg_marker *marker);

/* ---- transactions by first offset ---- */

slg_status slg_txns_reserve(slg_txns *txns, size_t more, slg_error *error);

/* Removes all, and keeps the memory. */
static inline void slg_txns_clear(slg_txns *txns) {
    txns->first = txns->sorted = txns->count = txns->ended = 0;
}

/* Kafka identifies a transaction by its first offset: a second one replaces it. Transactions may
 * come in any order. */
slg_status slg_txns_put(slg_txns *txns, const slg_txn *txn, slg_error *error);
slg_status slg_txns_append(slg_txns *txns, const slg_txn *txn, slg_error *error);

/* Puts all in order of their first offsets. */
void slg_txns_sort(slg_txns *txns);

/* The one with the lowest first offset that has not ended, or NULL. */
const slg_txn *slg_txns_lowest(const slg_txns *txns);

/* The open transaction, or NULL. */
slg_txn *slg_txns_find(const slg_txns *txns, int64_t first_offset);

/* The same among the transactions of other producers. */
const slg_txn *slg_txns_lowest_of_others(const slg_txns *txns, int64_t producer_id);

/* Ends a transaction, which is in the list. */
void slg_txns_close(slg_txns *txns, int64_t first_offset);

/* Updates the result of slg_producers_oldest_txn_timestamp; call it after every change of
 * transactions and their producers. */
void slg_producers_note_oldest(slg_producers *producers);

/* ---- markers ---- */

/*
 * The marker in a control batch, if it has the usual form: one uncompressed record, an abort or a
 * commit, no headers. `data` are the batch's bytes.
 */
bool slg_marker_parse(const slg_batch *batch, const uint8_t *data, slg_marker *marker);

/* The same, from the log file `fd`, unless that is negative. */
bool slg_marker_read(const slg_batch *batch, int fd, slg_marker *marker);

#endif
