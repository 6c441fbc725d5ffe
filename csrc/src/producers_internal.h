/* What the sources of the producers stem share: the map of producers, lists of transactions. */
#ifndef SEGLOG_PRODUCERS_INTERNAL_H
#define SEGLOG_PRODUCERS_INTERNAL_H

#include "seglog/producers.h"

/* Room for `more` beside `count`; a capacity doubles. SLG_OK or SLG_NO_MEMORY. */
slg_status slg_make_room(void **data, size_t *capacity, size_t count, size_t more, size_t width,
                         slg_error *error);

/* ---- producers by id ---- */

void slg_producer_map_free(slg_producer_map *map);
void slg_producer_map_clear(slg_producer_map *map);

/* After it `more` producers can be added without fail. */
slg_status slg_producer_map_reserve(slg_producer_map *map, size_t more, slg_error *error);

/* NULL where there is none. */
slg_producer *slg_producer_map_find(const slg_producer_map *map, int64_t id);

/* Made where there is none; good until the next one is made. */
slg_status slg_producer_map_get(slg_producer_map *map, int64_t id, slg_producer **found,
                                slg_error *error);

/* After producers were taken out of `all`. */
void slg_producer_map_fill(slg_producer_map *map);

void slg_producer_take_epoch(slg_producer *producer, int16_t epoch);
void slg_producer_add_batch(slg_producer *producer, const slg_producer_batch *batch);

/* What is remembered of a batch. */
slg_producer_batch slg_producer_batch_of(const slg_batch *batch);

/* What a marker says, but for the transaction that it ends. */
void slg_producer_take_marker(slg_producer *producer, const slg_marker *marker);

/* ---- transactions by first offset ---- */

slg_status slg_txns_reserve(slg_txns *txns, size_t more, slg_error *error);

/* Kafka knows a transaction by its first offset alone: a second one takes its place. */
slg_status slg_txns_put(slg_txns *txns, const slg_txn *txn, slg_error *error);
slg_status slg_txns_append(slg_txns *txns, const slg_txn *txn, slg_error *error);

/* The one that is open, or NULL. */
slg_txn *slg_txns_find(const slg_txns *txns, int64_t first_offset);

/* The first open transaction of another producer, or NULL. */
const slg_txn *slg_txns_first_of_others(const slg_txns *txns, int64_t producer_id);

/* One that is open. */
void slg_txns_close(slg_txns *txns, int64_t first_offset);

/* Notes what slg_producers_oldest_txn_timestamp answers; after every change of transactions, and of
 * their producers. */
void slg_producers_note_oldest(slg_producers *producers);

/* ---- markers ---- */

/*
 * The marker in a control batch, if it is one of the usual form: one record, not compressed, an
 * abort or a commit and no headers. `data` are the batch's bytes.
 */
bool slg_marker_parse(const slg_batch *batch, const uint8_t *data, slg_marker *marker);

/* The same, from the log file `fd`, unless that is negative. */
bool slg_marker_read(const slg_batch *batch, int fd, slg_marker *marker);

#endif
