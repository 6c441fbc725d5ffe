/* Room in an array that doubles. */
#ifndef SEGLOG_ROOM_H
#define SEGLOG_ROOM_H

#include <stdlib.h>

#include "seglog/status.h"

enum { SLG_ROOM_FIRST = 8 };

/*
 * Makes room for `more` elements of `width` bytes besides `count`. SLG_OK; SLG_NO_MEMORY: the array
 * is unchanged.
 */
static inline slg_status slg_make_room(void **data, size_t *capacity, size_t count, size_t more,
                                       size_t width, slg_error *error) {
    if (more <= *capacity - count) {
        return SLG_OK;
    }
    size_t wanted = *capacity > 0 ? *capacity : SLG_ROOM_FIRST;
    while (wanted - count < more && wanted <= SIZE_MAX / 2 / width) {
        wanted *= 2;
    }
    void *grown = wanted - count < more ? NULL : realloc(*data, wanted * width);
    if (grown == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, (int64_t)wanted, 0);
    }
    *data = grown;
    *capacity = wanted;
    return SLG_OK;
}

#endif
