#if defined(__linux__)
#define _GNU_SOURCE /* pwritev */
#elif defined(__APPLE__)
#define _DARWIN_C_SOURCE
#else
#define _DEFAULT_SOURCE
#endif
#define _FILE_OFFSET_BITS 64

#include "append_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "room.h"
#include "seglog/file.h"
#include "seglog/format.h"
#include "seglog/wire.h"

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

void slg_segment_writer_init(slg_segment_writer *writer) {
    memset(writer, 0, sizeof *writer);
    writer->log_fd = writer->index_fd = writer->time_index_fd = -1;
}

void slg_segment_writer_free(slg_segment_writer *writer) {
    slg_append_scratch *scratch = &writer->scratch;
    free(scratch->batches);
    free(scratch->bytes);
    free(scratch->pieces);
    free(scratch->offset_entries);
    free(scratch->time_entries);
    memset(scratch, 0, sizeof *scratch);
}

void slg_append_copy(uint8_t *into, const uint8_t *from, size_t size) { memcpy(into, from, size); }

/* ---- index entries ------------------------------------------------------------------------- */

slg_status slg_append_reserve_entries(slg_append_scratch *scratch, size_t count, slg_error *error) {
    size_t room = scratch->entry_room; /* the arrays have one size, unless the second is refused */
    slg_status status =
        slg_make_room(&scratch->offset_entries, &room, 0, count, SLG_OFFSET_ENTRY_SIZE, error);
    if (status == SLG_OK) {
        status = slg_make_room(&scratch->time_entries, &scratch->entry_room, 0, count,
                               SLG_TIME_ENTRY_SIZE, error);
    }
    return status;
}

/* Batches of one append may lie on both sides of the base, in old formats. */
static bool fits_entry(const slg_segment_writer *writer, int64_t offset) {
    return offset >= writer->base_offset && offset - writer->base_offset <= INT32_MAX;
}

/* Kafka's order: both entries' checks come when the other entry may be made already. */
static slg_index_refusal make_entries(slg_segment_writer *writer, slg_segment_state *draft,
                                      int64_t last_offset) {
    const slg_segment_state *start = &writer->state;
    if (draft->offset_entries >= writer->offset_slots) {
        return SLG_INDEX_OFFSET_FULL;
    }
    if (draft->offset_entries > 0 && last_offset <= draft->last_index_offset) {
        return SLG_INDEX_OFFSET_BACK;
    }
    if (!fits_entry(writer, last_offset)) {
        return SLG_INDEX_OFFSET_FAR;
    }
    uint8_t *at = writer->scratch.offset_entries +
                  (draft->offset_entries - start->offset_entries) * SLG_OFFSET_ENTRY_SIZE;
    slg_store_i32(at + SLG_OFFSET_ENTRY_OFFSET_AT, (int32_t)(last_offset - writer->base_offset));
    slg_store_i32(at + SLG_OFFSET_ENTRY_POSITION_AT, (int32_t)draft->size);
    draft->offset_entries++;
    draft->last_index_offset = last_offset;

    if (draft->time_entries >= writer->time_slots - 1) {
        return SLG_INDEX_TIME_FULL;
    }
    if (draft->time_entries > 0 && draft->max_timestamp_offset < draft->last_time_offset) {
        return SLG_INDEX_TIME_OFFSET_BACK;
    }
    if (draft->time_entries > 0 && draft->max_timestamp < draft->last_time) {
        return SLG_INDEX_TIME_BACK;
    }
    if (draft->max_timestamp > draft->last_time) {
        if (!fits_entry(writer, draft->max_timestamp_offset)) {
            return SLG_INDEX_TIME_FAR;
        }
        at = writer->scratch.time_entries +
             (draft->time_entries - start->time_entries) * SLG_TIME_ENTRY_SIZE;
        slg_store_i64(at + SLG_TIME_ENTRY_TIMESTAMP_AT, draft->max_timestamp);
        slg_store_i32(at + SLG_TIME_ENTRY_OFFSET_AT,
                      (int32_t)(draft->max_timestamp_offset - writer->base_offset));
        draft->time_entries++;
        draft->last_time = draft->max_timestamp;
        draft->last_time_offset = draft->max_timestamp_offset;
    }
    return SLG_INDEX_TAKES;
}

