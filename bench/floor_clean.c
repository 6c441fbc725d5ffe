/*
 * The floor of a round of the log cleaner: two passes over a log of plain batches without headers
 * in records. The first puts keys into the cleaner's own map, the second writes the bytes of the
 * records that are their key's last. It checks nothing, writes no batch, no checksum and no index.
 */
#define _GNU_SOURCE

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "seglog/format.h"
#include "seglog/offset_map.h"
#include "seglog/wire.h"

enum { WINDOW = 128 << 10, KEYS = 1024, AHEAD = 64, OUTPUT = 1 << 20, WIDTH_MAX = 256 };

typedef struct pass {
    slg_offset_map *map;
    slg_offset_key keys[KEYS];
    size_t count;
    uint8_t *output;
    size_t size;
    int fd; /* the output's, -1 in the first pass */
    int64_t records, written;
    int failed;
} pass;

static void put_keys(pass *p) {
    slg_offset_keys_hash(p->keys, p->count);
    for (size_t at = 0; at < p->count + 2 * (size_t)AHEAD; at++) {
        if (at < p->count) {
            slg_offset_map_place(p->map, p->keys + at, 1);
        }
        if (at >= AHEAD && at - AHEAD < p->count) {
            slg_offset_map_look(p->map, p->keys + at - AHEAD, 1);
        }
        if (at >= 2 * (size_t)AHEAD) {
            slg_offset_map_put(p->map, p->keys + at - 2 * (size_t)AHEAD);
        }
    }
    p->count = 0;
}

static void write_output(pass *p) {
    p->failed |= p->size > 0 && write(p->fd, p->output, p->size) != (ssize_t)p->size;
    p->written += (int64_t)p->size;
    p->size = 0;
}

/* The fields before the key: length, attributes, time, offset, size. */
static const uint8_t *varint(const uint8_t *p, uint32_t *value) {
    *value = p[0] & 0x7fU;
    for (int shift = 7; *p++ >= 0x80U; shift += 7) {
        *value |= (p[0] & 0x7fU) << shift;
    }
    return p;
}

static void take_batch(pass *p, const uint8_t *batch, size_t size) {
    const int64_t base = slg_load_i64(batch);
    const uint8_t *at = batch + SLG_BATCH_HEADER_SIZE, *end = batch + size;
    while (at < end) {
        uint32_t length, time, delta, key_size;
        const uint8_t *from = at, *body = varint(at, &length);
        const uint8_t *key = varint(varint(varint(body + 1, &time), &delta), &key_size);
        const int64_t offset = base + (delta >> 1);
        at = body + (length >> 1);
        p->records++;
        if (p->fd < 0) {
            p->keys[p->count++] =
                (slg_offset_key){.data = key, .size = key_size >> 1, .offset = offset};
            if (p->count == KEYS) {
                put_keys(p);
            }
        } else {
            if (p->size + WIDTH_MAX > OUTPUT) {
                write_output(p);
            }
            memcpy(p->output + p->size, from, (size_t)(at - from));
            p->size += slg_offset_map_mark(p->map, offset) == SLG_MARK_LATEST ? (size_t)(at - from)
                                                                              : 0;
        }
    }
}

static int take_file(pass *p, const char *path, uint8_t *window) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int64_t position = 0;
    for (;;) {
        const ssize_t got = fd < 0 ? -1 : pread(fd, window, WINDOW, position);
        ssize_t at = 0;
        while (at + SLG_BATCH_HEADER_SIZE <= got) {
            const ssize_t size = slg_load_i32(window + at + SLG_BATCH_LENGTH_AT) + 12;
            if (size > got - at) {
                break;
            }
            take_batch(p, window + at, (size_t)size);
            at += size;
        }
        if (p->fd < 0) {
            put_keys(p); /* they point into the window */
        }
        position += at;
        if (at == 0) {
            close(fd);
            return got == 0 ? 0 : -1;
        }
    }
}

/* A round over `count` log files with offsets [0, offsets), and a map of `slots` that keeps its
   memory between rounds. Without a target only the first pass. Returns the number of keys, and what
   was written; -1 for an error. One round at a time. */
int64_t floor_clean(const char *const *paths, int count, int64_t offsets, int32_t slots,
                    const char *target, int64_t *written) {
    static slg_offset_map map;
    static pass p;
    uint8_t *window = malloc(WINDOW), *output = malloc(OUTPUT);
    if (map.slot_count != slots && !slg_offset_map_renew(&map, slots)) {
        slots = 0;
    }
    slg_offset_map_clear(&map);
    slg_offset_map_mark_range(&map, 0, offsets);
    p = (pass){.map = &map, .output = output, .fd = -1};
    p.failed = window == NULL || output == NULL || slots == 0;
    for (int i = 0; i < count && !p.failed; i++) {
        p.failed = take_file(&p, paths[i], window);
    }
    for (int i = 0; i < count && target != NULL && !p.failed; i++) {
        p.fd = open(target, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        p.failed = p.fd < 0 || take_file(&p, paths[i], window);
        if (p.fd >= 0) {
            write_output(&p);
            p.failed |= fsync(p.fd);
            close(p.fd);
        }
    }
    free(window);
    free(output);
    *written = p.written;
    return p.failed ? -1 : map.entries;
}
