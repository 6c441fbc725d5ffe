/* Room in an array that doubles. */
#ifndef SEGLOG_ROOM_H
#define SEGLOG_ROOM_H

#include <stdlib.h>
#include <string.h>

#include "seglog/status.h"

enum { SLG_ROOM_FIRST = 8 };

/*
 * Makes room for `more` elements besides `count` in an array of `capacity`; both are variables.
 * SLG_OK; SLG_NO_MEMORY: the array is unchanged.
 */
#define SLG_MAKE_ROOM(array, capacity, count, more, error) \
    slg_make_room(&(array), &(capacity), (count), (more), sizeof *(array), (error))

/* `array` points to the pointer to the elements, of whatever type, of `width` bytes. */
static inline slg_status slg_make_room(void *array, size_t *capacity, size_t count, size_t more,
                                       size_t width, slg_error *error) {
    if (more <= *capacity - count) {
        return SLG_OK;
    }
    size_t wanted = *capacity > 0 ? *capacity : SLG_ROOM_FIRST;
    while (wanted - count < more && wanted <= SIZE_MAX / 2 / width) {
        wanted *= 2;
    }
    void *data;
    memcpy(&data, array, sizeof data);
    void *grown = wanted - count < more ? NULL : realloc(data, wanted * width);
    if (grown == NULL) {
        return slg_fail(error, SLG_NO_MEMORY, 0, (int64_t)wanted, 0);
    }
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return SLG_OK;
}

#endif