slg_index_refusal slg_append_index(slg_segment_writer *writer, slg_segment_state *draft,
                                   const slg_batch *batch) {
    if (draft->size == 0) {
        draft->first_timestamp = batch->max_timestamp;
        draft->knows_first_timestamp = true;
    }
    if (batch->max_timestamp > draft->max_timestamp) {
        draft->max_timestamp = batch->max_timestamp;
        draft->max_timestamp_offset = batch->last_offset;
    }
    if (draft->bytes_since_entry > writer->index_interval) {
        const slg_index_refusal refusal = make_entries(writer, draft, batch->last_offset);
        if (refusal != SLG_INDEX_TAKES) {
            return refusal;
        }
        draft->bytes_since_entry = 0;
    }
    draft->size += batch->size;
    draft->bytes_since_entry += batch->size;
    return SLG_INDEX_TAKES;
}

static slg_status write_entries(const slg_segment_writer *writer, const slg_segment_state *draft,
                                slg_error *error) {
    const slg_segment_state *start = &writer->state;
    const int64_t offsets = draft->offset_entries - start->offset_entries;
    const int64_t times = draft->time_entries - start->time_entries;
    slg_status status = SLG_OK;
    if (offsets > 0) {
        status = slg_pwrite(writer->index_fd, writer->scratch.offset_entries,
                            (size_t)offsets * SLG_OFFSET_ENTRY_SIZE,
                            start->offset_entries * SLG_OFFSET_ENTRY_SIZE, error);
    }
    if (status == SLG_OK && times > 0) {
        status = slg_pwrite(writer->time_index_fd, writer->scratch.time_entries,
                            (size_t)times * SLG_TIME_ENTRY_SIZE,
                            start->time_entries * SLG_TIME_ENTRY_SIZE, error);
    }
    return status;
}

/* ---- the log ------------------------------------------------------------------------------- */

/* Writes all pieces at `position`, and consumes them. */
static slg_status write_pieces(int fd, struct iovec *pieces, size_t count, int64_t position,
                               slg_error *error) {
    while (count > 0) {
        /* pwritev is slower than pwrite, so a single piece uses the latter. */
        const ssize_t n =
            count == 1
                ? pwrite(fd, pieces->iov_base, pieces->iov_len, (off_t)position)
                : pwritev(fd, pieces, (int)(count < IOV_MAX ? count : IOV_MAX), (off_t)position);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return slg_fail_errno(error, SLG_IO, position, n == 0 ? EIO : errno);
        }
        position += n;
        size_t left = (size_t)n;
        while (count > 0 && left >= pieces->iov_len) {
            left -= pieces->iov_len;
            pieces++;
            count--;
        }
        if (left > 0) {
            pieces->iov_base = (uint8_t *)pieces->iov_base + left;
            pieces->iov_len -= left;
        }
    }
    return SLG_OK;
}

slg_status slg_append_write(slg_segment_writer *writer, const slg_segment_state *draft,
                            struct iovec *pieces, size_t count, slg_error *error) {
    const int64_t position = writer->state.size;
    slg_status status = write_pieces(writer->log_fd, pieces, count, position, error);
    if (status == SLG_OK) {
        status = write_entries(writer, draft, error);
    }
    if (status != SLG_OK) {
        /* Else the next start would have to tell a torn batch from a valid one. If this fails too,
         * the size still says which bytes are valid. */
        int cut;
        do {
            cut = ftruncate(writer->log_fd, (off_t)position);
        } while (cut != 0 && errno == EINTR);
        return status;
    }
    writer->state = *draft;
    return SLG_OK;
}

slg_status slg_segment_append(slg_segment_writer *writer, const uint8_t *data, size_t size,
                              const slg_batch *batches, size_t count, slg_index_refusal *refusal,
                              size_t *row, slg_error *error) {
    slg_segment_state draft = writer->state;
    *refusal = SLG_INDEX_TAKES;
    *row = count;
    const slg_status status = slg_append_reserve_entries(&writer->scratch, count, error);
    if (status != SLG_OK) {
        return status;
    }
    for (size_t i = 0; i < count; i++) {
        *refusal = slg_append_index(writer, &draft, &batches[i]);
        if (*refusal != SLG_INDEX_TAKES) {
            *row = i;
            break;
        }
    }
    draft.size = writer->state.size + (int64_t)size;
    struct iovec piece;
    piece.iov_base = (void *)(uintptr_t)data;
    piece.iov_len = size;
    return slg_append_write(writer, &draft, &piece, 1, error);
}
